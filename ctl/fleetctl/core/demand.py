"""What one replica of a lane carries, and how many a demand needs: by the plan, for requests as long as they are now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.plan import Constraint

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneSnapshot, LaneWindow
    from fleetctl.model.plan import LanePlan

# Where the plan was not set by load, a replica is counted on for this share of its knee (the published fleet's 70 %).
_KNEE_SHARE = 0.7
# Requests whose mean lengths are believed: of lognormal lengths as in the public traces it is known to 6-10 %.
_REQUESTS_MIN = 200
_WINDOWS_S = (60.0, 300.0)
# Of fewer, from here on, the mean is believed with its standard error on top, where that is the careful side.
_REQUESTS_FEW = 20
# Where next to nothing has finished: what the public traces' long prompts cost over what their percentiles promise, and more.
_COST_UNKNOWN = 2.0
# A request is reckoned to cost between this share of a planned one and its inverse: lengths are a hint, not a bill.
_COST_MIN = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLengths:
    """Mean tokens of the requests that finished lately."""

    prompt_tokens: float
    output_tokens: float
    requests: int = _REQUESTS_MIN

    @property
    def is_known(self) -> bool:
        """Return whether they are believed as they are."""
        return self.requests >= _REQUESTS_MIN


def mean_lengths(lane: LaneSnapshot) -> MeanLengths | None:
    """Return the lengths of requests that finished lately. None: too few to say anything.

    Prompts over the shortest window that holds requests enough. Answers over the longest: of the requests that arrive while
    load rises the short ones finish first, and a window that is much longer than an answer hardly notices. Tokens of
    answers that still run do not count, as they belong to requests that do not either.
    """
    windows = [window for seconds in _WINDOWS_S if (window := lane.window(seconds)).finished >= _REQUESTS_MIN]
    if not windows:
        windows = [window for seconds in _WINDOWS_S[-1:] if (window := lane.window(seconds)).finished >= _REQUESTS_FEW]
    if not windows:
        return None
    return MeanLengths(
        prompt_tokens=windows[0].prompt_tokens / windows[0].finished,
        output_tokens=_answer_tokens(windows[-1]) / windows[-1].finished,
        requests=windows[0].finished,
    )


def _answer_tokens(window: LaneWindow) -> int:
    # The gateway of an earlier build, which runs on while the controller is replaced, does not tell them apart.
    return window.finished_output_tokens or window.output_tokens


def request_cost(plan: LanePlan, lengths: MeanLengths | None) -> float:
    """Return what a request costs a replica now, over what a planned one does; 1 where neither is known."""
    return _cost(plan, lengths) if lengths is not None and lengths.is_known else 1.0


def request_cost_at_most(plan: LanePlan, lengths: MeanLengths | None) -> float:
    """Return what a request may well cost a replica now: replicas are not given up on a cost that is not known."""
    if lengths is None:
        return _COST_UNKNOWN if plan.throughput is not None else 1.0
    if lengths.is_known:
        return request_cost(plan, lengths)
    return max(1.0, _cost(plan, lengths) * (1.0 + 1.0 / math.sqrt(lengths.requests)))


def _cost(plan: LanePlan, lengths: MeanLengths) -> float:
    known = plan.throughput
    if known is None or not plan.prompt_tokens_mean or not plan.output_tokens_mean:
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


def replicas_needed(
    plan: LanePlan, offered_rps: float, lengths: MeanLengths | None = None, *, at_most: bool = False
) -> int:
    """Return how many replicas carry this demand inside the SLO; 0 without demand. `at_most`: whatever is not known of it."""
    cost = request_cost_at_most(plan, lengths) if at_most else request_cost(plan, lengths)
    each = rps_per_replica(plan) / cost
    if offered_rps <= 0:
        return 0
    # Rates are measured: a demand of exactly n replicas must not become n + 1 by the last bit.
    return math.ceil(offered_rps / each - 1e-6) if each > 0 else max(1, plan.replicas)
