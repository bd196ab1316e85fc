"""The one judge of whether a lane keeps its SLO: live for status and decisions, over a whole run for load and demo.

Every target is held at its own percentile, and the share of good among offered requests against the objective. A
promise is missed when the figures would be next to impossible if it were kept (the exact binomial test), so that a
handful of samples suffices where all of them are late, and one late request of fifty condemns nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.slo.binomial import chance_of_at_least, chance_of_at_most
from fleetctl.model.slo import LatencyTarget
from fleetctl.model.verdict import BreachRecord, Compliance, SloFinding, SloVerdict

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.gateway import LaneSnapshot, LaneWindow

# A live verdict is looked at every second: at 95 % a healthy lane would be in breach several times an hour.
LIVE_CONFIDENCE = 0.999
RUN_CONFIDENCE = 0.95  # a finished run is judged once
# The long window gathers evidence, the short one shows a breach at once and that it goes on (multiwindow alerts: the Site
# Reliability Workbook, chapter 5).
SHORT_S = 10.0
LONG_S = 60.0
# A breach ends when the short window has been inside the promise for so long. At once would be too soon: streams that
# were hurt end, and count, many seconds after their cause has gone, and the breach would come back with each.
_QUIET = timedelta(seconds=15)
_ROUNDING = 1e-9  # 1 - 0.99 is a little more than 0.01 in binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a window holds on one promise."""

    target: LatencyTarget | None  # None: the share of good requests
    window_s: float
    samples: int
    missed: int
    allowed: float
    measured_s: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def is_within(self) -> bool:
        """Whether the samples themselves keep the promise."""
        return self.missed <= self.samples * self.allowed + _ROUNDING


def judge_live(
    lane: LaneSnapshot | None, *, objective: float, before: BreachRecord | None, now: datetime
) -> SloVerdict:
    """Return a lane's verdict now. `before` is the breach the verdict before this one found. None: no figures."""
    if lane is None:
        return SloVerdict(objective=objective)
    short, long = lane.window(SHORT_S), lane.window(LONG_S)
    lately = {each.target: each for each in _evidence(short, objective)}
    pairs = [(lately.get(each.target, _nothing(each)), each) for each in _evidence(long, objective)]
    over_at = {_name(each): now for each, _ in pairs if not each.is_within}
    if before:
        over_at = {**before.over_at, **over_at}
    known = before.names if before else ()
    findings = tuple(
        _live(a, b, goes_on=_name(b) in known and now - over_at.get(_name(b), now) < _QUIET) for a, b in pairs
    )
    verdict = _verdict(long, findings, objective)
    missed = tuple(finding.name for finding in verdict.having(Compliance.MISSED))
    if not missed:
        return verdict
    since = before.since if before else now
    breach = BreachRecord(since=since, names=missed, over_at={name: over_at.get(name, now) for name in missed})
    return replace(verdict, breach=breach, breach_s=max(0.0, (now - since).total_seconds()))


def judge_run(whole: LaneWindow, *, objective: float) -> SloVerdict:
    """Return the verdict on everything a run counted; `whole.seconds` is how long it was."""
    findings = tuple(_finding(each, _compliance(each, RUN_CONFIDENCE)) for each in _evidence(whole, objective))
    return _verdict(whole, findings, objective)


def _evidence(window: LaneWindow, objective: float) -> tuple[Evidence, ...]:
    share = Evidence(
        target=None,
        window_s=window.seconds,
        samples=window.judged,
        missed=window.missed,
        allowed=1.0 - objective,
        kinds={str(kind): count for kind, count in window.breached.items() if count},
    )
    targets = (
        Evidence(
            target=count.target,
            window_s=window.seconds,
            samples=count.samples,
            missed=count.over,
            allowed=1.0 - count.target.percentile,
            measured_s=count.measured_s,
        )
        for count in window.targets
    )
    return (share, *targets)


def _nothing(like: Evidence) -> Evidence:
    """Return the evidence of a short window in which nothing happened."""
    return Evidence(target=like.target, window_s=SHORT_S, samples=0, missed=0, allowed=like.allowed)


def _live(short: Evidence, long: Evidence, *, goes_on: bool) -> SloFinding:
    """Return the finding on one promise, over the window that decides it. `goes_on`: it was missed, and lately too."""
    now, lately = _compliance(short, LIVE_CONFIDENCE), _compliance(long, LIVE_CONFIDENCE)
    if now is Compliance.MISSED:
        return _finding(long if lately is Compliance.MISSED else short, Compliance.MISSED)
    if lately is Compliance.MISSED:
        # One stream that was hurt before and ends now begins no breach; two misses in the last seconds are news.
        is_missed = goes_on or (now is Compliance.UNDECIDED and short.missed > 1)
        return _finding(long, Compliance.MISSED) if is_missed else _finding(short, now)
    return _finding(long, lately)


def _compliance(evidence: Evidence, confidence: float) -> Compliance:
    if not evidence.samples:
        return Compliance.NONE
    if evidence.is_within:
        return Compliance.KEPT
    chance = chance_of_at_least(evidence.missed, evidence.samples, evidence.allowed)
    return Compliance.MISSED if chance <= 1.0 - confidence else Compliance.UNDECIDED


def _finding(evidence: Evidence, compliance: Compliance) -> SloFinding:
    kept_by_luck = chance_of_at_most(evidence.missed, evidence.samples, evidence.allowed)
    return SloFinding(
        target=evidence.target,
        compliance=compliance,
        is_sure=compliance is Compliance.MISSED or (evidence.samples > 0 and kept_by_luck <= 1.0 - RUN_CONFIDENCE),
        window_s=evidence.window_s,
        samples=evidence.samples,
        missed=evidence.missed,
        allowed=evidence.allowed,
        kinds=evidence.kinds,
        measured=_measured(evidence),
        factor=_factor(evidence),
    )


def _measured(evidence: Evidence) -> float | None:
    if not evidence.samples:
        return None
    if evidence.target is None:
        return 1.0 - evidence.missed / evidence.samples
    return evidence.measured_s


def _factor(evidence: Evidence) -> float:
    """Return how many times the limit was measured; of a promise without any budget, how many misses there were."""
    if not evidence.samples:
        return 0.0
    if evidence.target is not None:
        limit_s = evidence.target.limit_s
        return evidence.measured_s / limit_s if limit_s > 0 else float(evidence.missed)
    share = evidence.missed / evidence.samples
    return share / evidence.allowed if evidence.allowed > 0 else float(evidence.missed)


def _verdict(window: LaneWindow, findings: tuple[SloFinding, ...], objective: float) -> SloVerdict:
    return SloVerdict(
        compliance=_worst(findings),
        window_s=window.seconds,
        objective=objective,
        good=window.good,
        offered=window.judged,
        findings=findings,
    )


def _worst(findings: tuple[SloFinding, ...]) -> Compliance:
    """Return the gravest of them; the enum has them in this order."""
    return next((each for each in Compliance if any(f.compliance is each for f in findings)), Compliance.NONE)


def _name(evidence: Evidence) -> str:
    return evidence.target.name if evidence.target else "good requests"
