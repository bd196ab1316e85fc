"""A replica that is much slower than its peers is left alone soon, probed with a few requests, and readmitted when it is well."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.dispatch.dispatcher import Dispatcher
from fleetctl.core.routing.outlier import LEFT_S_FIRST, SlowEjection, is_outlier, verdict_of
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from tests.dispatch.event_heap import CHAT, EventHeap, Fate, HeapExchange, dispatcher_on, route, table

SLO = LaneSlo(
    targets=(
        LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=1.0),
        LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.08),
    )
)
LANE = replace(CHAT, slo=SLO)
SLOW = "r0"


@dataclass(slots=True)
class Lane:
    """Replicas whose tokens take so much longer each, and what became of every request."""

    replicas: int = 7
    slowdown: dict[str, float] = field(default_factory=dict)
    tpot_s: float = 0.04
    is_slow_at_prompts: bool = False  # as well, which routing learns
    heap: EventHeap = field(default_factory=EventHeap)
    rng: random.Random = field(default_factory=lambda: random.Random(3))
    sent: list[tuple[float, HeapExchange]] = field(default_factory=list)
    under_way: list[HeapExchange] = field(default_factory=list)
    dispatcher: Dispatcher = field(init=False)

    def __post_init__(self) -> None:
        self.dispatcher = dispatcher_on(self.heap)
        rows = [route(f"r{number}", concurrency_max=64) for number in range(self.replicas)]
        self.dispatcher.apply(table(*rows, lanes=(LANE,)))

    def fate(self, replica_id: str) -> Fate:
        in_flight = self.dispatcher.routes.replicas[replica_id].candidate.in_flight
        slowdown = self.slowdown.get(replica_id, 1.0) * (1.0 + 0.01 * in_flight) * self.rng.uniform(0.9, 1.1)
        tokens = self.rng.randrange(40, 300)
        token_s = 0.1 * (slowdown if self.is_slow_at_prompts else 1.0)
        return Fate(token_s, token_s + (tokens + 0.5) * self.tpot_s * slowdown, tpot_s=self.tpot_s * slowdown)

    def come(self, rps: float, until_s: float) -> None:
        at_s = self.heap.now_s
        while (at_s := at_s + self.rng.expovariate(rps)) < until_s:
            self.heap.at(at_s, self._send)
        for number in range(int(until_s * 4)):
            self.heap.at(number * 0.25, self._sweep)

    def _sweep(self) -> None:
        self.under_way = [exchange for exchange in self.under_way if not exchange.ends]
        for exchange in self.under_way:
            if not exchange.request.awaits_token:
                exchange.request.heard_s = self.heap.now_s  # a token has come lately
        self.dispatcher.sweep(self.heap.now_s)

    def _send(self) -> None:
        exchange = HeapExchange(self.heap, self.dispatcher, self.fate)
        self.sent.append((self.heap.now_s, exchange))
        self.under_way.append(exchange)
        exchange.submit()

    def sent_to(self, replica_id: str, from_s: float, until_s: float) -> int:
        return sum(from_s <= at_s < until_s and replica_id in exchange.sent_to for at_s, exchange in self.sent)

    @property
    def good(self) -> float:
        window = self.dispatcher.routes.lanes["chat"].accounts.totals()
        return window.good / (window.good + window.bad)

    def out(self) -> set[str]:
        return {id_ for id_, each in self.dispatcher.routes.replicas.items() if each.slow.until_s}


@pytest.mark.parametrize("replicas", [3, 7, 10])
def test_one_that_makes_tokens_four_times_slower_is_out_within_a_minute_and_hardly_anybody_notices(replicas):
    lane = Lane(replicas=replicas, slowdown={SLOW: 4.0})
    lane.come(1.5 * replicas, 900.0)
    lane.heap.run(60.0)
    assert lane.out() == {SLOW}
    lane.heap.run(900.0)
    assert lane.out() == {SLOW}
    # Its probes are a few.
    assert lane.sent_to(SLOW, 60.0, 900.0) <= 12
    assert lane.good > 0.98 if replicas == 3 else lane.good >= 0.995


@pytest.mark.parametrize("replicas", [3, 7, 10])
def test_one_that_is_three_times_slower_at_everything_gets_few_requests_if_any(replicas):
    lane = Lane(replicas=replicas, slowdown={SLOW: 3.0}, is_slow_at_prompts=True)
    lane.come(1.5 * replicas, 900.0)
    lane.heap.run()
    assert lane.sent_to(SLOW, 60.0, 900.0) <= 12
    assert lane.good >= 0.995


def test_one_that_is_given_one_stream_at_a_time_for_what_it_misses_is_found_by_two():
    slow = [(0.15, True)] * 2
    assert is_outlier(slow, 0.05, slow_at_prompts_by=3.0, streams_max=1)
    assert not is_outlier(slow, 0.05, slow_at_prompts_by=3.0, streams_max=43)
    assert not is_outlier(slow[:1], 0.05, slow_at_prompts_by=3.0, streams_max=1)


def test_one_that_is_held_to_few_streams_and_still_slow_needs_be_no_slower_at_prompts():
    slow = [(0.08, True)] * 4
    assert is_outlier(slow, 0.05, slow_at_prompts_by=1.0, streams_max=2, is_held=True)
    assert not is_outlier(slow, 0.05, slow_at_prompts_by=1.0, streams_max=2)
    assert not is_outlier([(0.08, False)] * 4, 0.05, slow_at_prompts_by=1.0, streams_max=2, is_held=True)


def test_prompts_of_others_that_share_its_steps_make_it_no_outlier():
    lane = Lane(slowdown={SLOW: 2.2})
    lane.come(10.0, 120.0)
    lane.heap.run()
    assert lane.out() == set()


def test_one_that_becomes_slow_is_found_and_comes_back_when_it_is_well():
    lane = Lane()
    lane.come(10.0, 400.0)
    lane.heap.run(60.0)
    assert lane.out() == set()
    lane.slowdown[SLOW] = 4.0
    lane.heap.run(120.0)
    assert lane.out() == {SLOW}
    lane.slowdown.clear()
    lane.heap.run(300.0)
    assert lane.out() == set()
    assert lane.sent_to(SLOW, 300.0, 400.0) == 0
    lane.heap.run(400.0)
    assert lane.sent_to(SLOW, 300.0, 400.0) > 50


def test_peers_of_like_speed_are_left_alone_whatever_the_load():
    for rps in (2.0, 10.0, 40.0):
        lane = Lane(slowdown={f"r{number}": 1.0 + 0.05 * number for number in range(7)})
        lane.come(rps, 120.0)
        for second in range(120):
            lane.heap.run(float(second))
            assert lane.out() == set()


def test_one_that_is_slow_and_keeps_its_promise_does_no_harm():
    lane = Lane(slowdown={SLOW: 2.0}, tpot_s=0.01)
    lane.come(10.0, 120.0)
    lane.heap.run()
    assert lane.out() == set()


def test_two_replicas_do_not_tell_which_of_them_is_slow():
    lane = Lane(replicas=2, slowdown={SLOW: 3.0})
    lane.come(4.0, 120.0)
    lane.heap.run()
    assert lane.out() == set()


def test_a_pause_of_one_engine_is_no_slowness():
    lane = Lane()
    lane.come(10.0, 120.0)
    for start_s in (20.0, 60.0):
        lane.heap.at(start_s, lambda: lane.slowdown.update({SLOW: 3.0}))
        lane.heap.at(start_s + 1.0, lane.slowdown.clear)
    for second in range(120):
        lane.heap.run(float(second))
        assert lane.out() == set()


@settings(max_examples=15, deadline=None)
@given(st.integers(3, 12), st.dictionaries(st.integers(0, 11), st.floats(1.0, 8.0)))
def test_no_more_than_a_quarter_of_a_lane_is_left_alone_as_slow(replicas, slowdown):
    lane = Lane(replicas=replicas, slowdown={f"r{number}": factor for number, factor in slowdown.items()})
    lane.come(replicas, 60.0)
    for second in range(60):
        lane.heap.run(float(second))
        assert len(lane.out()) <= max(1, replicas // 4)


@given(st.lists(st.tuples(st.floats(1e-4, 10.0), st.booleans()), max_size=12), st.floats(1e-4, 10.0))
def test_a_verdict_is_monotone_in_how_slow_the_streams_are(streams, peers_tpot_s):
    slower = [(2.0 * tpot_s, missed) for tpot_s, missed in streams]
    assert all(
        is_outlier(streams, peers_tpot_s, slow_at_prompts_by=before)
        <= is_outlier(slower, peers_tpot_s, slow_at_prompts_by=after)
        for before, after in ((1.0, 1.0), (1.0, 2.0), (2.0, 2.0))
    )
    assert bool(verdict_of(streams, peers_tpot_s)) <= bool(verdict_of(slower, peers_tpot_s))


def test_it_is_left_alone_longer_every_time_until_it_has_been_well_for_long():
    slow, now_s, left_s = SlowEjection(), 0.0, []
    for _ in range(6):
        slow.eject(now_s, 0.3, 0.1)
        left_s.append(slow.until_s - now_s)
        now_s = slow.until_s
    assert left_s == [LEFT_S_FIRST * factor for factor in (1, 2, 4, 8, 8, 8)]
    assert (slow.times, slow.since_s) == (6, 0.0)
    slowness = slow.slowness(now_s)
    assert slowness is not None
    assert (slowness.for_s, slowness.ejections) == (now_s, 6)
    assert slowness.slow_by == pytest.approx(3.0)
    slow.readmit(now_s)
    assert slow.slowness(now_s) is None
    slow.eject(now_s + 1000.0, 0.3, 0.1)
    assert (slow.times, slow.since_s) == (1, now_s + 1000.0)
