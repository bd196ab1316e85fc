"""Promises of tiers and kinds of workflows: what counts, how sure a miss has to be, and what several runs come to."""

from __future__ import annotations

import pytest

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import COUNTS_ALONE, RUN_CONFIDENCE
from fleetctl.core.slo.promises import TierPromises, compliance_of, judge_elapsed, over_runs
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.core.slo.traffic import TrafficCounts
from fleetctl.core.slo.wording import describe_promise
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Validity
from fleetctl.model.tiers import TierSpec
from fleetctl.model.verdict import Compliance, PromiseFinding
from fleetctl.model.workflows import ElapsedTarget

TTFT = LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=1.0)
E2E = LatencyTarget(metric=Metric.E2E, percentile=0.99, limit_s=1.0)
ELAPSED = ElapsedTarget(percentile=0.99, limit_s=1.0)
ACCOUNTS = LaneAccounts(LaneSlo(targets=(TTFT,)), now_s=0.0)


def counted(*, good: int, late: int = 0, left: int = 0) -> TrafficCounts:
    counts = TrafficCounts()
    for ttft_s, ending in (
        [(0.1, Ending.COMPLETE)] * good + [(2.0, Ending.COMPLETE)] * late + [(0.1, Ending.CANCELLED)] * left
    ):
        watch = RequestStopwatch(ACCOUNTS, 0.0)
        watch.tokens(ttft_s, 1)
        watch.stop(ttft_s, ending, is_stream=True, prompt_tokens=0, output_tokens_uncounted=0)
        counts.add(watch, refusal="", served_tokens=0)
    return counts


def promises(slo: tuple[LatencyTarget, ...], confidence: float = COUNTS_ALONE) -> TierPromises:
    lanes = (LaneSlo(targets=(TTFT,)), LaneSlo(targets=()))
    tiers = (TierSpec(name="gold", slo=LaneSlo(targets=slo)), TierSpec(name="tin"))
    return TierPromises(tiers=tiers, lanes=lanes, objective=0.99, confidence=confidence)


def elapsed(samples: int, missed: int, undecided: int = 0, confidence: float = COUNTS_ALONE) -> PromiseFinding:
    return judge_elapsed(
        ELAPSED, measured_s=1.4, samples=samples, missed=missed, undecided=undecided, confidence=confidence
    )


def test_a_tier_is_held_to_an_slo_of_its_own_where_any_lane_promises_that_metric():
    counts = counted(good=10)
    assert [each.name for each in promises((TTFT,)).judged("gold", counts)] == ["good requests", "ttft P99"]
    assert promises((E2E,)).judged("gold", counts) == (), "no lane promises it, so it stands in place of nothing"
    assert promises((TTFT,)).judged("tin", counts) == ()
    assert promises((TTFT,)).judged("", counts) == ()


@pytest.mark.parametrize(
    ("good", "late", "left", "compliance"),
    [
        (199, 1, 0, Compliance.KEPT),
        (97, 3, 0, Compliance.MISSED),
        (10, 0, 5, Compliance.UNDECIDED),
        (0, 0, 0, Compliance.NONE),
    ],
)
def test_the_share_of_a_tiers_good_requests_is_of_those_decided(good, late, left, compliance):
    share, tail = promises((TTFT,)).judged("gold", counted(good=good, late=late, left=left))
    assert (share.samples, share.missed, share.undecided) == (good + late, late, left)
    assert share.measured == (good / (good + late) if good + late else None)
    assert share.compliance is compliance
    assert (tail.samples, tail.missed) == (good + late + left, late)


@pytest.mark.parametrize(
    ("samples", "missed", "undecided", "certain", "counts_alone"),
    [
        (8, 8, 0, Compliance.MISSED, Compliance.MISSED),
        (50, 1, 0, Compliance.UNDECIDED, Compliance.MISSED),
        (100, 1, 0, Compliance.KEPT, Compliance.KEPT),
        (90, 0, 10, Compliance.UNDECIDED, Compliance.UNDECIDED),
        (0, 0, 0, Compliance.NONE, Compliance.NONE),
    ],
)
def test_a_load_must_be_sure_of_a_miss_and_a_simulation_goes_by_its_counts(
    samples, missed, undecided, certain, counts_alone
):
    for confidence, compliance in ((RUN_CONFIDENCE, certain), (COUNTS_ALONE, counts_alone)):
        assert elapsed(samples, missed, undecided, confidence).compliance is compliance


def test_a_tail_of_few_is_marked():
    assert describe_promise(elapsed(8, 8)) == "elapsed P99 ~1.4s of 1s (8 of 8 late or failed)"
    assert describe_promise(elapsed(100, 8, 2)) == "elapsed P99 1.4s of 1s (8 of 100 late or failed, 2 unfinished)"
    assert (elapsed(8, 8).validity, elapsed(100, 8).validity) == (Validity.FEW, Validity.OK)


def test_runs_are_judged_by_their_counts_together():
    one, two = (elapsed(100, 0),), (elapsed(100, 3),)
    assert [compliance_of(each) for each in (one, two)] == [Compliance.KEPT, Compliance.MISSED]
    (both,) = over_runs([one, two, ()], COUNTS_ALONE)
    assert (both.samples, both.missed, both.compliance) == (200, 3, Compliance.MISSED)
    (kept,) = over_runs([one, one, two], COUNTS_ALONE)
    assert (kept.samples, kept.missed, kept.compliance) == (300, 3, Compliance.KEPT)
    assert over_runs([(), ()], COUNTS_ALONE) == ()
