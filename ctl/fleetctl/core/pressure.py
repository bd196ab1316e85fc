"""Reads one lane's pressure from the gateway's figures; only signals fit to decide on count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.arrivals import ArrivalRate, arrival_rate
from fleetctl.core.demand import MeanLengths, mean_lengths
from fleetctl.core.pins import RefusedBy
from fleetctl.core.slo.binomial import chance_of_at_least
from fleetctl.core.slo.burn import FAST_BURN
from fleetctl.core.slo.judge import LIVE_CONFIDENCE
from fleetctl.core.slo.wording import describe
from fleetctl.model.budget import LaneBudget
from fleetctl.model.slo import Metric, Quantiles, Validity
from fleetctl.model.verdict import Compliance
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneSnapshot, LaneWindow
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.slo import LatencyTarget
    from fleetctl.model.verdict import SloVerdict

# The queue may use at most 80 % of what is promised (the published rule for short lanes).
QUEUE_SHARE = 0.8
# A percentile is read from the shortest window that holds enough samples; longer ones answer too late.
_WINDOWS_S = (10.0, 60.0)
_RATED_S_MIN = 5.0
_REFUSED_WINDOW_S = 300.0
_JUST_OVER = 0.01  # the sketches' relative error
# A refusal in a busy 10 s is within what the objective allows, and no reason to pause or to order; three a minute are.
_LIKELY = 0.95
# Over minutes a lane may refuse this share of what its objective allows; the rest is for incidents that nobody plans for.
_REFUSED_SHARE = 0.25
_SHOWN_WHOLE = 0.02  # a share from here on is named in whole percents
_UNMET = frozenset({
    Refusal.QUEUE_FULL, Refusal.PREDICTED_WAIT, Refusal.MAX_WAIT, Refusal.SHED, Refusal.BREAKER, Refusal.CAP_CONTEXT, Refusal.ENGINES_BUSY,
    Refusal.NO_REPLICA, Refusal.FROM_ZERO,
})  # fmt: skip
_BY_STEP = frozenset({Refusal.SHED, Refusal.BREAKER, Refusal.CAP_CONTEXT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One figure over its limit: 1.0 is at the limit. `message` says both with units."""

    ratio: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePressure:
    """A lane's figures, reduced to what scaling and the ladder decide on."""

    validity: Validity  # OK: the gateway's figures are fresh; zero traffic is a figure too
    offered: ArrivalRate = field(default_factory=ArrivalRate)  # without what an operator's step refuses
    arriving: ArrivalRate = field(default_factory=ArrivalRate)  # all of it
    latest: int | None = None  # requests of the last 10 s that ask for capacity; None: the gateway is younger
    lengths: MeanLengths | None = None  # None: too few requests finished to say
    waiting: Ratio | None = None  # queue wait
    ttft: Ratio | None = None  # None: no samples that say anything
    missed: Ratio | None = None  # the worst latency target that is surely missed, whichever metric it is of
    unmet: float = 0.0  # share of the last 10 s' requests that were refused
    refused: Ratio | None = None  # refusals beyond what shed allowance and objective allow, and hardly by chance
    budget: LaneBudget | None = None  # None: nothing has been counted yet
    queued: int = 0
    in_flight: int = 0

    @property
    def burn(self) -> float | None:
        """Return the error budget's burn rate over 5 m. None: no request ended in it."""
        return self.budget.over(FAST_BURN.short_s).burn if self.budget else None

    @property
    def burns_fast(self) -> bool:
        """Whether the budget burns fast enough, over 1 h and 5 m, to page somebody."""
        return self.budget is not None and FAST_BURN.is_over(self.budget)

    @property
    def offered_rps(self) -> float:
        """Return the requests a second that ask for capacity."""
        return self.offered.rps

    @property
    def latency(self) -> Ratio | None:
        """Return the worse of queue wait and TTFT. None: too few samples."""
        return _worst(self.waiting, self.ttft)

    @property
    def worst(self) -> Ratio | None:
        """Return what presses most."""
        return _worst(self.missed, self.latency, self.refused)

    @property
    def shortage(self) -> Ratio | None:
        """Return what shows that the lane lacks capacity now: waits, a promise that is surely missed, more than chance refusals.

        Not a TTFT near its limit: a plan puts it there, for fewer replicas would break it.
        """
        return _worst(self.missed, self.waiting, self.refused)

    @property
    def level(self) -> float | None:
        """Return the shortage as pressure in [0, 1], or None when no signal is fit to decide on."""
        if self.validity is not Validity.OK:
            return None
        return min(1.0, self.shortage.ratio) if self.shortage else 0.0


