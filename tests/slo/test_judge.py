"""What the judge says of a lane, now and over a run."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.breach import RequestMeasurements
from fleetctl.core.slo.endings import COUNTED, MISSES, Counting, Ending
from fleetctl.core.slo.judge import judge_live, judge_run
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.core.slo.wording import explain
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.verdict import BreachRecord, Compliance, SloVerdict
from fleetctl.testing.samples import EPOCH

TTFT = LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.3)
MEDIAN = LatencyTarget(metric=Metric.TTFT, percentile=0.5, limit_s=0.1)
ITL = LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.05)
E2E = LatencyTarget(metric=Metric.E2E, percentile=0.95, limit_s=5.0)
SLO = LaneSlo(targets=(TTFT, ITL, E2E))


class Lane:
    """A lane's accounts on a clock of its own, and the verdicts on them."""

    def __init__(self, slo: LaneSlo = SLO, *, objective: float = 0.995) -> None:
        self.accounts = LaneAccounts(slo, now_s=0.0)
        self.objective = objective
        self.now_s = 0.0
        self.record: BreachRecord | None = None

    def request(self, *, ttft_s: float = 0.1, gap_s: float = 0.02, gaps: int = 20) -> None:
        watch = RequestStopwatch(self.accounts, self.now_s)
        watch.dispatched(self.now_s)
        at_s = self.now_s + ttft_s
        watch.tokens(at_s, 1)
        for _ in range(gaps):
            at_s += gap_s
            watch.tokens(at_s, 1)
        watch.stop(at_s, Ending.COMPLETE, is_stream=True, prompt_tokens=1, output_tokens_uncounted=0)

    def end(self, ending: Ending) -> None:
        watch = RequestStopwatch(self.accounts, self.now_s)
        watch.stop(self.now_s, ending, is_stream=True, prompt_tokens=0, output_tokens_uncounted=0)

    def snapshot(self) -> LaneSnapshot:
        windows = self.accounts.snapshot(self.now_s)
        return LaneSnapshot(name="chat", in_flight=0, queued=0, oldest_wait_s=0.0, windows=windows)

    def verdict(self) -> SloVerdict:
        now = EPOCH + timedelta(seconds=self.now_s)
        found = judge_live(self.snapshot(), objective=self.objective, before=self.record, now=now)
        self.record = found.record
        return found

    def run(self, seconds: float, *, every_s: float = 1.0, **request: float) -> list[Compliance]:
        """Send a request now and then; return the verdicts, one a second."""
        found = []
        end_s = self.now_s + seconds
        next_s = self.now_s
        while self.now_s < end_s:
            if self.now_s >= next_s and every_s > 0:
                self.request(**request)  # type: ignore[arg-type]  # by name
                next_s += every_s
            self.now_s += 0.5
            if self.now_s % 1.0 == 0.0:
                found.append(self.verdict().compliance)
        return found


def test_every_ending_has_its_line_in_the_table():
    assert set(COUNTED) == set(Ending)
    assert set(MISSES) == {ending for ending, counting in COUNTED.items() if counting is Counting.MISS}


def test_the_demos_short_lane_at_its_own_rate_is_in_breach_within_ten_seconds_when_every_request_is_late():
    lane = Lane()
    assert set(lane.run(120, every_s=1.4)) == {Compliance.KEPT}
    slow = lane.run(30, every_s=1.4, ttft_s=1.2)
    assert Compliance.MISSED in slow[:10]
    assert set(slow[10:]) == {Compliance.MISSED}
    assert "ttft P99" in explain(lane.verdict())
    assert "for 2" in explain(lane.verdict())


def test_a_recovered_lane_is_clear_within_a_minute_and_stays_so():
    lane = Lane()
    lane.run(60, every_s=0.5, ttft_s=1.2)
    after = lane.run(120, every_s=0.5)
    assert Compliance.MISSED not in after[45:]


def test_a_breach_does_not_come_and_go_with_the_last_streams_it_hurt():
    lane = Lane()
    lane.run(60, every_s=0.5)
    during = lane.run(10, every_s=0.5, ttft_s=1.2)
    during += lane.run(15, every_s=0.5)
    during += lane.run(1, every_s=0.5, gap_s=0.2)
    during += lane.run(10, every_s=0.5)
    assert Compliance.KEPT not in during[3:]


