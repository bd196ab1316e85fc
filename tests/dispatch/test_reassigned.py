"""A replica that changes lanes keeps its streams, and is judged by its new peers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.dispatch.event_heap import EventHeap, Fate, HeapExchange, dispatcher_on, route, table
from tests.dispatch.test_lending import LONG, SHORT

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher


def moved(dispatcher: Dispatcher) -> None:
    rows = (route("r1", "short"), route("r2", "long", concurrency_max=1))
    dispatcher.apply(table(*rows, lanes=(SHORT, LONG), version=2))


def test_a_stream_ends_where_it_runs_and_counts_for_its_own_lane() -> None:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(table(route("r2", "short", concurrency_max=1), lanes=(SHORT, LONG)))
    stream = HeapExchange(heap, dispatcher, lambda _: Fate(0.01, 5.0))
    stream.submit("short")
    heap.run(1.0)
    moved(dispatcher)
    replica = dispatcher.routes.replicas["r2"]
    assert (replica.route.lane, replica.candidate.in_flight) == ("long", 1)
    heap.run()
    assert (stream.sent_to, stream.ends) == (["r2"], ["answered", "over"])
    assert replica.candidate.in_flight == 0
    short, long = (dispatcher.routes.lanes[name].accounts.totals() for name in ("short", "long"))
    assert (short.good + short.bad, long.good + long.bad) == (1, 0)


def test_requests_of_the_new_lane_go_there() -> None:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(table(route("r1", "short"), route("r2", "short", concurrency_max=4), lanes=(SHORT, LONG)))
    moved(dispatcher)
    exchange = HeapExchange(heap, dispatcher, lambda _: Fate())
    exchange.submit("long")
    heap.run()
    assert exchange.sent_to == ["r2"]


def test_its_streams_of_the_old_lane_do_not_make_it_an_outlier_in_the_new_one() -> None:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(table(route("r1", "short"), route("r2", "short"), lanes=(SHORT, LONG)))
    replica = dispatcher.routes.replicas["r2"]
    replica.pace.add(0.0, 0.2, missed=True)
    assert replica.pace.since(1.0)
    moved(dispatcher)
    assert replica.pace.since(1.0) == []
    replica.pace.add(2.0, 0.05, missed=False)
    moved(dispatcher)
    assert replica.pace.since(3.0) == [(0.05, False)]
