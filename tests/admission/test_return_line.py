"""Refused clients come back when there is room for them, not all together."""

from __future__ import annotations

import heapq
import math
import random
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.admission.drain_rate import Departures, ServiceTime, predicted_wait_s
from fleetctl.core.admission.return_line import RETURN_S_MAX, RETURN_S_MIN, ReturnLine

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 120
SLOTS, SERVICE_S = 8, 0.5
RATE_RPS = SLOTS / SERVICE_S


class ObedientBurst:
    """A lane of eight slots and a burst of clients that come back exactly when they are told."""

    def __init__(self, *, max_wait_s: float, in_whole_seconds: bool, seed: int, is_exponential: bool = True) -> None:
        self.rng = random.Random(seed)
        self.now_s, self.done_s = 0.0, 0.0
        self.returns: list[int] = []  # how often each client had come back when it was let in
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._line, self._service, self._departures = ReturnLine(), ServiceTime(), Departures()
        self._service.finished(SERVICE_S)
        self._queue: list[int] = []
        self._busy = 0
        self._max_wait_s, self._in_whole_seconds, self._is_exponential = max_wait_s, in_whole_seconds, is_exponential
        for client in range(BURST):
            self._at(0.0, partial(self._arrive, client, 0))
        while self._heap:
            self.now_s, _, call = heapq.heappop(self._heap)
            call()

    def _at(self, at_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at_s, next(self._order), call))

    def _arrive(self, client: int, returns: int) -> None:
        self._line.arrived(client)
        rate_rps = self._service.drain_rate_rps(self._busy)
        wait_s = predicted_wait_s(ahead=len(self._queue), drain_rate_rps=rate_rps)
        if self._busy < SLOTS:
            self._start(returns)
        elif wait_s is not None and wait_s <= self._max_wait_s:
            self._queue.append(returns)
        else:
            return_s = self._line.place_s(
                client,
                self.now_s,
                queued=len(self._queue),
                max_wait_s=self._max_wait_s,
                rate_rps=max(rate_rps or 0.0, self._departures.rate_rps(self.now_s)),
            )
            back_s = max(1, math.ceil(return_s)) if self._in_whole_seconds else return_s
            self._at(self.now_s + back_s, lambda: self._arrive(client, returns + 1))

    def _start(self, returns: int) -> None:
        self.returns.append(returns)
        if not self._busy:
            self._departures.began(self.now_s)
        self._busy += 1
        service_s = self.rng.expovariate(1 / SERVICE_S) if self._is_exponential else SERVICE_S
        self._at(self.now_s + service_s, lambda: self._end(service_s))

    def _end(self, service_s: float) -> None:
        self._busy -= 1
        self._service.finished(service_s)
        self._departures.finished(self.now_s)
        self.done_s = self.now_s
        if self._queue:
            self._start(self._queue.pop(0))

    @property
    def let_in_at_first_return(self) -> float:
        refused = [returns for returns in self.returns if returns]
        return sum(returns == 1 for returns in refused) / len(refused)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("max_wait_s", "in_whole_seconds", "first_min"),
    # A second's clients that come back in the same instant want room for all of them: slots, and a queue of a second.
    [(1.5, True, 0.95), (1.5, False, 0.95), (0.5, False, 0.9), (0.2, False, 0.85)],
)
def test_a_burst_is_worked_off_as_fast_as_the_lane_can_and_most_are_let_in_at_their_first_return(
    max_wait_s, in_whole_seconds, first_min
):
    ideal_s = BURST / RATE_RPS
    bursts = [ObedientBurst(max_wait_s=max_wait_s, in_whole_seconds=in_whole_seconds, seed=seed) for seed in range(20)]
    assert all(len(burst.returns) == BURST for burst in bursts)
    assert mean([burst.let_in_at_first_return for burst in bursts]) >= first_min
    assert mean([burst.done_s for burst in bursts]) <= 1.3 * ideal_s
    even = ObedientBurst(max_wait_s=max_wait_s, in_whole_seconds=in_whole_seconds, seed=1, is_exponential=False)
    assert even.done_s <= 1.1 * ideal_s


def place(line: ReturnLine, client: int, now_s: float, *, queued: int = 0, not_before_s: float = 0.0) -> float:
    return line.place_s(client, now_s, queued=queued, max_wait_s=0.0, rate_rps=10.0, not_before_s=not_before_s)


def test_places_come_one_after_the_other_as_fast_as_the_lane_works():
    line = ReturnLine()
    places = [place(line, client, 0.0) for client in range(100)]
    assert places == sorted(places)
    assert places[-1] == pytest.approx(10.0, abs=0.2)


def test_the_line_moves_on_with_time():
    line = ReturnLine()
    for client in range(100):
        place(line, client, 0.0)
    assert place(line, 200, 8.0) == pytest.approx(2.1, abs=0.2)
    assert place(line, 201, 30.0) < 0.3


def test_nobody_is_told_to_come_before_there_is_a_replica():
    line = ReturnLine()
    places = [place(line, client, 0.0, not_before_s=42.0) for client in range(20)]
    assert min(places) >= 42.0
    assert max(places) == pytest.approx(44.0, abs=0.2)


def test_where_nobody_comes_back_the_line_hardly_grows():
    line, return_s = ReturnLine(), 0.0
    for number in range(600):
        return_s = place(line, number, 0.1 * number)
    assert line.claimed_share < 0.2
    assert return_s < 2.0


def test_where_all_come_back_every_place_counts():
    line = ReturnLine()
    for number in range(600):
        place(line, number, 0.1 * number)
        line.arrived(number)
    assert line.claimed_share == pytest.approx(1.0)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.floats(0.0, 30.0),
            st.integers(0, 5000),
            st.one_of(st.none(), st.floats(1e-3, 1e5)),
            st.floats(0.0, 900.0),
        ),
        max_size=80,
    )
)
def test_what_is_return_stays_within_its_bounds_and_nothing_is_kept_for_ever(refusals):
    line, now_s = ReturnLine(), 0.0
    for client, later_s, queued, rate_rps, coming_s in refusals:
        now_s += later_s
        return_s = line.place_s(client, now_s, queued=queued, max_wait_s=1.0, rate_rps=rate_rps, not_before_s=coming_s)
        assert RETURN_S_MIN <= return_s <= RETURN_S_MAX
    place(line, 1, now_s + 100.0)
    assert len(line) == 1
