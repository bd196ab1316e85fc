"""How many tokens of KV cache a planned replica has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import kv_capacity_tokens, kv_precision_of

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan


def replica_kv_tokens(plan: Plan, lane_plan: LanePlan) -> int:
    """Return what fits beside the weights of one replica, in all of its ranks; 0: it has no figures of model or GPU."""
    return rank_kv_tokens(plan, lane_plan) * lane_plan.ranks


def rank_kv_tokens(plan: Plan, lane_plan: LanePlan) -> int:
    """Return what fits beside the weights of one rank, by the performance model; 0: it has no figures of model or GPU."""
    gpu, card, launch = lane_plan.gpu_spec or plan.gpu_spec, plan.card_of(lane_plan), lane_plan.launch
    if gpu is None or card is None:
        return 0
    return kv_capacity_tokens(
        card,
        gpu,
        tensor_parallel=lane_plan.tensor_parallel,
        pipeline_parallel=lane_plan.stages,
        data_parallel=lane_plan.ranks,
        precision=launch.quantization,
        kv_precision=kv_precision_of(card, launch.kv_cache),
        gpu_memory_utilization=launch.gpu_memory_utilization,
        max_num_batched_tokens=launch.max_num_batched_tokens,
        max_num_seqs=launch.max_num_seqs,
    )
