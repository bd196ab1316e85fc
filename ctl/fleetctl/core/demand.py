"""What one replica of a lane carries, and how many a demand needs: by the plan, for requests as long as they are now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.plan import Constraint

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.plan import LanePlan

# Where the plan was not set by load, a replica is counted on for this share of its knee (the published fleet's 70 %).
_KNEE_SHARE = 0.7
# Requests whose mean lengths are believed: of lognormal lengths as in the public traces it is known to 6-10 %.
_REQUESTS_MIN = 200
_WINDOWS_S = (60.0, 300.0)
# A request is reckoned to cost between this share of a planned one and its inverse: lengths are a hint, not a bill.
_COST_MIN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLengths:
    """Mean tokens of the requests that finished lately."""

    prompt_tokens: float
    output_tokens: float


def mean_lengths(lane: LaneSnapshot) -> MeanLengths | None:
    """Return the lengths of requests that finished lately. None: too few to say.

    Prompts over the shortest window that holds requests enough; answers over the longest, for their tokens are counted
    as they come, and while load rises more come than belong to finished requests.
    """
    windows = [window for seconds in _WINDOWS_S if (window := lane.window(seconds)).finished >= _REQUESTS_MIN]
    if not windows:
        return None
    return MeanLengths(
        prompt_tokens=windows[0].prompt_tokens / windows[0].finished,
        output_tokens=windows[-1].output_tokens / windows[-1].finished,
    )


def request_cost(plan: LanePlan, lengths: MeanLengths | None) -> float:
    """Return what a request costs a replica now, over what a planned one does; 1 where neither is known."""
    known = plan.throughput
    if lengths is None or known is None or not plan.prompt_tokens_mean or not plan.output_tokens_mean:
        return 1.0
    prompt = lengths.prompt_tokens / plan.prompt_tokens_mean - 1.0
    output = lengths.output_tokens / plan.output_tokens_mean - 1.0
    cost = 1.0 + known.prompt_share * prompt + known.output_share * output
    return min(1.0 / _COST_MIN, max(_COST_MIN, cost))


def rps_per_replica(plan: LanePlan) -> float:
    """Return the lane demand one replica carries inside the SLO, by the plan's own forecast."""
    if plan.throughput is not None:
        return plan.throughput.rps
    planned = plan.rps / max(1, plan.replicas)
    if plan.constraint is not Constraint.MINIMUM:
        return planned
    return max(planned, _KNEE_SHARE * plan.forecast.knee_rps / max(1, plan.replicas))


def replicas_needed(plan: LanePlan, offered_rps: float, lengths: MeanLengths | None = None) -> int:
    """Return how many replicas carry this demand inside the SLO; 0 without demand."""
    each = rps_per_replica(plan) / request_cost(plan, lengths)
    if offered_rps <= 0:
        return 0
    # Rates are measured: a demand of exactly n replicas must not become n + 1 by the last bit.
    return math.ceil(offered_rps / each - 1e-6) if each > 0 else max(1, plan.replicas)
