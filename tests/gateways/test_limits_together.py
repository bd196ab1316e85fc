"""Several gateways hold each limit together, whatever is late, lost or dead, and serve about as much as one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fleetctl.core.allotment import Allotter
from tests.gateways.several import LANE, Several

SMALL = replace(LANE, queue_max=12)


def _held(rig: Several, limit: int) -> None:
    for name in rig.engines:
        assert rig.in_flight(name) <= limit, f"{rig.in_flight(name)} of {limit} at {name}, {rig.heap.now_s:.2f} s"
    queues = [gateway.dispatcher.routes.lanes[LANE.name].queue.size for gateway in rig.gateways.values()]
    assert sum(queues) <= SMALL.queue_max, f"{queues} wait, {rig.heap.now_s:.2f} s"


@pytest.mark.parametrize("seed", range(4))
def test_no_limit_is_passed_whoever_is_lost_dead_or_new(seed: int) -> None:
    chance, limit = random.Random(seed), 5
    rig = Several([0.5, 0.3, 0.2, 0.4], replicas=2, streams_max=limit, lane=SMALL, seed=seed)
    for step in range(1, 120):
        match chance.randrange(12):
            case 0 if len(rig.gateways) > 1:
                rig.kill(chance.choice(list(rig.gateways)))
            case 1 if len(rig.gateways) < 4:
                rig.add(next(n for n in range(1, 5) if n not in rig.gateways))
            case 2 | 3:
                gateway = chance.choice(list(rig.gateways.values()))
                gateway.is_reachable = not gateway.is_reachable
            case 4:  # another controller takes over, and knows nothing
                rig.take_over()
            case _:
                pass
        rig.run(12.0, step * 0.15)
        _held(rig, limit)
    for gateway in rig.gateways.values():
        gateway.is_reachable = True
    before = sum(gateway.ended for gateway in rig.gateways.values())
    rig.run(4.0, rig.heap.now_s + 5.0)
    assert sum(gateway.ended for gateway in rig.gateways.values()) > before


@pytest.mark.parametrize(
    ("weights", "load", "least"),
    [
        ([0.5, 0.5], 1.0, 0.97), ([0.9, 0.1], 1.0, 0.97), ([0.25] * 4, 1.0, 0.97),
        ([0.5, 0.5], 2.0, 0.88), ([0.9, 0.1], 2.0, 0.92), ([0.25] * 4, 2.0, 0.88),
    ],
)  # fmt: skip
def test_several_serve_about_as_much_as_one(weights: list[float], load: float, least: float) -> None:
    def good(split: list[float]) -> int:
        rig = Several(split, seed=3)
        rig.run(8.5 * load, 30.0)
        return rig.good

    assert good(weights) >= least * good([1.0])


def test_one_that_has_all_traffic_has_nearly_all_slots() -> None:
    rig = Several([1.0, 0.0], replicas=1, streams_max=10, lane=LANE)
    rig.run(12.0, 6.0)
    assert rig.gateways[1].dispatcher.routes.replicas["r0"].candidate.in_flight >= 9


def test_a_dead_gateways_share_is_given_back_at_the_next_exchange() -> None:
    rig = Several([0.5, 0.5], replicas=1, streams_max=10)
    rig.run(12.0, 6.0)
    rig.kill(2)
    rig.exchange_now()
    assert rig.gateways[1].dispatcher.routes.replicas["r0"].slots == 10
    assert rig.gateways[1].dispatcher.routes.lanes[LANE.name].places == LANE.queue_max


def test_one_that_is_not_reached_keeps_its_share_and_nobody_else_gets_it() -> None:
    rig = Several([0.5, 0.5], replicas=1, streams_max=10)
    rig.run(2.0, 2.0)
    lost = rig.gateways[2]
    lost.is_reachable = False
    share = lost.dispatcher.routes.replicas["r0"].slots
    assert share
    rig.run(30.0, 6.0)
    assert lost.dispatcher.routes.replicas["r0"].candidate.in_flight <= share
    assert rig.gateways[1].dispatcher.routes.replicas["r0"].slots == 10 - share


def test_one_that_fell_silent_with_a_queue_takes_no_turn_from_those_that_answer() -> None:
    seen: list[int | None] = []
    rig = Several(
        [0.5, 0.5], replicas=1, streams_max=10,
        after_each=lambda rig: seen.append(rig.gateways[1].dispatcher.routes.replicas["r0"].slots),
    )  # fmt: skip
    rig.run(30.0, 4.0)
    lost = rig.gateways[2]
    assert lost.dispatcher.routes.lanes[LANE.name].queue.size
    lost.is_reachable = False
    rig.heap.run(rig.heap.now_s + 0.25)  # it is missed, and the others are told
    seen.clear()
    rig.run(30.0, 8.0)
    assert len({*seen}) == 1, seen
    assert seen[0]
    lost.is_reachable = True
    rig.run(30.0, 9.0)
    seen.clear()
    rig.run(30.0, 12.0)
    assert 0 in seen, "it takes its turns again"


def test_an_open_breaker_lets_one_a_second_through_in_all() -> None:
    rig = Several([0.5, 0.5], replicas=1)
    rig.run(4.0, 1.0)
    passed = []
    for at in range(100):
        rig.exchange_now()
        now_s = rig.heap.now_s + at * 0.1
        passed += [
            now_s for g in rig.gateways.values() if g.dispatcher.routes.lanes[LANE.name].probe.lets_through(now_s)
        ]
    assert 9 <= len(passed) <= 11


def test_an_ejected_replica_is_tried_by_one_gateway_at_a_time() -> None:
    rig = Several([0.5, 0.5], replicas=2)
    rig.run(4.0, 1.0)
    for gateway in rig.gateways.values():
        gateway.dispatcher.routes.replicas["r0"].eject(rig.heap.now_s)
    rig.heap.run(rig.heap.now_s + 2.0)
    rig.exchange_now()
    may = [g.dispatcher.routes.replicas["r0"].candidate.may_probe for g in rig.gateways.values()]
    assert sorted(may) == [False, True]


def test_an_allotment_of_an_older_controller_is_refused() -> None:
    rig = Several([0.5, 0.5])
    sharing = rig.gateways[1].dispatcher.sharing
    before = rig.allotter.lowered(1)
    assert before is not None
    rig.take_over()
    rig.exchange_now()
    assert not sharing.take(before, rig.heap.now_s)


def test_one_that_is_gone_before_its_call_fails_is_nobody() -> None:
    allotter = Allotter(1)
    allotter.living([1, 2])
    allotter.living([1])
    allotter.missed(2)
    assert not allotter.is_silent(2)
    allotter.living([1, 2])
    assert not allotter.is_silent(2), "another process of that number has been asked nothing yet"
