"""The one judge of whether a lane keeps its SLO: live for status and decisions, over a whole run for load and demo.

Every target is held at its own percentile, and the share of good among offered requests against the objective. A
promise is missed when the figures would be next to impossible if it were kept (the exact binomial test), so that a
handful of samples suffices where all of them are late, and one late request of fifty condemns nobody.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl.core.slo.binomial import chance_if_kept, chance_of_at_least, chance_of_at_most
from fleetctl.model.slo import BreachKind, LatencyTarget
from fleetctl.model.verdict import BreachRecord, Compliance, SloFinding, SloVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fleetctl.model.gateway import LaneSnapshot, LaneWindow
    from fleetctl.model.rollout import RequestCounts

# A live verdict is looked at every second, over windows that hold ever new samples: a lane that is just at its limit would be
# in breach by chance 30 to 90 times a day at 99.9 %, 4 to 12 times at 99.99 %, three times or less at this (simulated days of 0.2
# to 100 rps, limits of 1 % and 5 %; tests/bench/false_breaches.py).
LIVE_CONFIDENCE = 0.99999
RUN_CONFIDENCE = 0.95  # a finished run is judged once
COUNTS_ALONE = 0.0  # what was counted is all there is, as in a simulation: more missed than may be is a miss
# The long window gathers evidence, the short one shows a breach at once and that it goes on (multiwindow alerts: the Site
# Reliability Workbook, chapter 5).
SHORT_S = 10.0
LONG_S = 60.0
# A breach ends when the short window has been inside the promise for so long. At once would be too soon: streams that
# were hurt end, and count, many seconds after their cause has gone, and the breach would come back with each.
_QUIET = timedelta(seconds=15)
_GRAVEST = tuple(Compliance)
_ROUNDING = 1e-9  # 1 - 0.99 is a little more than 0.01 in binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a window holds on one promise."""

    target: LatencyTarget | None  # None: the share of good requests
    window_s: float
    samples: int
    missed: int
    allowed: float
    covered: int = 0  # refusals that are good, as the shed allowance covers them
    shed: float = 0.0  # that allowance
    undecided: int = 0
    measured_s: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def is_within(self) -> bool:
        """Whether the samples themselves keep the promise, whatever the undecided would have come to."""
        return self.missed + self.undecided <= self.samples * self.allowed + _ROUNDING

    @property
    def chance(self) -> float:
        """Return how likely so many misses are where the promise is kept."""
        return chance_if_kept(
            self.missed,
            refused=self.kinds.get(BreachKind.REFUSED, 0),
            covered=self.covered,
            samples=self.samples,
            allowed=self.allowed,
            shed=self.shed,
        )


def judge_live(
    lane: LaneSnapshot | None, *, objective: float, before: BreachRecord | None, now: datetime
) -> SloVerdict:
    """Return a lane's verdict now. `before` is the breach the verdict before this one found. None: no figures."""
    if lane is None:
        return SloVerdict(objective=objective)
    short, long = lane.window(SHORT_S), lane.window(LONG_S)
    lately = {each.target: each for each in _evidence(short, objective)}
    pairs = [(lately.get(each.target, _nothing(each)), each) for each in _evidence(long, objective)]
    quiet_since = {_name(b): _quiet_since(a, _name(b), before, now) for a, b in pairs}
    findings = tuple(
        _live(a, b, goes_on=_goes_on(_name(b), before, quiet_since[_name(b)], now), is_after=before is not None)
        for a, b in pairs
    )
    verdict = _verdict(findings, objective)
    missed = tuple(finding.name for finding in verdict.having(Compliance.MISSED))
    if not missed:
        ended = _ended(before, now)
        return verdict if ended is None else replace(verdict, ended=ended)
    since = before.since if before and before.ended_at is None else now
    quiet = {name: at for name in missed if (at := quiet_since[name]) is not None}
    breach = BreachRecord(since=since, names=missed, quiet_since=quiet)
    return replace(verdict, breach=breach, breach_s=max(0.0, (now - since).total_seconds()))


def _quiet_since(short: Evidence, name: str, before: BreachRecord | None, now: datetime) -> datetime | None:
    """Return since when the short window has been inside the promise; seconds without any sample show nothing."""
    if not short.is_within:
        return None
    known = before.quiet_since.get(name) if before else None
    return known or (now if short.samples else None)


def _goes_on(name: str, before: BreachRecord | None, quiet_since: datetime | None, now: datetime) -> bool:
    if before is None or before.ended_at is not None or name not in before.names:
        return False
    return quiet_since is None or now - quiet_since < _QUIET


def _ended(before: BreachRecord | None, now: datetime) -> BreachRecord | None:
    """Return the breach that has ended, as long as the long window may hold what it left."""
    if before is None:
        return None
    ended = before if before.ended_at is not None else replace(before, ended_at=now)
    return ended if now - (ended.ended_at or now) < timedelta(seconds=LONG_S) else None


def judge_run(
    whole: LaneWindow, *, objective: float, undecided: int = 0, confidence: float = RUN_CONFIDENCE
) -> SloVerdict:
    """Return the verdict on everything a run counted; `whole.seconds` is how long it was.

    `undecided` requests were cut short before they were good or missed: the promise is kept if it is with all of them
    missed, and missed if it is with all of them good.
    """
    share, *targets = _evidence(whole, objective)
    share = replace(share, samples=share.samples + undecided, undecided=undecided)
    findings = tuple(_finding(each, _compliance(each, confidence)) for each in (share, *targets))
    return _verdict(findings, objective)


def judge_runs(runs: Sequence[SloVerdict], *, confidence: float) -> SloVerdict:
    """Return the verdict on several runs of one lane: counts are summed up, what was measured is the mean of the runs."""
    findings = (_over_runs(same) for same in zip(*(run.findings for run in runs), strict=True))
    return _verdict(tuple(_finding(each, _compliance(each, confidence)) for each in findings), runs[0].objective)