def lane_pressure(  # noqa: PLR0913  # a lane, its figures, and what says how far they may be judged
    spec: LaneSpec,
    lane: LaneSnapshot | None,
    *,
    validity: Validity,
    uptime_s: float,
    objective: float,
    verdict: SloVerdict | None = None,
    judged_s: float | None = None,
    stepped_s: float | None = None,
    refused_by: RefusedBy = RefusedBy.CONTROLLER,
    budget: LaneBudget | None = None,
) -> LanePressure:
    """Return the pressure on one lane. `uptime_s` is the gateway's: its windows hold no more than that.

    Where the lane has had all its replicas for no longer than `judged_s`, only windows that lie within it are judged;
    `stepped_s` after its ladder step changed, no long window is that began before. What an operator's step refuses asks for no replica, and gives none up.
    """
    if lane is None or validity is not Validity.OK:
        return LanePressure(validity=Validity.NONE if validity is Validity.OK else validity)
    on_purpose = _BY_STEP if refused_by is RefusedBy.OPERATOR else frozenset[Refusal]()
    reasons = _UNMET if refused_by is RefusedBy.CONTROLLER else _UNMET - _BY_STEP
    latest = lane.window(_WINDOWS_S[0])
    return LanePressure(
        validity=Validity.OK,
        offered=_rate(lane, uptime_s, without=on_purpose),
        arriving=_rate(lane, uptime_s, without=frozenset()),
        latest=_offered(latest, on_purpose) if uptime_s >= latest.seconds else None,
        lengths=mean_lengths(lane),
        waiting=_wait_ratio(spec, lane, judged_s),
        ttft=_ttft_ratio(spec, lane, judged_s, stepped_s),
        missed=_missed(verdict) if verdict and (judged_s is None or judged_s >= _WINDOWS_S[-1]) else None,
        unmet=_unmet(latest, reasons) if judged_s is None or judged_s >= latest.seconds else 0.0,
        refused=_refusals(lane, reasons, judged_s, allowed=1.0 - objective, shed=spec.slo.shed),
        budget=budget,
        queued=lane.queued,
        in_flight=lane.in_flight,
    )


def recent(lane: LaneSnapshot | None, metric: Metric) -> Quantiles:
    """Return a lane's TTFT or ITL over the shortest window with samples enough; else the widest's, FEW or NONE."""
    found = Quantiles()
    if lane is None:
        return found
    for seconds in _WINDOWS_S:
        window = lane.window(seconds)
        found = window.ttft if metric is Metric.TTFT else window.itl
        if found.validity is Validity.OK:
            return found
    return found


def wait_limit_s(spec: LaneSpec) -> float:
    """Return the queue wait a lane may show: its own promise, else 80 % of its longest wait or TTFT promise."""
    promised = spec.slo.strictest(Metric.QUEUE_WAIT)
    if promised is not None:
        return promised.limit_s
    ttft = spec.slo.strictest(Metric.TTFT)
    return QUEUE_SHARE * min([spec.max_wait_s] + ([ttft.limit_s] if ttft else []))


def _rate(lane: LaneSnapshot, uptime_s: float, *, without: frozenset[Refusal]) -> ArrivalRate:
    short_s, long_s = _WINDOWS_S
    # A window's first seconds are empty in a young gateway; in its first any rate would be noise.
    known_s = max(_RATED_S_MIN, uptime_s)
    return arrival_rate(
        short=_offered(lane.window(short_s), without),
        short_s=min(short_s, known_s),
        long=_offered(lane.window(long_s), without),
        long_s=min(long_s, known_s),
    )


def _offered(window: LaneWindow, without: frozenset[Refusal]) -> int:
    return max(0, window.offered - _refused(window, without))


def _refusals(
    lane: LaneSnapshot, reasons: frozenset[Refusal], judged_s: float | None, *, allowed: float, shed: float
) -> Ratio | None:
    """Return the refusals as pressure beyond the limit, whatever the latency of the rest, where they are not chance.

    Those that the shed allowance covers are no reason to buy capacity.
    """
    for seconds in (_WINDOWS_S[0], _REFUSED_WINDOW_S):
        if judged_s is not None and judged_s < seconds:
            return None
        window = lane.window(seconds)
        count, is_latest = _refused(window, reasons), seconds == _WINDOWS_S[0]
        limit = shed + (allowed if is_latest else _REFUSED_SHARE * allowed)
        if _is_more(count, window.offered, allowed=limit, confidence=_LIKELY):
            share = _unmet(window, reasons)
            over = "" if is_latest else f" over {format_duration(seconds)}"
            return Ratio(
                ratio=1.0 + share, message=f"{share:.{0 if share >= _SHOWN_WHOLE else 1}%} of requests refused{over}"
            )
    return None


