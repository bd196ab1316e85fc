"""Replicas that die one after the other under load: no stream that could go on is ended by that."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from tests.dispatch.event_heap import CHAT, EventHeap, Fate, HeapExchange, dispatcher_on, route, table

KILLS = 100
KILL_EVERY_S = 3.2
SEEDS = range(6)
# A lane in a hurry would refuse those who cannot be in time.
PATIENT = replace(CHAT, max_wait_s=30.0)
WAIT_S_MAX = 2.0  # for the first token, on a busy machine


def outlived(seed: int, limits: DispatchLimits) -> list[list[str]]:
    """Kill a replica of three every few seconds, each replaced 2 s later; return how every stream ended."""
    rng = random.Random(seed)
    heap = EventHeap()
    dispatcher = dispatcher_on(heap, limits=limits, seed=seed)
    living = ["r0", "r1", "r2"]
    exchanges: list[HeapExchange] = []
    versions = iter(range(1, 10 * KILLS))

    def publish() -> None:
        dispatcher.apply(table(*map(route, living), lanes=(PATIENT,), version=next(versions)))

    def arrive() -> None:
        # Some wait long for their first token: most are then still without one when their replica dies.
        token_s = rng.uniform(0.1, WAIT_S_MAX)
        exchange = HeapExchange(heap, dispatcher, lambda _: Fate(token_s, token_s + rng.uniform(0.5, 8.0)))
        exchanges.append(exchange)
        exchange.submit()

    def kill(number: int) -> None:
        victim = rng.choice(living)
        living.remove(victim)
        for exchange in exchanges:
            request = exchange.request
            if request.state is not RequestState.OVER and request.replica and request.replica.route.id == victim:
                exchange.cancel()
                dispatcher.failed(request, RequestEvent.CLOSED)
        heap.at(heap.now_s + 0.5, publish)
        heap.at(heap.now_s + 2.0, lambda: living.append(f"r{number + 3}"))
        heap.at(heap.now_s + 2.0, publish)

    publish()
    for number in range(KILLS):
        heap.at((number + 1) * KILL_EVERY_S + rng.uniform(-1.0, 1.0), partial(kill, number))
    for number in range(int(KILLS * KILL_EVERY_S)):
        heap.at(number + rng.random(), arrive)
    heap.run()
    return [exchange.ends for exchange in exchanges]


def test_streams_outlive_replicas_that_die_one_after_the_other():
    for seed in SEEDS:
        ends = outlived(seed, DispatchLimits())
        assert [end for end in ends if end != ["answered", "over"]] == [], seed


def test_two_deaths_before_the_first_token_are_not_a_streams_own_doing():
    once_only = [end for seed in SEEDS for end in outlived(seed, DispatchLimits(resends_lost_max=1))]
    assert ["failed: closed", "over"] in once_only
