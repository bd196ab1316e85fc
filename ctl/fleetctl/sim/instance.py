"""What one replica of a planned lane is: its engine's limits, and how long its steps take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import BLOCK_TOKENS, kv_precision_of
from fleetctl.core.perf.sequence_kv import sequence_kv
from fleetctl.core.perf.step import StepModel, step_model
from fleetctl.core.plan.kv import rank_kv_tokens
from fleetctl.errors import ConfigError
from fleetctl.sim.limits import EngineLimits

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.ports.engine import EngineCapabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInstance:
    """An engine's limits and its pace, of each of its ranks."""

    limits: EngineLimits
    model: StepModel
    speed: float = 1.0
    ranks: int = 1  # copies of it in one replica
    frontend_s: float = 0.0  # before a request is scheduled
    startup_s: float = 0.0  # its process start to healthy, where that is known


def engine_instance(
    plan: Plan, lane_plan: LanePlan, capabilities: EngineCapabilities, *, speed: float = 1.0
) -> EngineInstance:
    """Return what the performance model makes of a lane's launch settings. Raises ConfigError where it has no figures."""
    gpu, card, launch = lane_plan.gpu_spec or plan.gpu_spec, plan.card_of(lane_plan), lane_plan.launch
    if gpu is None or card is None:
        raise ConfigError(
            f"lane {lane_plan.lane}: a plan without a GPU's datasheet or the model's shape cannot be simulated",
            hint="plan it with full sizing",
        )
    kv_precision = kv_precision_of(card, launch.kv_cache)
    model = step_model(
        card,
        gpu,
        tensor_parallel=lane_plan.tensor_parallel,
        pipeline_parallel=lane_plan.node_count,
        pipeline_parallel_local=launch.pipeline_parallel_local,
        precision=launch.quantization,
        kv_precision=kv_precision,
    )
    limits = EngineLimits(
        max_num_seqs=launch.max_num_seqs,
        max_num_batched_tokens=max(launch.max_num_batched_tokens, launch.max_num_seqs),
        kv_blocks=rank_kv_tokens(plan, lane_plan) // BLOCK_TOKENS,
        reserves_output=capabilities.reserves_output,
        sequence_kv=sequence_kv(card, kv_precision, lane_plan.tensor_parallel),
    )
    return EngineInstance(limits=limits, model=model, speed=speed, ranks=lane_plan.ranks)
