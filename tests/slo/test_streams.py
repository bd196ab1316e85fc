"""How evenly answers stream: chunks, gaps between them, stalls; the same rules at the gateway and at the client."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import judge_run
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.core.slo.streams import STALL_S, STALL_S_MIN, replica_figures, stall_limit_s
from fleetctl.core.slo.wording import describe
from fleetctl.model.slo import BreachKind, LaneSlo, LatencyTarget, Metric
from fleetctl.model.stream import StreamFigures
from fleetctl.model.verdict import Compliance

NOTHING_PROMISED = LaneSlo(targets=())


def stream(
    accounts: LaneAccounts,
    chunks: list[tuple[float, int]],
    *,
    begins_s: float = 0.0,
    replica: str = "r1",
    ending: Ending = Ending.COMPLETE,
    uncounted: int = 0,
    ends_s: float | None = None,
) -> float:
    """Stream chunks of (gap before it, tokens); return when it ended."""
    watch, now_s = RequestStopwatch(accounts, begins_s), begins_s
    watch.dispatched(now_s, replica)
    for gap_s, tokens in chunks:
        now_s += gap_s
        watch.tokens(now_s, tokens)
    now_s = now_s if ends_s is None else ends_s
    watch.stop(now_s, ending, is_stream=True, prompt_tokens=5, output_tokens_uncounted=uncounted)
    return now_s


def figures(accounts: LaneAccounts, now_s: float) -> StreamFigures:
    return next(window for window in accounts.snapshot(now_s) if window.seconds == 60.0).streams


@pytest.mark.parametrize(
    ("median_s", "limit_s"),
    [(None, STALL_S), (0.002, STALL_S_MIN), (0.01, 0.1), (0.03, 0.3), (0.05, 0.5), (1.0, STALL_S)],
)
def test_a_stall_is_ten_medians_between_a_tenth_and_half_a_second(median_s: float | None, limit_s: float) -> None:
    assert stall_limit_s(median_s) == pytest.approx(limit_s)


def test_tokens_that_leave_together_are_one_chunk_and_have_no_gap() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    now_s = stream(accounts, [(0.1, 3), (0.2, 4), (0.3, 1)])
    found = figures(accounts, now_s)
    assert (found.chunks, found.tokens, found.answers) == (3, 8, 1)
    assert found.tokens_per_chunk == pytest.approx(8 / 3)
    assert found.gap.count == 2
    assert found.gap.max_s == pytest.approx(0.3)
    assert found.gap.p50_s == pytest.approx(0.2, rel=0.01)
    window = accounts.snapshot(now_s)[0]
    assert window.itl.count == 7  # the gaps between tokens have those of zero beside them


def test_tokens_are_the_engines_own_count_where_it_counts() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    now_s = stream(accounts, [(0.1, 1), (0.1, 1)], uncounted=6)
    assert figures(accounts, now_s).tokens_per_chunk == pytest.approx(4.0)


def test_half_a_second_is_a_stall_before_the_lanes_pace_is_known() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    now_s = stream(accounts, [(0.1, 1), (0.49, 1), (0.6, 1), (0.7, 1)])
    now_s = stream(accounts, [(0.1, 1), (0.49, 1)], begins_s=now_s)
    found = figures(accounts, now_s)
    assert (found.answers, found.stalled_answers, found.stalls) == (2, 1, 2)
    assert found.stall_rate == pytest.approx(0.5)


def test_ten_times_the_lanes_median_is_a_stall_once_its_pace_is_known() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    now_s = stream(accounts, [(0.02, 1)] * 300)
    accounts.fold(now_s)
    assert accounts.stall_limit_s == pytest.approx(0.2, rel=0.02)
    now_s = stream(accounts, [(0.02, 1), (0.19, 1), (0.21, 1)], begins_s=now_s)
    assert figures(accounts, now_s).stalls == 1


def test_a_silence_that_the_client_or_a_failure_ends_was_a_stall() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    stream(accounts, [(0.1, 1), (0.1, 1)], ending=Ending.CANCELLED, ends_s=3.0)
    stream(accounts, [(0.1, 1), (0.1, 1)], ending=Ending.CANCELLED, ends_s=0.3)
    found = figures(accounts, 3.0)
    assert (found.answers, found.stalled_answers) == (2, 1)
    assert (found.chunks, found.tokens_per_chunk) == (0, None)  # nobody said how many tokens those were


def test_a_client_that_does_not_read_has_no_stall() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    watch = RequestStopwatch(accounts, 0.0)
    watch.dispatched(0.0, "r1")
    watch.tokens(0.1, 1)
    watch.resumed(4.9)
    watch.tokens(5.0, 1)
    watch.tokens(6.0, 1)
    assert watch.stalls == 1  # the second gap is ours again


def test_an_answer_of_which_no_token_came_is_no_stream() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    now_s = stream(accounts, [], ending=Ending.ERROR, ends_s=9.0)
    assert figures(accounts, now_s) == StreamFigures()


def test_each_replica_has_figures_of_its_own_for_half_a_minute_or_one() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    stream(accounts, [(0.01, 1)] * 50, replica="even")
    stream(accounts, [(0.01, 4), (0.9, 4)], replica="bursts")
    accounts.fold(1.0)
    found = replica_figures(accounts.streams, 1.0)
    assert found["even"].stalled_answers == 0
    assert found["bursts"].stalled_answers == 1
    assert found["bursts"].tokens_per_chunk == pytest.approx(4.0)
    assert found["bursts"].gap.p99_s == pytest.approx(0.9, rel=0.01)
    assert replica_figures(accounts.streams, 29.0).keys() == {"even", "bursts"}
    assert replica_figures(accounts.streams, 95.0) == {}
    assert accounts.streams["bursts"].total().chunks == 2  # counters go on


def test_a_replica_that_has_gone_is_forgotten() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    stream(accounts, [(0.01, 1)] * 3)
    accounts.fold(800.0)
    assert "r1" in accounts.streams
    accounts.fold(1900.0)
    assert set(accounts.streams) == {""}


@given(
    st.lists(
        st.lists(st.tuples(st.floats(0.002, 2.0), st.integers(1, 9)), min_size=1, max_size=20), min_size=1, max_size=8
    )
)
def test_the_lane_is_the_sum_of_its_answers(answers: list[list[tuple[float, int]]]) -> None:
    accounts, now_s = LaneAccounts(NOTHING_PROMISED, now_s=0.0), 0.0
    for chunks in answers:
        now_s = stream(accounts, chunks, begins_s=now_s)
        accounts.fold(now_s)
    whole = accounts.windows.lifetime()
    assert whole.stream_gaps().count == sum(len(chunks) - 1 for chunks in answers)
    assert whole.streams.chunks == sum(map(len, answers))
    assert whole.streams.tokens == sum(tokens for chunks in answers for _, tokens in chunks) == whole.output_tokens
    assert whole.streams.answers == len(answers)
    assert whole.streams.stalled_answers <= whole.streams.stalls <= whole.stream_gaps().count


def test_windows_forget_streams_as_they_forget_the_rest() -> None:
    accounts = LaneAccounts(NOTHING_PROMISED, now_s=0.0)
    stream(accounts, [(0.1, 2), (0.1, 2)])
    later_s = stream(accounts, [(0.1, 1), (0.7, 1)], begins_s=30.0)
    ten, minute = accounts.snapshot(later_s)[:2]
    assert (ten.streams.answers, minute.streams.answers) == (1, 2)
    gone = accounts.snapshot(later_s + 75.0)[1]
    assert gone.streams == StreamFigures()


GAP = LatencyTarget(metric=Metric.STREAM_GAP, percentile=0.9, limit_s=0.2)
STALLS = LatencyTarget(metric=Metric.STALL_RATE, percentile=0.99, limit_s=0.01)
UNIT = LatencyTarget(metric=Metric.TOKENS_PER_CHUNK, percentile=0.95, limit_s=4.0)


@pytest.mark.parametrize(
    ("target", "chunks", "ending", "kind"),
    [
        (GAP, [(0.1, 1)] * 10 + [(0.3, 1)], Ending.COMPLETE, None),  # one of ten may
        (GAP, [(0.1, 1)] * 9 + [(0.3, 1)] * 2, Ending.COMPLETE, BreachKind.STREAM_GAP),
        (GAP, [(0.3, 9)], Ending.COMPLETE, None),  # the first chunk has no gap
        (STALLS, [(0.1, 1)] * 200 + [(0.6, 1)], Ending.COMPLETE, BreachKind.STALL),
        (STALLS, [(0.6, 1)] + [(0.1, 1)] * 200, Ending.COMPLETE, None),
        (STALLS, [(0.1, 1), (0.6, 1)], Ending.CANCELLED, BreachKind.STALL),
        (UNIT, [(0.1, 4), (0.1, 4)], Ending.COMPLETE, None),
        (UNIT, [(0.1, 1), (0.1, 8)], Ending.COMPLETE, BreachKind.TOKENS_PER_CHUNK),
        (UNIT, [(0.1, 1), (0.1, 8)], Ending.CANCELLED, None),
    ],
)
def test_an_answer_misses_where_it_streams_worse_than_promised(
    target: LatencyTarget, chunks: list[tuple[float, int]], ending: Ending, kind: BreachKind | None
) -> None:
    accounts = LaneAccounts(LaneSlo(targets=(target,)), now_s=0.0)
    stream(accounts, chunks, ending=ending)
    assert accounts.totals().kinds == ({kind.value: 1} if kind else {})


def test_each_promise_on_streams_is_judged_over_what_it_is_of() -> None:
    accounts, now_s = LaneAccounts(LaneSlo(targets=(GAP, STALLS, UNIT)), now_s=0.0), 0.0
    for number in range(100):
        ended_s = stream(accounts, [(0.1, 2)] * 20 + ([(0.6, 2)] if number < 30 else []), begins_s=0.01 * number)
        now_s = max(now_s, ended_s)
    verdict = judge_run(accounts.snapshot(now_s)[1], objective=0.5)
    gap, stalls, unit = verdict.findings[1:]
    assert [each.compliance for each in (gap, stalls, unit)] == [Compliance.KEPT, Compliance.MISSED, Compliance.KEPT]
    assert (gap.samples, gap.missed) == (100 * 19 + 30, 30)
    assert (stalls.samples, stalls.missed, stalls.measured) == (100, 30, 0.3)
    assert stalls.factor == pytest.approx(30.0)
    assert (unit.samples, unit.missed) == (100, 0)
    assert unit.measured == pytest.approx(2.0, rel=0.01)
    assert describe(stalls) == "stall_rate 30% > 1% (30x) over 60s"
    assert describe(unit) == "tokens_per_chunk P95 2.0 tokens <= 4 tokens (0.5x) over 60s"
