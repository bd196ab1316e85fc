"""What each model of a planned fleet takes, over all of its lanes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.plan.assemble import usd_per_1m_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.plan import LanePlan, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTotals:
    """One model's part of a plan."""

    model: str  # the name clients use
    lanes: tuple[str, ...]
    engines: tuple[str, ...]  # of its lanes, each once
    rps: float  # of its lanes together, at the peak
    replicas: int
    gpus: dict[str, int]  # by the card's name; none of lanes on a machine without
    cost_usd_per_hour: float
    cost_usd_per_1m_tokens: float  # prompt + output, at the peak; 0 without demand


def model_totals(plan: Plan) -> tuple[ModelTotals, ...]:
    """Return every model's totals, in the order of the lanes."""
    names = dict.fromkeys(lane.launch.served_name for lane in plan.lanes)
    return tuple(_totals(name, [lane for lane in plan.lanes if lane.launch.served_name == name]) for name in names)


def _totals(model: str, lanes: Sequence[LanePlan]) -> ModelTotals:
    gpus = Counter[str]()
    for lane in lanes:
        if not lane.offering.is_on_cpu:
            gpus[lane.gpu] += lane.replicas * lane.gpu_count
    cost = math.fsum(lane.cost_usd_per_hour for lane in lanes)
    tokens_per_s = math.fsum(lane.rps * (lane.prompt_tokens_mean + lane.output_tokens_mean) for lane in lanes)
    return ModelTotals(
        model=model,
        lanes=tuple(lane.lane for lane in lanes),
        engines=tuple(dict.fromkeys(lane.engine for lane in lanes)),
        rps=math.fsum(lane.rps for lane in lanes),
        replicas=sum(lane.replicas for lane in lanes),
        gpus=dict(gpus),
        cost_usd_per_hour=cost,
        cost_usd_per_1m_tokens=usd_per_1m_tokens(cost, tokens_per_s),
    )
