"""The table of a request's states."""

from __future__ import annotations

import itertools

import pytest

from fleetctl.core.dispatch.failure import CONSEQUENCES, failure_of
from fleetctl.core.dispatch.state import (
    TRANSITIONS,
    IllegalTransitionError,
    RequestEvent,
    RequestState,
)
from tests.dispatch.event_heap import EventHeap, Fate, HeapExchange, dispatcher_on, route, table


def test_every_state_is_in_the_table_and_only_the_last_has_no_way_out():
    assert set(TRANSITIONS) == set(RequestState)
    assert [state for state in RequestState if not TRANSITIONS[state]] == [RequestState.OVER]


def test_every_event_leads_somewhere_and_a_failure_always_to_displaced():
    assert {event for row in TRANSITIONS.values() for event in row} == set(RequestEvent)
    for row in TRANSITIONS.values():
        assert {row[event] for event in row if event in CONSEQUENCES} <= {RequestState.DISPLACED}


def test_a_client_may_leave_in_every_state_but_the_last():
    for state in set(RequestState) - {RequestState.OVER}:
        assert TRANSITIONS[state][RequestEvent.CLIENT_GONE] is RequestState.OVER


def test_from_every_state_the_end_can_be_reached():
    reached = {RequestState.OVER}
    for _ in RequestState:
        reached |= {state for state, row in TRANSITIONS.items() if reached & set(row.values())}
    assert reached == set(RequestState)


def test_what_is_not_in_the_table_raises():
    illegal = [(s, e) for s, e in itertools.product(RequestState, RequestEvent) if e not in TRANSITIONS[s]]
    assert (RequestState.OVER, RequestEvent.ANSWERED) in illegal
    assert (RequestState.QUEUED, RequestEvent.CONNECTED) in illegal
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(table(route("r1")))
    exchange = HeapExchange(heap, dispatcher, lambda _: Fate())
    exchange.submit()
    for state, event in illegal:
        exchange.request.state = state
        with pytest.raises(IllegalTransitionError, match=event.value):
            exchange.request.move(event)
        assert exchange.request.state is state


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (200, None), (400, None), (404, None), (501, None), (429, RequestEvent.BUSY), (503, RequestEvent.BUSY),
        (307, RequestEvent.PROTOCOL_ERROR), (500, RequestEvent.ERROR), (502, RequestEvent.ERROR), (504, RequestEvent.ERROR),
    ],
)  # fmt: skip
def test_what_a_replicas_status_means(status, failure):
    assert failure_of(status) is failure
