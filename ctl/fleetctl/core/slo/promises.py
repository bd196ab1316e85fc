"""Whether tiers and kinds of workflows keep what is promised to them over a whole run; docs/slo.md has the rule.

`load` and `simulate` both judge by it, each as sure as it is of its lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl.core.slo.judge import Evidence, judge_evidence
from fleetctl.model.slo import BreachKind, LaneSlo, Metric, covered_refusals
from fleetctl.model.tiers import TierSpec
from fleetctl.model.verdict import Compliance, PromiseFinding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.slo.traffic import TrafficCounts
    from fleetctl.model.workflows import ElapsedTarget

GOOD_REQUESTS = "good requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPromises:
    """What tiers have of their own: an SLO in place of their lanes', for metrics that any lane promises."""

    tiers: Sequence[TierSpec]
    lanes: Sequence[LaneSlo]
    objective: float  # the share of good requests promised
    confidence: float  # 0-1; judge.COUNTS_ALONE: what was counted decides

    def judged(self, name: str, counts: TrafficCounts) -> tuple[PromiseFinding, ...]:
        """Return how the tier of this name kept its own: the share of good requests, then TTFT; nothing where it has none."""
        promised = {target.metric for lane in self.lanes for target in lane.targets}
        own = [each for tier in self.tiers if tier.name == name for each in tier.slo.targets if each.metric in promised]
        if not own:
            return ()
        decided = counts.offered - counts.undecided
        shed = next(each.slo.shed for each in self.tiers if each.name == name)
        covered = covered_refusals(counts.shed, allowance=shed * decided)
        good = counts.good + covered
        share = _judged(
            PromiseFinding(
                name=GOOD_REQUESTS,
                percentile=None,
                limit=self.objective,
                measured=good / decided if decided else None,
                samples=decided,
                missed=decided - good,
                covered=covered,
                refused=counts.shed - covered,
                shed=shed,
                undecided=counts.undecided,
                allowed=1.0 - self.objective,
            ),
            self.confidence,
        )
        ttft = counts.ttft
        return (
            share,
            *(
                _judged(
                    PromiseFinding(
                        name=target.name,
                        percentile=target.percentile,
                        limit=target.limit_s,
                        measured=ttft.quantile(target.percentile) if ttft.count else None,
                        samples=ttft.count,
                        missed=ttft.count - ttft.count_at_most(target.limit_s),
                        allowed=1.0 - target.percentile,
                    ),
                    self.confidence,
                )
                for target in own
                if target.metric is Metric.TTFT
            ),
        )


def judge_elapsed(  # what a kind's workflows came to against one promise
    target: ElapsedTarget, *, measured_s: float | None, samples: int, missed: int, undecided: int, confidence: float
) -> PromiseFinding:
    """Return how workflows kept a promise of their elapsed time; those that failed are among the missed."""
    found = PromiseFinding(
        name=target.name,
        percentile=target.percentile,
        limit=target.limit_s,
        measured=measured_s,
        samples=samples,
        missed=missed,
        undecided=undecided,
        allowed=1.0 - target.percentile,
    )
    return _judged(found, confidence)


def over_runs(runs: Sequence[Sequence[PromiseFinding]], confidence: float) -> tuple[PromiseFinding, ...]:
    """Return the same promises over several runs: counts are summed up, what was measured is the mean."""
    return tuple(_summed(same, confidence) for same in zip(*filter(None, runs), strict=True))


def compliance_of(findings: Iterable[PromiseFinding]) -> Compliance:
    """Return the gravest of them; the enum has them in this order."""
    found = {each.compliance for each in findings}
    return next((each for each in Compliance if each in found), Compliance.NONE)


def _summed(same: Sequence[PromiseFinding], confidence: float) -> PromiseFinding:
    measured = [each.measured for each in same if each.measured is not None]
    samples, missed = sum(each.samples for each in same), sum(each.missed for each in same)
    is_share = same[0].percentile is None
    whole = PromiseFinding(
        name=same[0].name,
        percentile=same[0].percentile,
        limit=same[0].limit,
        measured=1.0 - missed / samples if is_share and samples else fmean(measured) if measured else None,
        samples=samples,
        missed=missed,
        covered=sum(each.covered for each in same),
        refused=sum(each.refused for each in same),
        shed=same[0].shed,
        undecided=sum(each.undecided for each in same),
        allowed=same[0].allowed,
    )
    return _judged(whole, confidence)


def _judged(found: PromiseFinding, confidence: float) -> PromiseFinding:
    evidence = Evidence(
        target=None,
        window_s=0.0,
        samples=found.samples + found.undecided,
        missed=found.missed,
        allowed=found.allowed,
        covered=found.covered,
        shed=found.shed,
        undecided=found.undecided,
        kinds={BreachKind.REFUSED: found.refused},
    )
    judged = judge_evidence(evidence, confidence)
    return replace(found, compliance=judged.compliance, is_sure=judged.is_sure)
