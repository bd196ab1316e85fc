"""Peers' routers and admission by their published arithmetic, and behind a plain gateway."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest

from fleetctl.core.routing.candidate import Candidate
from fleetctl.core.static_policy import static
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from tests.bench.policies.cases import level
from tests.bench.policies.peers.catalogue import GATEWAYS, dispatcher_of
from tests.bench.policies.peers.gateway import EngineReadings
from tests.bench.policies.peers.routers import (
    InFlightCap,
    LeastOutstanding,
    PowerOfTwo,
    RoundRobin,
    picker_scores,
    pool_saturation,
)
from tests.bench.policies.scenarios import SCENARIOS
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.sim.engine import SimulatedEngine
    from fleetctl.sim.result import SimulationResult

# These routers do not look at it.
REQUEST = cast("ActiveRequest", None)


def candidates(*in_flight: int) -> list[Candidate]:
    return [
        Candidate(id=f"r{at}", in_rotation=True, concurrency_max=8, prefill_tokens_per_s=0.0, in_flight=count)
        for at, count in enumerate(in_flight)
    ]


def test_round_robin_takes_turns():
    router, pool = RoundRobin(), candidates(9, 0, 5)
    assert sorted(router.pick(pool, REQUEST, 0.0).id for _ in range(6)) == ["r0", "r0", "r1", "r1", "r2", "r2"]


def test_least_outstanding_looks_at_all_and_draws_among_equals():
    router, pool = LeastOutstanding(random.Random(1)), candidates(3, 1, 1, 4)
    assert {router.pick(pool, REQUEST, 0.0).id for _ in range(50)} == {"r1", "r2"}


def test_power_of_two_never_takes_the_busiest_and_takes_the_second_now_and_then():
    router, pool = PowerOfTwo(random.Random(1)), candidates(9, 3, 1)
    drawn = [router.pick(pool, REQUEST, 0.0).id for _ in range(300)]
    assert "r0" not in drawn
    assert drawn.count("r1") == pytest.approx(100, rel=0.3)


def test_the_picker_scores_the_queue_by_its_place_and_the_cache_by_what_is_free():
    assert picker_scores([0, 5, 10], [0.5, 0.0, 0.0]) == [3.0, 3.0, 2.0]
    assert picker_scores([4, 4], [0.25, 0.5]) == [3.5, 3.0]  # equal queues: all have the best


def test_a_pool_is_saturated_at_five_waiting_or_four_fifths_of_the_cache_on_average():
    assert pool_saturation([5, 5], [0.0, 0.0]) == 1.0
    assert pool_saturation([10, 0], [0.0, 0.0]) == 1.0  # one busy engine stops dispatch to an idle one
    assert pool_saturation([0, 0], [0.8, 0.4]) == pytest.approx(0.75)


def test_a_cap_on_requests_under_way_leaves_those_below_it():
    assert [c.id for c in InFlightCap(14).open_to(candidates(14, 13), 0.0)] == ["r1"]
    assert not InFlightCap(14).open_to(candidates(14, 14), 0.0)


def test_the_picker_decides_on_figures_up_to_fifty_milliseconds_old():
    class Engine:
        kv_usage = 0.5

        def __init__(self) -> None:
            self.waiting = ["one"]

        def settle(self) -> None:
            pass

    engine = Engine()
    readings = EngineReadings(lambda _: cast("SimulatedEngine", engine))
    assert readings.of("r1", 1.0) == (1, 0.5)
    engine.waiting = []
    assert readings.of("r1", 1.04) == (1, 0.5)
    assert readings.of("r1", 1.06) == (0, 0.5)


def run_behind(gateway: str, rps: float, *, seconds: float = 20.0) -> SimulationResult:
    case = SCENARIOS["smoke"]
    return simulate(
        case.desired(), level(rps, 3000, seconds=seconds)(5, ""), policy=static, offerings=offerings(),
        spec=SimulationSpec(seed=5, settled=case.settled), dispatcher_of=dispatcher_of(gateway),
    )  # fmt: skip


@pytest.mark.parametrize("gateway", sorted(GATEWAYS))
def test_every_request_ends_once_behind_every_gateway(gateway):
    result = run_behind(gateway, 8.0, seconds=10.0)
    lane = result.lane("all")
    assert lane.offered == result.requests
    assert lane.good_share is not None
    assert lane.good_share > 0.9
    assert not result.violations


def test_an_overloaded_picker_lets_everybody_wait_and_sheddable_requests_keep_the_rest_in_time():
    plain, sheddable = (run_behind(name, 40.0).lane("all") for name in ("picker", "picker-sheddable"))
    assert not plain.refused
    assert sheddable.refused["shed"] > 0
    assert sheddable.good > 1.2 * plain.good


def test_flow_control_answers_503_once_a_request_has_waited_its_time_to_live():
    lane = run_behind("picker-flow-control", 40.0).lane("all")
    assert lane.refused["no-replica"] > 0
    assert lane.good < 0.9 * lane.offered
