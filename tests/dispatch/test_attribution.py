"""Whose doing an error is that a replica answers with: a request that breaks engines takes them from nobody else."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.dispatch.attribution import RETRIES_MAX, ErrorAttribution
from fleetctl.core.dispatch.state import RequestEvent
from tests.dispatch.event_heap import EventHeap, Fate, HeapExchange, dispatcher_on, route, table

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher

ERROR, BUSY = RequestEvent.ERROR, RequestEvent.BUSY
FINE = Fate(0.05, 0.4)
ERRS = Fate(9.0, 0.005, ERROR)  # at once, instead of an answer
BREAKS = Fate(0.01, 0.02, ERROR)
POISON = 666


def heap_with(replicas: int) -> tuple[EventHeap, Dispatcher]:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(table(*(route(f"r{i}", concurrency_max=64) for i in range(replicas))))
    for number in range(4 * 60):
        heap.at(number * 0.25, lambda: dispatcher.sweep(heap.now_s))
    return heap, dispatcher


class Client:
    """Sends requests at random instants, each with a fate at every replica."""

    def __init__(self, heap: EventHeap, dispatcher: Dispatcher, fates: dict[str, Fate], *, key: int) -> None:
        self._heap, self._dispatcher, self._fates, self._key = heap, dispatcher, fates, key
        self.exchanges: list[HeapExchange] = []

    def send(self) -> None:
        fates = self._fates
        exchange = HeapExchange(self._heap, self._dispatcher, lambda id_: fates.get(id_, fates.get("any", FINE)))
        self.exchanges.append(exchange)
        exchange.submit(client=self._key)

    def come(self, rps: float, *, seed: int, until_s: float = 30.0) -> Client:
        rng, at_s = random.Random(seed), 0.0
        while (at_s := at_s + rng.expovariate(rps)) < until_s:
            self._heap.at(at_s, self.send)
        return self

    @property
    def good(self) -> float:
        return sum(exchange.ends[0] == "answered" for exchange in self.exchanges) / len(self.exchanges)

    @property
    def tries(self) -> int:
        return sum(len(exchange.sent_to) for exchange in self.exchanges)


def ejected(dispatcher: Dispatcher) -> set[str]:
    return {id_ for id_, replica in dispatcher.routes.replicas.items() if replica.candidate.ejected_until_s}


@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("failure", [ERROR, BUSY])
@pytest.mark.parametrize("same_key", [False, True])
def test_a_client_that_draws_errors_from_every_replica_takes_none_from_the_others(replicas, failure, same_key):
    heap, dispatcher = heap_with(replicas)
    key = POISON if same_key else 1  # without API keys all that come through one proxy are one
    poison = Client(heap, dispatcher, {"any": Fate(9.0, 0.005, failure)}, key=POISON).come(20.0, seed=1)
    other = Client(heap, dispatcher, {}, key=key).come(10.0, seed=2)
    out: set[str] = set()
    for tenth in range(300):
        heap.run(tenth / 10)
        out |= ejected(dispatcher)
    heap.run()
    assert other.good == 1.0
    assert poison.good == 0.0
    assert out == set()


def test_two_such_clients_take_half_of_the_lane_for_a_moment_at_most():
    heap, dispatcher = heap_with(4)
    for key in (POISON, POISON + 1):
        Client(heap, dispatcher, {"any": ERRS}, key=key).come(10.0, seed=key)
    other = Client(heap, dispatcher, {}, key=1).come(10.0, seed=2)
    most, late = 0, 0
    for tenth in range(300):
        heap.run(tenth / 10)
        most = max(most, len(ejected(dispatcher)))
        late += len(ejected(dispatcher)) if tenth > 50 else 0
    heap.run()
    assert other.good == 1.0
    assert most <= 2
    assert late == 0


def test_what_is_spent_on_resending_such_requests_is_bounded():
    heap, dispatcher = heap_with(5)
    poison = Client(heap, dispatcher, {"any": ERRS}, key=POISON).come(20.0, seed=1)
    heap.run()
    resends = poison.tries - len(poison.exchanges)
    assert RETRIES_MAX <= resends <= RETRIES_MAX + 0.1 * 30.0
    assert max(len(exchange.sent_to) for exchange in poison.exchanges) == 2


def test_streams_that_break_wherever_they_go_on_are_not_continued_without_end():
    heap, dispatcher = heap_with(5)
    poison = Client(heap, dispatcher, {"any": BREAKS}, key=POISON)
    request_ends = Counter[str]()
    for number in range(100):
        heap.at(number * 0.1, poison.send)
    heap.run()
    request_ends.update(exchange.ends[0] for exchange in poison.exchanges)
    assert set(request_ends) <= {"broken: given-up", "broken: expired"}


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("fate", [ERRS, Fate(0.01, 0.02, ERROR), Fate(9.0, 0.005, BUSY)])
def test_a_replica_that_answers_everybody_with_errors_is_ejected_and_nobody_notices(clients, fate):
    heap, dispatcher = heap_with(3)
    sending = [Client(heap, dispatcher, {"r0": fate}, key=key).come(10.0 / clients, seed=key) for key in range(clients)]
    heap.run(5.0)
    assert ejected(dispatcher) == {"r0"}
    assert dispatcher.routes.replicas["r0"].snapshot(heap.now_s).consecutive_failures >= 3
    heap.run()
    assert [client.good for client in sending] == [1.0] * clients


def test_two_of_three_broken_replicas_are_told_from_clients_at_fault():
    heap, dispatcher = heap_with(4)
    broken = {"r0": ERRS, "r1": ERRS}
    sending = [Client(heap, dispatcher, broken, key=key).come(5.0, seed=key) for key in range(4)]
    heap.run(2.0)
    assert ejected(dispatcher) == {"r0", "r1"}
    for client in sending:
        client.exchanges.clear()
    heap.run()
    assert min(client.good for client in sending) > 0.98


def test_a_replica_is_back_with_its_first_answer():
    heap, dispatcher = heap_with(2)
    fates = {"r0": ERRS}
    client = Client(heap, dispatcher, fates, key=1).come(10.0, seed=1)
    heap.run(3.0)
    assert ejected(dispatcher) == {"r0"}
    fates.clear()
    heap.run()
    assert ejected(dispatcher) == set()
    assert client.good == 1.0


def test_a_row_of_errors_is_told_until_it_answers():
    heap, dispatcher = heap_with(1)
    poison = Client(heap, dispatcher, {"any": ERRS}, key=POISON)
    for _ in range(4):
        poison.send()
        heap.run(heap.now_s + 0.1)
    replica = dispatcher.routes.replicas["r0"]
    snapshot = replica.snapshot(heap.now_s)
    assert (snapshot.errors_in_a_row, snapshot.consecutive_failures, snapshot.failures) == (4, 0, 4)
    Client(heap, dispatcher, {}, key=1).send()
    heap.run(heap.now_s + 0.1)
    assert replica.snapshot(heap.now_s).errors_in_a_row == 0


@given(spent=st.lists(st.floats(0.0, 60.0), max_size=200))
def test_retries_never_exceed_what_is_earned(spent):
    attribution, taken = ErrorAttribution(), 0
    for at_s in sorted(spent):
        taken += attribution.take_retry(POISON, at_s)
    assert taken <= RETRIES_MAX + 0.1 * 60.0


def test_clients_are_remembered_up_to_a_bound():
    attribution = ErrorAttribution()
    for client in range(10_000):
        attribution.take_retry(client, 0.0)
    assert len(attribution.clients) <= 4096


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), replicas=st.integers(1, 6), share=st.floats(0.0, 1.0))
def test_whatever_errors_are_answered_half_of_a_lane_stays(seed, replicas, share):
    heap, dispatcher = heap_with(replicas)
    rng = random.Random(seed)

    def submit() -> None:
        fates = [ERRS, BREAKS, Fate(9.0, 0.01, BUSY), Fate(9.0, 0.01, RequestEvent.CLOSED)]
        exchange = HeapExchange(heap, dispatcher, lambda _: rng.choice(fates) if rng.random() < share else FINE)
        exchange.submit(client=rng.randrange(4))

    for number in range(200):
        heap.at(number * 0.05, submit)
        heap.at(number * 0.05, lambda: sizes.append(len(ejected(dispatcher))))
    sizes: list[int] = []
    heap.run()
    assert max(sizes) <= replicas // 2
    assert dispatcher.is_idle