def test_a_last_stream_that_was_hurt_begins_no_breach_anew():
    lane = Lane()
    lane.run(60, every_s=0.5)
    lane.run(10, every_s=0.5, ttft_s=1.2)
    lane.run(30, every_s=0.5)
    lane.run(1, every_s=2.0, ttft_s=1.2)
    assert Compliance.MISSED not in lane.run(60, every_s=0.5)


def test_few_late_requests_of_many_are_forgotten_within_a_minute_too():
    lane = Lane()
    lane.run(60, every_s=0.5)
    lane.run(3, every_s=0.5, ttft_s=1.2)
    after = lane.run(80, every_s=0.5)
    assert Compliance.MISSED in after
    assert Compliance.MISSED not in after[45:]


def test_a_rare_lane_stays_in_breach_while_every_request_is_late():
    lane = Lane()
    lane.run(120, every_s=6.0)
    during = lane.run(90, every_s=6.0, ttft_s=1.2)
    assert Compliance.MISSED in during[:20]
    assert set(during[20:]) == {Compliance.MISSED}


def test_two_late_requests_of_a_hiccup_are_no_breach():
    lane = Lane()
    lane.run(60, every_s=2.0)
    lane.request(ttft_s=1.2)
    lane.request(ttft_s=1.2)
    assert Compliance.MISSED not in lane.run(60, every_s=2.0)


def test_a_breach_at_the_edge_of_certainty_does_not_come_and_go():
    lane = Lane(LaneSlo(targets=(TTFT,)))
    lane.run(60, every_s=0.5)
    during: list[Compliance] = []
    for _ in range(12):
        during += lane.run(1, every_s=0.5, ttft_s=1.2)
        during += lane.run(4, every_s=0.5)
    begun = during.index(Compliance.MISSED)
    assert set(during[begun:]) == {Compliance.MISSED}


def test_a_breach_that_ended_is_remembered_for_a_minute():
    lane = Lane()
    lane.run(30, every_s=0.5, ttft_s=1.2)
    lane.run(40, every_s=0.5)
    assert lane.verdict().breach is None
    assert lane.verdict().ended is not None
    lane.run(60, every_s=0.5)
    assert lane.verdict().ended is None


def test_load_that_ends_in_a_breach_leaves_it_for_a_minute_at_most():
    lane = Lane()
    lane.run(60, every_s=0.5, ttft_s=1.2)
    after = lane.run(90, every_s=0.0)
    assert Compliance.MISSED not in after[60:]


def test_a_breach_does_not_begin_after_the_load_has_ended():
    lane = Lane()
    lane.run(20, every_s=5.0, ttft_s=0.31)
    lane.record = None
    lane.now_s += 15.0
    assert lane.verdict().compliance is not Compliance.MISSED


def test_every_target_is_held_not_only_the_first():
    lane = Lane()
    lane.run(30, every_s=1.0, gap_s=0.11)
    verdict = lane.verdict()
    assert verdict.compliance is Compliance.MISSED
    assert "itl P99" in {finding.name for finding in verdict.having(Compliance.MISSED)}
    assert verdict.breach is not None
    assert "itl P99" in verdict.breach.names


def test_each_percentile_of_a_metric_is_held_by_itself():
    lane = Lane(LaneSlo(targets=(MEDIAN, TTFT)))
    lane.run(60, every_s=1.0, ttft_s=0.2)
    verdict = lane.verdict()
    assert verdict.attained == 1.0
    assert [finding.name for finding in verdict.having(Compliance.MISSED)] == ["ttft P50"]


@pytest.mark.parametrize("ending", [Ending.REFUSED, Ending.ERROR, Ending.TIMEOUT, Ending.INCOMPLETE])
def test_whoever_gets_no_answer_has_been_missed(ending):
    lane = Lane()
    lane.run(10)
    for _ in range(10):
        lane.end(ending)
    assert lane.verdict().compliance is Compliance.MISSED


@pytest.mark.parametrize("ending", [Ending.REJECTED, Ending.CANCELLED])
def test_what_was_the_clients_own_doing_counts_nowhere(ending):
    lane = Lane()
    lane.run(10)
    for _ in range(100):
        lane.end(ending)
    verdict = lane.verdict()
    assert verdict.compliance is Compliance.KEPT
    assert verdict.attained == 1.0


def test_a_request_that_never_ends_is_a_miss_as_soon_as_it_is_late_and_only_once():
    lane = Lane()
    watch = RequestStopwatch(lane.accounts, 0.0)
    watch.check(0.29, is_stream=True)
    assert lane.accounts.snapshot(0.29)[0].missed == 0
    for at_s in (0.31, 1.0, 5.0):
        watch.check(at_s, is_stream=True)
    watch.tokens(6.0, 1)
    watch.stop(6.0, Ending.ERROR, is_stream=True, prompt_tokens=0, output_tokens_uncounted=0)
    window = lane.accounts.snapshot(6.0)[0]
    assert (window.missed, window.good) == (1, 0)


