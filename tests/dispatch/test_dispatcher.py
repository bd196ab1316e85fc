"""The gateway's own Dispatcher under an event heap: no socket, no event loop, no clock but the heap's."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.admission.admit import Admission, LaneLoad, admit
from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.core.dispatch.state import IllegalTransitionError, RequestEvent, RequestState
from fleetctl.core.routing.candidate import EngineLoad
from fleetctl.core.slo.endings import Ending
from fleetctl.model.gateway import ReplicaSignals, SignalFeed
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import RoutingRules
from tests.dispatch.event_heap import CHAT, EventHeap, Fate, HeapExchange, dispatcher_on, route, table

if TYPE_CHECKING:
    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.model.gateway import RouteLane, RouteReplica

FINE = Fate()
FAILURES = (
    RequestEvent.UNREACHABLE, RequestEvent.STALE_CONNECTION, RequestEvent.CLOSED, RequestEvent.STALLED,
    RequestEvent.PREEMPTED, RequestEvent.BUSY, RequestEvent.ERROR, RequestEvent.UNHEALTHY,
)  # fmt: skip


def heap_with(
    *replicas: RouteReplica, lanes: tuple[RouteLane, ...] = (CHAT,), limits: DispatchLimits | None = None, seed: int = 7
) -> tuple[EventHeap, Dispatcher]:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap, limits=limits, seed=seed)
    dispatcher.apply(table(*replicas, lanes=lanes))
    return heap, dispatcher


def submit(heap: EventHeap, dispatcher: Dispatcher, *fates: Fate, is_stream: bool = True) -> HeapExchange:
    """Submit one request that meets these fates at its first replicas, and is answered by the next."""
    left = iter(fates)
    exchange = HeapExchange(heap, dispatcher, lambda _: next(left, FINE))
    exchange.submit(is_stream=is_stream)
    return exchange


def is_clean(dispatcher: Dispatcher) -> bool:
    """Whether no slot, prefill token, KV cache or ticket is held."""
    candidates = [r.candidate for r in dispatcher.routes.replicas.values()]
    loads = [(c.in_flight, c.prefill_tokens, c.kv.free_tokens) for c in candidates]
    return dispatcher.is_idle and set(loads) <= {(0, 0, math.inf)}


def test_neither_an_event_loop_nor_a_socket_is_loaded():
    code = "import sys, fleetctl.core.dispatch.dispatcher; print({'asyncio', 'socket', 'selectors'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_request_passes_its_states_in_order():
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher)
    states = [exchange.request.state]
    for until_s in (0.05, 0.2):
        heap.run(until_s)
        states.append(exchange.request.state)
    assert states == [RequestState.SENT, RequestState.STREAMING, RequestState.OVER]
    assert exchange.ends == ["answered", "over"]
    assert is_clean(dispatcher)


def test_an_end_comes_once():
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher)
    heap.run()
    dispatcher.client_gone(exchange.request)  # may come late
    with pytest.raises(IllegalTransitionError):
        dispatcher.answered(exchange.request, Ending.COMPLETE)
    with pytest.raises(IllegalTransitionError):
        dispatcher.failed(exchange.request, RequestEvent.CLOSED)


def test_who_waits_is_dispatched_in_order_and_refused_at_the_deadline():
    heap, dispatcher = heap_with(route("r1", concurrency_max=1))
    exchanges = [submit(heap, dispatcher, Fate(0.1, 0.9)) for _ in range(4)]
    heap.run()
    assert [e.ends for e in exchanges[:3]] == [["answered", "over"]] * 3
    assert exchanges[3].ends == ["max-wait", "over"]
    assert [e.request.dispatched_s for e in exchanges[:3]] == [0.0, 0.9, 1.8]
    assert is_clean(dispatcher)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("is_stream", [True, False])
def test_one_failure_is_made_good_by_another_replica(failure, is_stream):
    heap, dispatcher = heap_with(route("r1"), route("r2"))
    exchange = submit(heap, dispatcher, Fate(0.5, 0.05, failure), is_stream=is_stream)  # before a token
    heap.run()
    assert sorted(exchange.sent_to) == ["r1", "r2"]
    assert exchange.ends == ["answered", "over"]
    assert is_clean(dispatcher)


def test_a_stale_connection_avoids_its_replica_only_while_there_is_another():
    stale = Fate(0.5, 0.01, RequestEvent.STALE_CONNECTION)
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, stale)
    heap.run()
    assert (exchange.sent_to, exchange.ends) == (["r1", "r1"], ["answered", "over"])
    assert dispatcher.routes.replicas["r1"].failures == 0
    dispatcher.apply(table(route("r1"), route("r2"), version=2))
    for _ in range(5):
        first = submit(heap, dispatcher, stale)
        heap.run(heap.now_s + 0.02)
        assert len(set(first.sent_to)) == 2
        heap.run()


def test_a_poison_request_visits_three_replicas_and_no_more():
    heap, dispatcher = heap_with(*(route(f"r{i}") for i in range(5)))
    closed = Fate(0.5, 0.05, RequestEvent.CLOSED)
    exchange = submit(heap, dispatcher, *[closed] * 5)
    heap.run()
    assert len(exchange.sent_to) == 3
    assert exchange.ends == ["failed: closed", "over"]


def test_a_busy_replica_is_passed_over_and_two_of_them_are_a_busy_lane():
    busy = Fate(0.5, 0.05, RequestEvent.BUSY)
    heap, dispatcher = heap_with(route("r1"), route("r2"))
    exchange = submit(heap, dispatcher, busy, busy)
    heap.run()
    assert sorted(exchange.sent_to) == ["r1", "r2"]
    assert exchange.ends == ["engines-busy", "over"]


def test_a_lost_stream_goes_on_only_where_an_engine_can():
    lost = Fate(0.01, 0.05, RequestEvent.CLOSED)
    for _ in range(10):
        heap, dispatcher = heap_with(route("vllm-1"), route("tgi", continues=False), route("vllm-2"))
        exchange = submit(heap, dispatcher, lost)
        heap.run(heap.now_s + 0.08)
        assert exchange.sent_to[1] in ("vllm-1", "vllm-2")
        dispatcher.client_gone(exchange.request)
        heap.run(heap.now_s + 60.0)
        assert is_clean(dispatcher)


def test_a_replica_that_breaks_every_stream_is_left_alone_though_each_begins_well():
    breaks = Fate(0.01, 0.05, RequestEvent.CLOSED)
    idle = replace(route("r2"), node_ready=False, continues=False)  # half of the lane, and nobody is sent there
    heap, dispatcher = heap_with(route("r1"), idle, limits=DispatchLimits(displaced_wait_s=2.0))
    for _ in range(3):
        submit(heap, dispatcher, breaks)
        heap.run(heap.now_s + 0.06)
    replica = dispatcher.routes.replicas["r1"]
    assert replica.candidate.ejected_until_s > heap.now_s
    assert replica.snapshot(heap.now_s).consecutive_failures == 3
    heap.run(heap.now_s + 10.0)
    # It is asked again, one stream at a time; only a whole answer clears it.
    heap.now_s += 10.0
    dispatcher.apply(table(route("r1"), version=2))
    probe = submit(heap, dispatcher, Fate(0.01, 0.5))
    heap.run(heap.now_s + 0.1)
    assert replica.candidate.ejected_until_s
    heap.run()
    assert probe.ends == ["answered", "over"]
    assert replica.snapshot(heap.now_s).consecutive_failures == 0


BREAKS = Fate(0.01, 0.02, RequestEvent.CLOSED)
GONE = Fate(0.01, 0.02, RequestEvent.UNREACHABLE)


@pytest.mark.parametrize(("fate", "ejected", "serves"), [(BREAKS, 1, True), (GONE, 2, False)])
def test_ejection_never_takes_more_than_half_a_lane_but_of_replicas_that_are_hung_or_gone(fate, ejected, serves):
    heap, dispatcher = heap_with(route("r1"), route("r2"))
    for _ in range(8):
        submit(heap, dispatcher, *[fate] * 9)
        heap.run(heap.now_s + 0.05)
    lane = dispatcher.routes.lanes["chat"]
    snapshot = lane.snapshot(heap.now_s)
    assert (snapshot.ejected, snapshot.serves, lane.has_replica) == (ejected, serves, serves)
    exchanges = [submit(heap, dispatcher) for _ in range(4)]
    assert [bool(exchange.sent_to) for exchange in exchanges] == [serves] * 4


def test_a_replica_that_is_admitted_again_is_asked_at_once_however_long_it_was_ejected():
    heap, dispatcher = heap_with(route("r1"))
    for _ in range(3):
        submit(heap, dispatcher, *[GONE] * 9)
        heap.run(heap.now_s + 0.05)
    replica = dispatcher.routes.replicas["r1"]
    assert replica.candidate.ejected_until_s > heap.now_s
    dispatcher.apply(table(replace(route("r1"), in_rotation=False), version=2))
    dispatcher.apply(table(route("r1"), version=3))
    exchanges = [submit(heap, dispatcher) for _ in range(2)]
    heap.run(heap.now_s + 1.0)
    assert [exchange.ends for exchange in exchanges] == [["answered", "over"]] * 2


def test_a_replica_whose_lane_has_gone_gets_nothing_new_and_says_what_it_carries():
    heap, dispatcher = heap_with(route("r1"), route("l1", "long"), lanes=(CHAT, replace(CHAT, name="long")))
    slow = HeapExchange(heap, dispatcher, lambda _: Fate(0.01, 5.0))
    slow.submit(lane="long")
    heap.run(heap.now_s + 1.0)
    dispatcher.apply(table(route("r1"), replace(route("l1", "long"), in_rotation=False), version=2))
    exchanges = [submit(heap, dispatcher) for _ in range(4)]
    heap.run(heap.now_s + 1.0)
    assert [exchange.sent_to for exchange in exchanges] == [["r1"]] * 4
    assert dispatcher.routes.replicas["l1"].snapshot(heap.now_s).in_flight == 1
    heap.run(heap.now_s + 5.0)
    assert slow.ends == ["answered", "over"]
    assert dispatcher.routes.replicas["l1"].snapshot(heap.now_s).in_flight == 0


@pytest.mark.parametrize(("replacement_s", "wait_s"), [(None, 30.0), (60.0, 300.0), (900.0, 30.0)])
def test_a_lost_stream_waits_for_as_long_as_a_replacement_takes_that_is_announced(replacement_s, wait_s):
    lane = replace(CHAT, max_wait_s=2.0, replacement_s=replacement_s)
    heap, dispatcher = heap_with(route("r1"), lanes=(lane,))
    exchange = submit(heap, dispatcher, Fate(0.01, 0.05, RequestEvent.CLOSED))
    heap.run(wait_s)
    assert exchange.ends == []
    heap.run(wait_s + 1.0)
    assert exchange.ends == ["broken: expired", "over"]


def test_a_stream_nobody_could_ever_continue_ends_at_once():
    lost = Fate(0.01, 0.05, RequestEvent.CLOSED)
    lane = replace(CHAT, max_wait_s=1800.0)
    heap, dispatcher = heap_with(route("t1", continues=False), route("t2", continues=False), lanes=(lane,))
    exchange = submit(heap, dispatcher, lost)
    heap.run()
    assert exchange.ends == ["broken: given-up", "over"]
    assert heap.now_s == pytest.approx(0.05)


@pytest.mark.parametrize(("step", "ends"), [(LadderStep.SPILL, "answered"), (LadderStep.NORMAL, "broken: given-up")])
def test_a_lost_stream_goes_on_in_another_lane_only_where_spilling_is_lawful(step, ends):
    lanes = (replace(CHAT, spill_to=("long",), step=step), replace(CHAT, name="long", lends=False))
    heap, dispatcher = heap_with(
        route("t1", continues=False), route("t2", continues=False), route("v1", "long"), lanes=lanes
    )
    lost = Fate(0.01, 0.05, RequestEvent.CLOSED)
    exchange = submit(heap, dispatcher, lost)
    heap.run()
    assert exchange.ends == [ends, "over"]
    assert is_clean(dispatcher)


def test_a_displaced_request_waits_for_a_replica_to_come_and_not_for_ever():
    closed = Fate(0.5, 0.05, RequestEvent.CLOSED)
    heap, dispatcher = heap_with(route("r1"), limits=DispatchLimits(displaced_wait_s=5.0))
    saved, lost = (submit(heap, dispatcher, closed) for _ in range(2))
    heap.run(1.0)
    assert saved.request.state is lost.request.state is RequestState.DISPLACED
    dispatcher.client_gone(lost.request)
    dispatcher.apply(table(route("r2"), version=2))
    heap.run()
    assert (saved.sent_to, saved.ends) == (["r1", "r2"], ["answered", "over"])
    forgotten = submit(heap, dispatcher, closed)
    began_s = heap.now_s
    heap.run()
    assert forgotten.ends == ["no-replica", "over"]
    assert heap.now_s - began_s == pytest.approx(2.05)  # the lane's max wait


def test_with_every_replica_dead_a_request_waits_no_longer_than_its_lane_promises():
    unreachable = Fate(0.5, 0.01, RequestEvent.UNREACHABLE)
    heap, dispatcher = heap_with(route("r1"), route("r2"))
    exchange = submit(heap, dispatcher, *[unreachable] * 9)
    heap.run()
    assert exchange.ends == ["no-replica", "over"]
    assert heap.now_s == pytest.approx(CHAT.max_wait_s, abs=0.05)


@pytest.mark.parametrize(
    ("coming_s", "ends_s", "ends"), [(7.0, 6.0, "answered"), (300.0, 2.0, "no-replica"), (None, 2.0, "no-replica")]
)
def test_it_waits_for_a_replacement_that_is_announced_and_expected_soon(coming_s, ends_s, ends):
    heap, dispatcher = heap_with(route("r1"))
    exchange = submit(heap, dispatcher, Fate(0.5, 0.01, RequestEvent.CLOSED))
    heap.run(1.0)
    announced = replace(CHAT, replacement_s=coming_s)
    dispatcher.apply(table(lanes=(announced,), version=2))
    heap.run(6.0)
    if exchange.ends:
        assert heap.now_s == pytest.approx(ends_s, abs=0.05)
    heap.now_s = 6.0
    dispatcher.apply(table(route("r2"), lanes=(announced,), version=3))
    heap.run()
    assert exchange.ends == [ends, "over"]


FROM_ZERO = replace(CHAT, max_wait_from_zero_s=120.0, replacement_s=80.0, queue_max=3)


def test_requests_of_a_lane_without_replicas_yet_wait_for_its_first_one():
    heap, dispatcher = heap_with(lanes=(FROM_ZERO,))
    exchanges = [submit(heap, dispatcher) for _ in range(4)]
    heap.run(80.0)
    assert [exchange.ends for exchange in exchanges] == [[], [], [], ["queue-full", "over"]]
    heap.now_s = 80.0
    dispatcher.apply(table(route("r1"), lanes=(FROM_ZERO,), version=2))
    heap.run()
    assert [exchange.ends for exchange in exchanges[:3]] == [["answered", "over"]] * 3
    assert is_clean(dispatcher)


def test_they_are_told_so_when_it_does_not_come_in_time():
    heap, dispatcher = heap_with(lanes=(FROM_ZERO,))
    exchange = submit(heap, dispatcher)
    heap.run(119.0)
    assert not exchange.ends
    heap.run()
    assert heap.now_s == pytest.approx(120.0)
    assert exchange.ends == ["from-zero", "over"]


@pytest.mark.parametrize(
    "lane",
    [
        replace(FROM_ZERO, max_wait_from_zero_s=None),
        replace(FROM_ZERO, max_wait_from_zero_s=0.0),
    ],
)
def test_a_lane_that_lost_its_replicas_or_holds_none_lets_requests_wait_as_ever(lane):
    heap, dispatcher = heap_with(lanes=(lane,))
    exchange = submit(heap, dispatcher)
    heap.run()
    assert heap.now_s == pytest.approx(lane.max_wait_s)
    assert exchange.ends == ["no-replica", "over"]


def test_a_refused_client_is_told_when_the_replacement_is_expected():
    heap, dispatcher = heap_with(lanes=(replace(CHAT, replacement_s=42.0),))
    exchange = submit(heap, dispatcher)
    heap.run()
    assert exchange.ends == ["no-replica", "over"]
    assert 42.0 <= dispatcher.routes.lanes["chat"].return_s(1, heap.now_s) <= 43.0


def test_a_lane_that_lacks_replicas_spills_without_any_step():
    lanes = (replace(CHAT, spill_to=("long",), lacks_replicas=True), replace(CHAT, name="long"))
    heap, dispatcher = heap_with(route("r1", concurrency_max=1), route("r2", "long"), lanes=lanes)
    exchanges = [submit(heap, dispatcher) for _ in range(2)]
    assert [exchange.sent_to for exchange in exchanges] == [["r1"], ["r2"]]


def test_a_request_may_take_so_long_in_all_however_many_replicas_it_has_had():
    heap, dispatcher = heap_with(route("r1"), route("r2"))
    short_lived = replace(table(route("r1"), route("r2"), version=2), request_timeout_s=10.0)
    dispatcher.apply(short_lived)
    exchange = submit(heap, dispatcher, Fate(0.01, 8.0, RequestEvent.CLOSED), Fate(0.01, 9e9))
    for second in range(1, 12):
        heap.run(float(second))
        heap.now_s = float(second)
        dispatcher.sweep(heap.now_s)
    assert len(exchange.sent_to) == 2
    assert exchange.ends == ["broken: timed-out", "over"]


def test_the_sweep_ends_what_stalls_or_takes_too_long():
    heap, dispatcher = heap_with(route("r1", continues=False))
    stalled = submit(heap, dispatcher, Fate(0.01, 9e9))
    whole = submit(heap, dispatcher, Fate(0.01, 9e9), is_stream=False)
    held = submit(heap, dispatcher, Fate(0.01, 9e9))
    heap.run(59.0)
    dispatcher.sweep(59.0)
    assert not stalled.ends
    held.request.is_paused = True  # its client does not read
    heap.now_s = 61.0
    dispatcher.sweep(61.0)
    assert stalled.ends == ["broken: given-up", "over"]
    assert not whole.ends
    assert not held.ends
    heap.now_s = 601.0
    dispatcher.sweep(601.0)
    assert whole.ends == ["failed: timed-out", "over"]
    assert held.ends == ["broken: timed-out", "over"]
    assert is_clean(dispatcher)


@pytest.mark.parametrize("step", list(LadderStep))
@pytest.mark.parametrize("prompt_tokens", [1, 10**9])
def test_a_free_slot_is_taken_exactly_when_admission_says_so(step, prompt_tokens):
    lane = replace(CHAT, step=step, interruptible=True)
    _, dispatcher = heap_with(route("r1"), lanes=(lane,))
    exchange = HeapExchange(EventHeap(), dispatcher, lambda _: FINE)
    exchange.submit(prompt_tokens=prompt_tokens)
    on_lane = dispatcher.routes.lanes["chat"]
    load = LaneLoad(queued=0, queue_max=64, max_wait_s=2.0, has_slot=True, drain_rate_rps=None)
    is_probe = on_lane.degradation.breaks  # the first one
    decided = admit(load, on_lane.degradation, prompt_tokens=prompt_tokens, is_probe=is_probe)
    assert (exchange.sent_to == ["r1"]) is (decided is Admission.DISPATCH)


def signals(id_: str, *, age_s: float = 0.0, kv_usage: float = 0.5, waiting: int = 2) -> ReplicaSignals:
    return ReplicaSignals(id=id_, age_s=age_s, running=1, waiting=waiting, kv_usage=kv_usage)


def test_an_engines_figures_are_seen_until_they_are_too_old():
    heap, dispatcher = heap_with(route("r1"), route("r2"))
    dispatcher.take_signals(SignalFeed(replicas=(signals("r1", age_s=5.0), signals("gone"))))
    seen = dispatcher.routes.replicas["r1"].candidate
    assert seen.engine == EngineLoad(running=1, waiting=2, kv_usage=0.5)
    assert dispatcher.routes.replicas["r2"].candidate.engine is None
    heap.now_s = 9.9
    dispatcher.sweep(9.9)
    assert seen.engine is not None
    heap.now_s = 10.0
    dispatcher.sweep(10.0)
    assert seen.engine is None


@pytest.mark.parametrize(
    "unsound",
    [
        signals("r1", kv_usage=float("nan")),
        signals("r1", kv_usage=1.5),
        signals("r1", waiting=-1),
        signals("r1", age_s=15.0),
    ],
)
def test_figures_that_are_too_old_or_cannot_be_true_are_not_decided_on(unsound):
    _, dispatcher = heap_with(route("r1"))
    dispatcher.take_signals(SignalFeed(replicas=(signals("r1"),)))
    dispatcher.take_signals(SignalFeed(replicas=(unsound,)))
    assert dispatcher.routes.replicas["r1"].candidate.engine is None


def test_the_weights_in_the_table_reach_the_pick():
    heap, dispatcher = heap_with(route("full"), route("empty"))
    dispatcher.routes.replicas["empty"].candidate.in_flight = 4
    feed = SignalFeed(replicas=(signals("full", kv_usage=1.0), signals("empty", kv_usage=0.0)))
    dispatcher.take_signals(feed)
    assert submit(heap, dispatcher).sent_to == ["full"]
    heap.run()
    rules = RoutingRules(scorers={"least-predicted-ttft": 3.0, "kv-headroom": 4.0})
    dispatcher.apply(replace(table(route("full"), route("empty"), version=2), routing=rules))
    assert submit(heap, dispatcher).sent_to == ["empty"]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    failing=st.floats(0.0, 0.6),
    leaving=st.floats(0.0, 0.3),
    churn=st.booleans(),
)
def test_whatever_happens_every_request_ends_once_and_holds_nothing(seed, failing, leaving, churn):
    rng = random.Random(seed)
    lanes = (replace(CHAT, spill_to=("long",), queue_max=8), replace(CHAT, name="long", max_wait_s=0.5))
    replicas = [route(f"r{i}", "chat" if i % 2 else "long", concurrency_max=2, continues=i % 3 > 0) for i in range(6)]
    heap, dispatcher = heap_with(*replicas, lanes=lanes, limits=DispatchLimits(displaced_wait_s=3.0), seed=seed)
    exchanges: list[HeapExchange] = []

    def fate(_: str) -> Fate:
        token_s, end_s = rng.uniform(0.0, 0.2), rng.uniform(0.0, 0.5)
        failure = rng.choice(FAILURES) if rng.random() < failing else None
        return Fate(min(token_s, end_s), end_s, failure)

    def arrive() -> None:
        exchange = HeapExchange(heap, dispatcher, fate, is_resumable=rng.random() < 0.7)
        exchanges.append(exchange)
        exchange.submit(rng.choice(("chat", "long")), is_stream=rng.random() < 0.6)
        if rng.random() < leaving:
            heap.at(heap.now_s + rng.uniform(0.0, 0.6), lambda: dispatcher.client_gone(exchange.request))

    def change(version: int) -> None:
        step = rng.choice(list(LadderStep))
        rows = [replace(r, in_rotation=rng.random() < 0.7) for r in replicas if rng.random() < 0.8]
        dispatcher.apply(table(*rows, lanes=(replace(lanes[0], step=step), lanes[1]), version=version))

    for i in range(120):
        heap.at(i * 0.02, arrive)
        if churn and i % 10 == 5:
            heap.at(i * 0.02, partial(change, i + 2))
        heap.at(i * 0.1, lambda: dispatcher.sweep(heap.now_s))
    heap.run()
    assert all(Counter(e.ends)["over"] == 1 and e.ends[-1] == "over" for e in exchanges)
    # A client that left is told nothing, any other exactly one thing.
    assert all(len(e.ends) <= 2 for e in exchanges)
    assert {e.request.state for e in exchanges} == {RequestState.OVER}
    assert all(e.request.ticket is None and e.request.replica is None for e in exchanges)
    assert is_clean(dispatcher)


def test_a_replica_on_a_node_that_is_not_ready_is_picked_only_where_no_other_can_be():
    doubtful = replace(route("r1"), node_ready=False, prefill_tokens_per_s=1e6)
    heap, dispatcher = heap_with(doubtful, route("r2"))
    exchanges = [submit(heap, dispatcher) for _ in range(4)]
    loads = {r.route.id: r.candidate.in_flight for r in dispatcher.routes.replicas.values()}
    assert loads == {"r1": 0, "r2": 4}
    dispatcher.apply(replace(table(doubtful), version=2))
    last = submit(heap, dispatcher)
    heap.run(5.0)
    assert [exchange.ends[-1] for exchange in (*exchanges, last)] == ["over"] * 5
