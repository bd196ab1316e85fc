"""What each replica of a plan is to have of a machine without GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_cache_bytes_per_token, kv_precision_of, weight_bytes
from fleetctl.model.cpu_share import CpuShare

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import RolloutSpec
    from fleetctl.ports.engine import Engine


def cpu_share(
    engine_of: Callable[[str], Engine], plan: Plan, lane_plan: LanePlan, rollout: RolloutSpec
) -> CpuShare | None:
    """Return a replica's share of a machine without GPUs; None: its engine is not known to run there.

    Memory is shared out with room for what rollouts start beside the planned replicas, each by its own lane's model.
    """
    capabilities = engine_of(lane_plan.engine).capabilities
    use, launch, card = capabilities.cpu, lane_plan.launch, plan.card_of(lane_plan)
    if use is None:
        return None
    flags = {word.split("=", 1)[0] for word in launch.extra_args}
    kv_bytes = 0.0
    if card is not None:
        slots = launch.max_num_seqs if capabilities.reserves_context else 1
        kv_bytes = kv_cache_bytes_per_token(card, kv_precision_of(card, launch.kv_cache)) * launch.max_model_len * slots
    sharing = [
        (lane.replicas, rollout.max_surge.of(lane.replicas) if lane.replicas else 0, fixed)
        for lane in plan.lanes
        if (fixed := _fixed_bytes(engine_of, plan, lane)) is not None
    ]
    return CpuShare(
        parts=sum(replicas for replicas, _, _ in sharing),
        fixed_bytes=_fixed_bytes(engine_of, plan, lane_plan) or 0,
        fixed_bytes_all=sum(replicas * fixed for replicas, _, fixed in sharing),
        surge=sum(more for _, more, _ in sharing),
        surge_fixed_bytes=sum(more * fixed for _, more, fixed in sharing),
        kv_bytes_min=math.ceil(kv_bytes),
        # What the profile sets itself is left alone.
        kv_space_env="" if flags & use.kv_space_flags or use.kv_space_env in launch.env else use.kv_space_env,
        threads_env="" if flags & use.threads_flags or use.threads_env in launch.env else use.threads_env,
    )


def _fixed_bytes(engine_of: Callable[[str], Engine], plan: Plan, lane: LanePlan) -> int | None:
    """Return what a lane's replica holds beside its KV cache; None: its engine is not known to run without GPUs."""
    use, card = engine_of(lane.engine).capabilities.cpu, plan.card_of(lane)
    if use is None:
        return None
    return math.ceil(use.process_bytes + (weight_bytes(card, lane.launch.quantization) if card is not None else 0.0))