def test_a_refusal_is_one_miss_however_late_it_comes():
    lane = Lane()
    watch = RequestStopwatch(lane.accounts, 0.0)
    watch.check(1.0, is_stream=True)
    watch.refused(2.0, "max-wait")
    window = lane.accounts.snapshot(2.0)[0]
    assert (window.missed, window.shed) == (1, {"max-wait": 1})


def counted(good: int, missed: int) -> LaneWindow:
    return LaneWindow(seconds=60.0, good=good, breached={"error": missed} if missed else {})


@pytest.mark.parametrize(
    ("good", "missed", "compliance"),
    [
        (0, 0, Compliance.NONE),
        (52, 0, Compliance.KEPT),
        (51, 1, Compliance.UNDECIDED),
        (108, 180, Compliance.MISSED),
        (815, 185, Compliance.MISSED),
        (995, 5, Compliance.KEPT),
        (0, 1, Compliance.MISSED),
    ],
)
def test_a_run_is_judged_by_the_share_of_good_among_offered(good, missed, compliance):
    assert judge_run(counted(good, missed), objective=0.995).compliance is compliance


@given(st.integers(0, 3000), st.integers(0, 3000), st.sampled_from([0.5, 0.9, 0.99, 0.995, 0.999, 1.0]))
def test_kept_and_attained_never_contradict_each_other(good, missed, objective):
    verdict = judge_run(counted(good, missed), objective=objective)
    attained = verdict.attained
    if verdict.compliance is Compliance.KEPT:
        assert attained is not None
        assert attained >= objective - 1e-9
    elif attained is not None:
        assert attained < objective


@given(
    st.integers(0, 50), st.integers(0, 200), st.integers(0, 50), st.integers(0, 200), st.sampled_from([None, 0, 1, 30])
)
def test_live_too_kept_stands_beside_the_figures_it_is_of(bad_10, good_10, bad_60, good_60, ended_s):
    short = msgspec.structs.replace(counted(good_10, bad_10), seconds=10.0)
    long = counted(good_10 + good_60, bad_10 + bad_60)
    lane = LaneSnapshot(name="chat", in_flight=0, queued=0, oldest_wait_s=0.0, windows=(short, long))
    before = None
    if ended_s is not None:
        ended_at = EPOCH - timedelta(seconds=ended_s)
        before = BreachRecord(since=EPOCH - timedelta(minutes=2), names=("good requests",), ended_at=ended_at)
    verdict = judge_live(lane, objective=0.99, before=before, now=EPOCH)
    if verdict.compliance is Compliance.KEPT:
        assert verdict.attained is not None
        assert verdict.attained >= 0.99 - 1e-9
    assert verdict.window_s == verdict.findings[0].window_s


@given(st.integers(0, 50), st.integers(0, 200), st.integers(0, 50), st.integers(0, 200), st.booleans())
def test_judging_the_same_figures_again_gives_the_same_verdict(bad_10, good_10, bad_60, good_60, was):
    short = msgspec.structs.replace(counted(good_10, bad_10), seconds=10.0)
    long = counted(good_10 + good_60, bad_10 + bad_60)
    lane = LaneSnapshot(name="chat", in_flight=0, queued=0, oldest_wait_s=0.0, windows=(short, long))
    before = BreachRecord(since=EPOCH, names=("good requests",)) if was else None
    once = judge_live(lane, objective=0.99, before=before, now=EPOCH)
    again = judge_live(lane, objective=0.99, before=once.record, now=EPOCH)
    assert once == again


def test_the_outcome_of_a_client_that_gave_up_late_is_a_miss():
    lane = Lane()
    lane.accounts.finished(
        1.0,
        RequestMeasurements(ending=Ending.CANCELLED, total_s=0.5),
        prompt_tokens=0,
        output_tokens=0,
        more_output_tokens=0,
    )
    assert lane.accounts.snapshot(1.0)[0].breached == {"ttft": 1}


def test_a_burn_rate_of_a_hundred_is_written_as_one():
    lane = Lane(objective=0.99)
    for _ in range(20):
        lane.end(Ending.REFUSED)
    assert "(burn 100x)" in explain(lane.verdict())
