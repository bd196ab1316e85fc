"""What each replica of a plan is to have of a machine without GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_cache_bytes_per_token, kv_precision_of, weight_bytes
from fleetctl.model.cpu_share import CpuShare

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.ports.engine import Engine


def cpu_share(engine_of: Callable[[str], Engine], plan: Plan, lane_plan: LanePlan) -> CpuShare | None:
    """Return a replica's share of a machine without GPUs; None: its engine is not known to run there."""
    capabilities = engine_of(lane_plan.engine).capabilities
    use, launch, card = capabilities.cpu, lane_plan.launch, plan.card_of(lane_plan)
    if use is None:
        return None
    flags = {word.split("=", 1)[0] for word in launch.extra_args}
    weights = kv_bytes = 0.0
    if card is not None:
        slots = launch.max_num_seqs if capabilities.reserves_context else 1
        weights = weight_bytes(card, launch.quantization)
        kv_bytes = kv_cache_bytes_per_token(card, kv_precision_of(card, launch.kv_cache)) * launch.max_model_len * slots
    return CpuShare(
        parts=sum(lane.replicas for lane in plan.lanes if engine_of(lane.engine).capabilities.cpu is not None),
        fixed_bytes=math.ceil(use.process_bytes + weights),
        kv_bytes_min=math.ceil(kv_bytes),
        # What the profile sets itself is left alone.
        kv_space_env="" if flags & use.kv_space_flags or use.kv_space_env in launch.env else use.kv_space_env,
        threads_env="" if flags & use.threads_flags or use.threads_env in launch.env else use.threads_env,
    )
