"""What a new plan changes of an old one, as values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.plan import LanePlan, Plan

# Figures are shown with three digits or more; a smaller difference is no change anybody could see.
_SAME_TO = 5e-3


class PlanField(StrEnum):
    """What of a plan makes a difference to what runs or is promised."""

    REPLICAS = "replicas"
    ENGINE = "engine"
    IMAGE = "image"
    MACHINE_IMAGE = "machine image"
    INSTANCE = "instance"
    MODEL = "model"
    MAX_NUM_SEQS = "max_num_seqs"
    MAX_MODEL_LEN = "max_model_len"
    MAX_NUM_BATCHED_TOKENS = "max_num_batched_tokens"
    GPU_MEMORY_UTILIZATION = "gpu_memory_utilization"
    EXTRA_ARGS = "extra_args"
    ENV = "env"
    CONSTRAINT = "constraint"
    TTFT_P99 = "TTFT P99"  # seconds
    ITL_P99 = "ITL P99"  # seconds
    COST = "$/h"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSplit:
    """How many replicas, and on which market."""

    replicas: int
    on_demand: int
    spot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceChoice:
    """Which node, and how its GPUs are used."""

    instance_type: str
    gpu: str
    gpu_count: int
    tensor_parallel: int
    node_count: int = 1
    stages: int = 1
    ranks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVariant:
    """Which weights at which precision; an empty KV cache dtype is the engine's own choice."""

    model: str
    quantization: str
    kv_cache: str


PlanValue = ReplicaSplit | InstanceChoice | ModelVariant | str | int | float | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One difference between two plans; None: that plan has no such lane."""

    lane: str  # empty: the whole fleet
    field: PlanField
    old: PlanValue | None
    new: PlanValue | None


def diff_plans(old: Plan | None, new: Plan) -> tuple[PlanChange, ...]:
    """Return what a new plan changes, lane by lane; everything, when there is no old one. Empty when nothing."""
    before = {lane.lane: lane for lane in old.lanes} if old else {}
    after = {lane.lane: lane for lane in new.lanes}
    found: list[PlanChange] = []
    for name in [*after, *(name for name in before if name not in after)]:
        found += _lane_changes(name, before.get(name), after.get(name))
    old_cost = old.cost_usd_per_hour if old else None
    if not _is_same(old_cost, new.cost_usd_per_hour):
        found.append(PlanChange(lane="", field=PlanField.COST, old=old_cost, new=new.cost_usd_per_hour))
    return tuple(found)


def _lane_changes(name: str, old: LanePlan | None, new: LanePlan | None) -> Iterator[PlanChange]:
    for field, read in _READ.items():
        before, after = read(old) if old else None, read(new) if new else None
        if not _is_same(before, after):
            yield PlanChange(lane=name, field=field, old=before, new=after)


def _is_same(old: PlanValue | None, new: PlanValue | None) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=_SAME_TO)
    return old == new


_READ: dict[PlanField, Callable[[LanePlan], PlanValue]] = {
    PlanField.REPLICAS: lambda lane: ReplicaSplit(replicas=lane.replicas, on_demand=lane.on_demand, spot=lane.spot),
    PlanField.ENGINE: lambda lane: lane.engine,
    PlanField.IMAGE: lambda lane: str(lane.launch.image or ""),
    PlanField.MACHINE_IMAGE: lambda lane: str(lane.launch.machine_image or ""),
    PlanField.INSTANCE: lambda lane: InstanceChoice(
        instance_type=lane.offering.instance_type,
        gpu=lane.gpu,
        gpu_count=lane.offering.gpu_count,
        tensor_parallel=lane.tensor_parallel,
        node_count=lane.node_count,
        stages=lane.stages,
        ranks=lane.ranks,
    ),
    PlanField.MODEL: lambda lane: ModelVariant(
        model=lane.launch.model, quantization=str(lane.launch.quantization), kv_cache=str(lane.launch.kv_cache or "")
    ),
    PlanField.MAX_NUM_SEQS: lambda lane: lane.launch.max_num_seqs,
    PlanField.MAX_MODEL_LEN: lambda lane: lane.launch.max_model_len,
    PlanField.MAX_NUM_BATCHED_TOKENS: lambda lane: lane.launch.max_num_batched_tokens,
    PlanField.GPU_MEMORY_UTILIZATION: lambda lane: float(lane.launch.gpu_memory_utilization),
    PlanField.EXTRA_ARGS: lambda lane: tuple(lane.launch.extra_args),
    PlanField.ENV: lambda lane: tuple(sorted(lane.launch.env)),
    PlanField.CONSTRAINT: lambda lane: lane.constraint.value,
    PlanField.TTFT_P99: lambda lane: float(lane.forecast.ttft_p99_s),
    PlanField.ITL_P99: lambda lane: float(lane.forecast.itl_p99_s),
    PlanField.COST: lambda lane: float(lane.cost_usd_per_hour),
}
