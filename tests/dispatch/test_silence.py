"""Replicas that say nothing: hung, at work on a long prompt, or known to be unhealthy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.liveness import prefill_allowance_s, stall_limit_s
from fleetctl.model.gateway import ReplicaSignals, SignalFeed
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from tests.dispatch.event_heap import CHAT, EventHeap, Fate, HeapExchange, dispatcher_on, route, table

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.model.gateway import RouteReplica

HUNG = Fate(token_s=0.1, end_s=1000.0)
SWEEP_S = 0.25


def heap_with(*replicas: RouteReplica, **options: Any) -> tuple[EventHeap, Dispatcher]:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(replace(table(*replicas), **options))
    for number in range(int(200 / SWEEP_S)):
        heap.at(number * SWEEP_S, lambda: dispatcher.sweep(heap.now_s))
    return heap, dispatcher


def submit(heap: EventHeap, dispatcher: Dispatcher, fates: dict[str, Fate], **options: Any) -> HeapExchange:
    exchange = HeapExchange(heap, dispatcher, lambda replica_id: fates.get(replica_id, Fate()))
    exchange.submit(**options)
    return exchange


def keep_talking(heap: EventHeap, exchange: HeapExchange, until_s: float) -> None:
    def talk() -> None:
        exchange.request.heard_s = heap.now_s
        if heap.now_s < until_s:
            heap.at(heap.now_s + 0.1, talk)

    heap.at(heap.now_s + 0.2, talk)


def test_a_stream_on_a_hung_replica_moves_within_the_lanes_limit_where_another_is_there():
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, {"r1": HUNG})
    dispatcher.apply(table(route("r1"), route("r2"), version=2))
    heap.run(3.9)
    assert exchange.sent_to == ["r1"]
    heap.run(5.0)
    assert exchange.sent_to == ["r1", "r2"]
    assert exchange.ends == ["answered", "over"]
    # All of it stood still, so that nobody else is sent there to find out.
    assert dispatcher.routes.replicas["r1"].candidate.ejected_until_s > 0.0
    snapshot = dispatcher.routes.replicas["r1"].snapshot(heap.now_s)
    assert (snapshot.consecutive_failures, snapshot.is_stalled) == (3, True)


def test_all_that_stands_still_until_the_stall_timeout_convicts_its_replica_too():
    # A lane that promises a slow ITL has no limit below the timeout.
    heap, dispatcher = heap_with(route("r1"), stall_timeout_s=2.0)
    exchange = submit(heap, dispatcher, {"r1": HUNG})
    dispatcher.apply(replace(table(route("r1"), route("r2"), version=2), stall_timeout_s=2.0))
    heap.run(4.0)
    assert exchange.sent_to == ["r1", "r2"]
    assert dispatcher.routes.replicas["r1"].snapshot(heap.now_s).is_stalled


def test_a_stream_on_the_only_replica_waits_for_it_until_the_stall_timeout():
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, {"r1": HUNG})
    states: list[RequestState] = []
    for until_s in (59.0, 61.0):
        heap.run(until_s)
        states.append(exchange.request.state)
    assert states == [RequestState.STREAMING, RequestState.DISPLACED]


def test_a_stream_goes_on_at_the_replica_that_fell_silent_on_it_once_that_has_answered_another():
    heap, dispatcher = heap_with(route("r1"))
    fates = {"r1": HUNG}
    exchange = submit(heap, dispatcher, fates)
    heap.run(61.0)
    assert exchange.request.state is RequestState.DISPLACED
    fates["r1"] = Fate()
    heap.run(75.0)
    assert exchange.sent_to == ["r1"]  # nothing says yet that it is well again
    another = submit(heap, dispatcher, fates)
    heap.run(80.0)
    assert another.ends == ["answered", "over"]
    assert exchange.sent_to == ["r1", "r1"]
    assert exchange.ends == ["answered", "over"]


def test_a_stream_that_silences_its_replica_again_and_again_is_given_up():
    heap, dispatcher = heap_with(route("r1"))
    fates = {"r1": HUNG}
    exchange = submit(heap, dispatcher, fates)
    heap.run(59.0)
    fates["r1"] = Fate(failure=RequestEvent.CLOSED, token_s=900.0, end_s=0.2)

    def another() -> None:
        submit(heap, dispatcher, {})

    for at_s in range(60, 150):
        heap.at(at_s, another)
    heap.run(190.0)
    assert len(exchange.sent_to) == 1 + DispatchLimits().fruitless_continuations_max
    assert len(exchange.ends) == 2
    assert exchange.ends[-1] == "over"
    assert "answered" not in exchange.ends


def test_one_silent_stream_among_others_has_been_preempted_and_stays():
    heap, dispatcher = heap_with(route("r1"))
    silent, talking = (submit(heap, dispatcher, {"r1": HUNG}) for _ in range(2))
    keep_talking(heap, talking, 30.0)
    dispatcher.apply(table(route("r1"), route("r2"), version=2))
    heap.run(29.0)
    assert silent.sent_to == talking.sent_to == ["r1"]
    heap.run(40.0)
    assert silent.sent_to == talking.sent_to == ["r1", "r2"]


@pytest.mark.parametrize(("planned", "moved_after_s"), [(20_000.0, 19.5), (0.0, 60.25), (1e9, 4.5)])
def test_a_long_prompt_may_take_its_time(planned, moved_after_s):
    row = replace(route("r1"), prefill_tokens_per_s=planned)
    heap, dispatcher = heap_with(row)
    exchange = submit(heap, dispatcher, {"r1": Fate(token_s=999.0, end_s=1000.0)}, prompt_tokens=100_000)
    dispatcher.apply(table(row, route("r2"), version=2))
    heap.run(moved_after_s - 1.0)
    assert exchange.sent_to == ["r1"]
    heap.run(moved_after_s)
    assert exchange.sent_to == ["r1", "r2"]


def test_a_measured_prompt_counts_where_the_plan_was_too_hopeful():
    row = replace(route("r1"), prefill_tokens_per_s=1e6)
    heap, dispatcher = heap_with(row)
    submit(heap, dispatcher, {"r1": Fate(token_s=2.0, end_s=2.5)}, prompt_tokens=1000)
    heap.run(2.6)
    exchange = submit(heap, dispatcher, {"r1": Fate(token_s=999.0, end_s=1000.0)}, prompt_tokens=5000)
    dispatcher.apply(table(row, route("r2"), version=2))
    heap.run(2.6 + 4.0 + 29.0)
    assert exchange.sent_to == ["r1"]
    heap.run(2.6 + 4.0 + 31.0)
    assert exchange.sent_to == ["r1", "r2"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_is_silent_on_a_replica_that_the_table_has_no_more_moves_once_that_must_have_ended(is_stream):
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, {"r1": HUNG}, is_stream=is_stream)
    talking = submit(heap, dispatcher, {"r1": HUNG})
    keep_talking(heap, talking, 20.0)
    heap.run(2.0)
    dispatcher.apply(table(route("r2"), version=2))
    heap.run(6.9)
    assert exchange.sent_to == ["r1"], "an engine that is told to end may answer yet"
    heap.run(7.5)
    assert exchange.sent_to == ["r1", "r2"]
    heap.run(19.0)
    assert exchange.ends == ["answered", "over"]
    assert talking.sent_to == ["r1"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_waited_at_the_only_replica_when_the_table_lost_it_goes_to_the_next(is_stream):
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, {"r1": HUNG}, is_stream=is_stream)
    dispatcher.apply(table(lanes=(replace(CHAT, replacement_s=90.0),), version=2))
    heap.run(6.5)
    assert (exchange.request.state, exchange.ends) == (RequestState.DISPLACED, [])
    dispatcher.apply(table(route("r2"), version=3))
    heap.run(20.0)
    assert exchange.sent_to == ["r1", "r2"]
    assert exchange.ends == ["answered", "over"]


@pytest.mark.parametrize(("kv_usage", "failures"), [(0.97, 0), (0.6, 3)])
def test_streams_that_a_full_kv_cache_puts_aside_are_no_failures_of_a_replica_that_streams_to_others(
    kv_usage, failures
):
    """Three in a row would take it from all that it still serves, and have it replaced by one as full."""
    heap, dispatcher = heap_with(route("r1"))
    silent = [submit(heap, dispatcher, {"r1": HUNG}) for _ in range(3)]
    keep_talking(heap, submit(heap, dispatcher, {"r1": HUNG}), 70.0)
    reading = ReplicaSignals(id="r1", age_s=0.0, running=4, waiting=0, kv_usage=kv_usage)
    for at_s in (10.0, 30.0, 50.0):
        heap.at(at_s, lambda: dispatcher.take_signals(SignalFeed(replicas=(reading,))))
    heap.run(62.0)
    wanted = RequestEvent.STALLED if failures else RequestEvent.PREEMPTED
    assert [each.request.attempt.failure for each in silent if each.request.attempt] == [wanted] * 3
    snapshot = dispatcher.routes.replicas["r1"].snapshot(heap.now_s)
    assert snapshot.consecutive_failures == failures


@pytest.mark.parametrize("is_stream", [True, False])
def test_what_is_silent_on_an_unhealthy_replica_moves_at_once(is_stream):
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, {"r1": HUNG}, is_stream=is_stream)
    talking = submit(heap, dispatcher, {"r1": HUNG})
    keep_talking(heap, talking, 5.0)
    heap.run(2.0)
    bad = replace(route("r1"), healthy=False, in_rotation=False)
    dispatcher.apply(table(bad, route("r2"), version=2))
    heap.run(2.5)
    assert exchange.sent_to == ["r1", "r2"]
    assert talking.sent_to == ["r1"]
    heap.run(7.0)
    assert talking.sent_to == ["r1", "r2"]
    assert dispatcher.routes.replicas["r1"].failures == 0


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_request_that_may_not_move_any_more_stays_on_a_replica_that_may_only_be_slow(is_stream):
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, {"r1": Fate(token_s=29.0, end_s=30.0)}, is_stream=is_stream)
    exchange.request.resends = 2
    heap.run(2.0)
    dispatcher.apply(table(replace(route("r1"), healthy=False, in_rotation=False), route("r2"), version=2))
    heap.run(40.0)
    assert (exchange.sent_to, exchange.ends) == (["r1"], ["answered", "over"])


def test_a_prompt_that_waits_behind_others_is_not_ended_while_these_get_their_tokens():
    heap, dispatcher = heap_with(route("r1"))
    talking = submit(heap, dispatcher, {"r1": HUNG})
    keep_talking(heap, talking, 150.0)
    waiting = submit(heap, dispatcher, {"r1": Fate(token_s=99.0, end_s=100.0)})
    heap.run(101.0)
    assert (waiting.sent_to, waiting.ends) == (["r1"], ["answered", "over"])


def test_a_stream_goes_back_to_a_replica_that_has_recovered():
    heap, dispatcher = heap_with(route("r1"))
    fates = {"r1": HUNG}
    exchange = submit(heap, dispatcher, fates)
    heap.run(2.0)
    coming = (replace(CHAT, replacement_s=90.0),)
    dispatcher.apply(table(replace(route("r1"), healthy=False, in_rotation=False), lanes=coming, version=2))
    heap.run(60.0)
    assert exchange.request.state is RequestState.DISPLACED
    fates["r1"] = Fate()
    dispatcher.apply(table(route("r1"), version=3))
    heap.run(62.0)
    assert exchange.sent_to == ["r1", "r1"]
    assert exchange.ends == ["answered", "over"]


def test_a_long_stream_survives_more_failures_than_a_fruitless_one():
    rows = [route(f"r{number}") for number in range(6)]
    heap, dispatcher = heap_with(*rows)
    broken = {row.id: Fate(token_s=0.1, end_s=1.0, failure=RequestEvent.CLOSED) for row in rows[:5]}
    exchange = HeapExchange(heap, dispatcher, lambda _: broken.get(f"r{len(exchange.sent_to) - 1}", Fate()))
    exchange.submit()
    heap.run(20.0)
    assert len(exchange.sent_to) == 6
    assert exchange.ends == ["answered", "over"]


@pytest.mark.parametrize(
    ("itl_s", "timeout_s", "limit_s"),
    [(0.05, 60.0, 3.0), (0.1, 60.0, 4.0), (5.0, 60.0, 60.0), (None, 60.0, 4.0), (0.1, 2.0, 2.0)],
)
def test_the_limit_follows_the_lanes_promise_within_its_bounds(itl_s, timeout_s, limit_s):
    targets = () if itl_s is None else (LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=itl_s),)
    assert stall_limit_s(LaneSlo(targets=targets), timeout_s) == pytest.approx(limit_s)


def test_nothing_is_allowed_for_no_prompt_and_everything_for_an_unknown_speed():
    assert prefill_allowance_s(0, 0.0, 0.0) == 0.0
    assert prefill_allowance_s(10, 0.0, 0.0) == float("inf")
    assert prefill_allowance_s(1000, 1000.0, 0.002) == pytest.approx(6.0)
