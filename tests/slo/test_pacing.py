"""When chunks of a coalesced answer leave: full, or in time, and after a burst one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.pacing import HELD_S_MAX, ChunkPace

TOKENS, WITHIN_S = 4, 0.06


def leaves(
    arrivals: list[tuple[float, int]], *, tokens: int = TOKENS, within_s: float = WITHIN_S
) -> list[tuple[float, int, float]]:
    """Return when each chunk leaves, with how many tokens, and how long its first one was held; the first leaves at once."""
    pace = ChunkPace(tokens=tokens, within_s=within_s)
    held: list[float] = []
    left: list[tuple[float, int, float]] = []

    def send(now_s: float) -> None:
        pace.left(now_s)
        left.append((now_s, len(held[:tokens]), now_s - held[0]))
        del held[:tokens]

    def send_until(end_s: float) -> None:
        while held and (due_s := pace.due_s(len(held), held[0])) <= end_s:
            send(max(due_s, held[0]))

    for at_s, count in arrivals:
        send_until(at_s)
        pace.came(at_s, count)
        held += [at_s] * count
        if not left:
            send(at_s)
        send_until(at_s)
    send_until(1e9)
    return left


def gaps(left: list[tuple[float, int, float]]) -> list[float]:
    return [after[0] - before[0] for before, after in pairwise(left)]


def test_an_even_stream_leaves_in_full_chunks_as_soon_as_they_are_full() -> None:
    left = leaves([(0.01 * number, 1) for number in range(401)])
    assert {count for _, count, _ in left[1:]} == {TOKENS}
    assert max(held_s for *_, held_s in left) <= 2 * WITHIN_S  # until its pace is known
    assert max(held_s for *_, held_s in left[10:]) <= 0.04
    assert max(gaps(left)[10:]) <= 0.05


def test_a_slow_stream_waits_no_longer_than_it_may() -> None:
    left = leaves([(0.1 * number, 1) for number in range(50)])
    assert {count for _, count, _ in left} == {1}
    assert max(held_s for *_, held_s in left) <= WITHIN_S + 1e-9


def test_a_burst_leaves_in_chunks_so_far_apart() -> None:
    left = leaves([(float(second), 32) for second in range(10)])
    assert len(left) == 10 * 32 / TOKENS
    assert sorted(gaps(left))[-9:] == pytest.approx([1.0 - 7 * WITHIN_S] * 9)
    assert min(gaps(left)) >= 0.9 * WITHIN_S


@given(
    st.lists(st.tuples(st.floats(0.0, 0.5), st.integers(1, 64)), min_size=1, max_size=60),
    st.integers(2, 32),
    st.floats(0.005, 1.0),
)
def test_every_token_leaves_once_in_order_and_none_is_held_for_long(
    gaps_and_counts: list[tuple[float, int]], tokens: int, within_s: float
) -> None:
    now_s, arrivals = 0.0, []
    for gap_s, count in gaps_and_counts:
        now_s += gap_s
        arrivals.append((now_s, count))
    left = leaves(arrivals, tokens=tokens, within_s=within_s)
    assert sum(count for _, count, _ in left) == sum(count for _, count in arrivals)
    assert [at for at, *_ in left] == sorted(at for at, *_ in left)
    assert left[0][0] == arrivals[0][0]
    last_s = arrivals[-1][0]
    piled_up = sum(count for at, count, _ in left if at > last_s)
    # What is left when nothing more comes drains at its own pace, faster the more there is.
    assert left[-1][0] <= last_s + within_s * (piled_up / tokens + 2) + HELD_S_MAX


@given(st.floats(0.001, 0.05), st.integers(2, 16))
def test_a_fast_even_stream_is_never_slowed_down(gap_s: float, tokens: int) -> None:
    left = leaves([(gap_s * number, 1) for number in range(2000)], tokens=tokens, within_s=0.2)
    lagging_s = [at - gap_s * (sum(c for _, c, _ in left[: index + 1]) - 1) for index, (at, *_) in enumerate(left)]
    assert max(lagging_s[-10:]) <= max(0.2, tokens * gap_s) + 0.05