def _unmet(window: LaneWindow, reasons: frozenset[Refusal]) -> float:
    return min(1.0, _refused(window, reasons) / window.offered) if window.offered else 0.0


def _is_more(count: int, samples: int, *, allowed: float, confidence: float) -> bool:
    """Whether so many of so few are more than the allowed share."""
    return count > 0 and chance_of_at_least(count, max(count, samples), allowed) <= 1.0 - confidence


def _refused(window: LaneWindow, reasons: frozenset[Refusal]) -> int:
    """Return the arrivals refused for such reasons; a client's own fault is no demand, and not among those that press."""
    return sum(count for reason, count in window.shed.items() if reason in reasons) if window.shed else 0


def _wait_ratio(spec: LaneSpec, lane: LaneSnapshot, judged_s: float | None) -> Ratio:
    """Return queue wait over its limit; the oldest waiting request is a fact at any sample count.

    One that has waited since before the lane had its replicas waited for a boot, which no other replica would have ended.
    """
    limit_s = wait_limit_s(spec)
    is_fact = lane.queued and (judged_s is None or lane.oldest_wait_s <= judged_s)
    waits = [(lane.oldest_wait_s, "oldest wait")] if is_fact else []
    window = _enough(lane, "queue_wait", judged_s)
    if window is not None:
        waits.append((window.queue_wait.p99_s, "wait P99"))
    wait_s, name = max(waits, default=(0.0, "wait P99"))
    return _ratio(name, wait_s, limit_s)


def _ttft_ratio(spec: LaneSpec, lane: LaneSnapshot, judged_s: float | None, stepped_s: float | None) -> Ratio | None:
    target = spec.slo.strictest(Metric.TTFT)
    if target is None:
        return None
    shortest_s = _WINDOWS_S[0]
    # The shortest window is never older than what it shows; a minute remembers the load from before the step.
    known_s = math.inf if judged_s is None else judged_s
    eligible_s = judged_s if stepped_s is None else min(max(stepped_s, shortest_s), known_s)
    window = _enough(lane, "ttft", eligible_s)
    if window is not None:
        name = f"TTFT P{target.percentile * 100:.3g}"
        return _ratio(name, window.ttft.at_s(target.percentile), target.limit_s)
    return None if judged_s is not None and judged_s < shortest_s else _ttft_of_few(lane.window(shortest_s), target)


def _ttft_of_few(window: LaneWindow, target: LatencyTarget) -> Ratio | None:
    """Return what a handful of requests says of the promise: kept, surely missed, or (a ratio of 1) neither."""
    found = next((each for each in window.targets if each.target == target and each.samples), None)
    if found is None:
        return None
    allowed = 1.0 - target.percentile
    message = f"TTFT of {found.over} of {found.samples} requests > {format_duration(target.limit_s)}"
    if found.over <= found.samples * allowed:
        return Ratio(ratio=min(1.0, found.measured_s / target.limit_s), message=message)
    is_sure = _is_more(found.over, found.samples, allowed=allowed, confidence=LIVE_CONFIDENCE)
    return Ratio(ratio=max(1.0, found.measured_s / target.limit_s) if is_sure else 1.0, message=message)


def _enough(lane: LaneSnapshot, metric: str, judged_s: float | None) -> LaneWindow | None:
    """Return the shortest window with samples enough; a lane without a sample in 10 s has no present to judge."""
    for seconds in _WINDOWS_S:
        if judged_s is not None and judged_s < seconds:
            return None
        window = lane.window(seconds)
        quantiles: Quantiles = getattr(window, metric)
        if quantiles.validity is not Validity.FEW:
            return window if quantiles.validity is Validity.OK else None
    return None


def _missed(verdict: SloVerdict) -> Ratio | None:
    """Return the latency target that is furthest over its limit, of those the judge is sure of."""
    found = next((f for f in verdict.having(Compliance.MISSED) if f.target), None)
    # A limit that is passed by too many is passed, whatever a sketch makes of the percentile itself.
    return Ratio(ratio=max(1.0 + _JUST_OVER, found.factor), message=describe(found)) if found else None


def _ratio(name: str, value_s: float, limit_s: float) -> Ratio:
    ratio = value_s / limit_s if limit_s > 0 else (2.0 if value_s > 0 else 0.0)
    sign = ">" if ratio > 1 else "<="
    return Ratio(ratio=ratio, message=f"{name} {format_duration(value_s)} {sign} {format_duration(limit_s)}")


def _worst(*ratios: Ratio | None) -> Ratio | None:
    worst = None
    for each in ratios:
        if each is not None and (worst is None or each.ratio > worst.ratio):
            worst = each
    return worst