def _over_runs(same: Sequence[SloFinding]) -> Evidence:
    measured = [each.measured for each in same if each.measured is not None]
    kinds: Counter[str] = Counter()
    for each in same:
        kinds.update(each.kinds)
    return Evidence(
        target=same[0].target,
        window_s=fmean(each.window_s for each in same),
        samples=sum(each.samples for each in same),
        missed=sum(each.missed for each in same),
        allowed=same[0].allowed,
        covered=sum(each.covered for each in same),
        shed=same[0].shed,
        undecided=sum(each.undecided for each in same),
        measured_s=fmean(measured) if measured else 0.0,
        kinds=dict(kinds),
    )


def judge_counts(counted: RequestCounts, *, objective: float, seconds: float, confidence: float) -> SloFinding:
    """Return the finding on the share of good among the requests of some replicas; one that they failed was not good."""
    kinds = counted.breached | ({"failed": counted.failures} if counted.failures else {})
    evidence = Evidence(
        target=None,
        window_s=seconds,
        samples=counted.judged,
        missed=counted.missed,
        allowed=1.0 - objective,
        kinds=dict(kinds),
    )
    return _finding(evidence, _compliance(evidence, confidence))


def is_worse(new: RequestCounts, old: RequestCounts, *, objective: float, confidence: float) -> bool:
    """Whether some replicas miss more than is promised, and than others did at the same time, beyond chance."""
    if not new.missed:
        return False
    allowed = max(1.0 - objective, old.missed / old.judged if old.judged else 0.0)
    return chance_of_at_least(new.missed, new.judged, allowed) <= 1.0 - confidence


def _evidence(window: LaneWindow, objective: float) -> tuple[Evidence, ...]:
    share = Evidence(
        target=None,
        window_s=window.seconds,
        samples=window.judged,
        missed=window.missed,
        allowed=1.0 - objective,
        covered=window.covered,
        shed=window.shed_share,
        kinds={str(kind): count for kind, count in window.missed_by_kind.items() if count},
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


def _live(short: Evidence, long: Evidence, *, goes_on: bool, is_after: bool) -> SloFinding:
    """Return the finding on one promise, over the window that decides it.

    `goes_on`: it was missed, and is not shown to be kept yet; `is_after`: what a breach left may be in the long window.
    """
    now, lately = _compliance(short, LIVE_CONFIDENCE), _compliance(long, LIVE_CONFIDENCE)
    is_over = not (short.is_within and long.is_within)
    if now is Compliance.MISSED or (goes_on and is_over):
        return _finding(_shown(short, long), Compliance.MISSED)
    if lately is Compliance.MISSED:
        # One stream that was hurt in a breach and ends after it begins none; two misses in the last seconds are news.
        is_news = not short.is_within and short.missed > (1 if is_after else 0)
        return _finding(long, Compliance.MISSED) if is_news else _finding(short, now)
    return _finding(long, lately)


def _shown(short: Evidence, long: Evidence) -> Evidence:
    """Return the window in which a breach is seen: the long one, unless it does not show it (yet, or any more)."""
    if _compliance(long, LIVE_CONFIDENCE) is Compliance.MISSED or short.is_within:
        return long
    return short


def judge_evidence(evidence: Evidence, confidence: float) -> SloFinding:
    """Return the finding on one promise of a run that is over."""
    return _finding(evidence, _compliance(evidence, confidence))


def _compliance(evidence: Evidence, confidence: float) -> Compliance:
    if not evidence.samples:
        return Compliance.NONE
    if evidence.is_within:
        return Compliance.KEPT
    if evidence.missed <= evidence.samples * evidence.allowed + _ROUNDING:
        return Compliance.UNDECIDED  # by those that were cut short alone
    return Compliance.MISSED if evidence.chance <= 1.0 - confidence else Compliance.UNDECIDED


def _finding(evidence: Evidence, compliance: Compliance) -> SloFinding:
    kept_by_luck = chance_of_at_most(evidence.missed + evidence.undecided, evidence.samples, evidence.allowed)
    return SloFinding(
        target=evidence.target,
        compliance=compliance,
        is_sure=compliance is Compliance.MISSED or (evidence.samples > 0 and kept_by_luck <= 1.0 - RUN_CONFIDENCE),
        window_s=evidence.window_s,
        samples=evidence.samples,
        missed=evidence.missed,
        undecided=evidence.undecided,
        allowed=evidence.allowed,
        covered=evidence.covered,
        shed=evidence.shed,
        kinds=evidence.kinds,
        measured=_measured(evidence),
        factor=_factor(evidence),
    )


def _measured(evidence: Evidence) -> float | None:
    if not evidence.samples:
        return None
    if evidence.target is None:
        return 1.0 - (evidence.missed + evidence.undecided) / evidence.samples
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


def _verdict(findings: tuple[SloFinding, ...], objective: float) -> SloVerdict:
    # Of the window that decides on the share: after a breach that is the short one, while the long one still holds it.
    share = findings[0]
    return SloVerdict(
        compliance=_worst(findings),
        window_s=share.window_s,
        objective=objective,
        good=share.samples - share.missed - share.undecided,
        offered=share.samples,
        undecided=share.undecided,
        findings=findings,
    )


def _worst(findings: tuple[SloFinding, ...]) -> Compliance:
    """Return the gravest of them; the enum has them in this order."""
    found = {finding.compliance for finding in findings}
    return next((each for each in _GRAVEST if each in found), Compliance.NONE)


def _name(evidence: Evidence) -> str:
    return evidence.target.name if evidence.target else "good requests"
