"""A simulated fleet as a whole: every request ends once, seeds repeat, disturbances do what they say."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.config.spot_trace import SpotRow
from fleetctl.core.reconcile import reconcile
from fleetctl.core.static_policy import static
from fleetctl.load.trace import Arrival
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import Disturbance, DisturbanceKind, SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.sim.fleets import desired_for, offerings, three_lanes

ROOT = Path(__file__).resolve().parents[2]
DESIRED = desired_for(three_lanes())
SETTLED = {"short": 1, "long": 2, "batch": 1}


def poisson(rps: float, seconds: float, *, seed: int = 1) -> list[Arrival]:
    """Short, long and a few batch requests."""
    dice, found, at_s = random.Random(seed), [], 0.0
    while (at_s := at_s + dice.expovariate(rps)) < seconds:
        batch = dice.random() < 0.05
        found.append(
            Arrival(
                at_s=at_s, prompt_tokens=round(dice.lognormvariate(6.5, 0.8)) + 1,
                output_tokens=round(dice.lognormvariate(4.6, 0.6)) + 1, stream=not batch, batch=batch,
            )
        )  # fmt: skip
    return found


def figures(seed: int) -> str:
    """A fleet with every kind of misfortune, as text."""
    spec = SimulationSpec(
        seed=seed,
        settled=SETTLED,
        boot_s=40.0,
        retries_max=2,
        disturbances=(
            Disturbance(kind=DisturbanceKind.SLOW, at_s=20, for_s=60, lane="long", factor=3.0),
            Disturbance(kind=DisturbanceKind.HANG, at_s=60, for_s=30, lane="short"),
            Disturbance(kind=DisturbanceKind.KILL, at_s=120, lane="long"),
            Disturbance(kind=DisturbanceKind.STALE_GATEWAY, at_s=130, for_s=20),
            Disturbance(kind=DisturbanceKind.NO_ENGINE_METRICS, at_s=140, for_s=20),
            Disturbance(kind=DisturbanceKind.NO_NODES, at_s=150, for_s=20),
        ),
    )
    return repr(simulate(DESIRED, poisson(8, 240), policy=reconcile, spec=spec, offerings=offerings()))


def test_a_calm_fleet_serves_everybody():
    result = simulate(DESIRED, poisson(3, 120), policy=static, spec=SimulationSpec(settled=SETTLED))

    assert result.requests == sum(lane.offered for lane in result.lanes)
    assert [lane.good_share for lane in result.lanes] == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
    assert [lane.replicas_mean for lane in result.lanes] == pytest.approx([1.0, 2.0, 1.0], rel=0.01)
    assert sum(result.lane("long").good_over_time) == result.lane("long").good
    assert result.lane("long").ttft.count == result.lane("long").offered
    assert result.lane("batch").output_tokens > 0
    assert result.violations == ()


def test_every_request_ends_once_whatever_happens():
    spec = SimulationSpec(
        settled=SETTLED,
        boot_s=30.0,
        disturbances=(
            Disturbance(kind=DisturbanceKind.KILL, at_s=30, lane="short"),
            Disturbance(kind=DisturbanceKind.HANG, at_s=40, lane="long"),
        ),
    )
    world = SimulatedWorld(DESIRED, reconcile, spec, offerings=offerings())
    trace = poisson(12, 150)
    world.run(trace)

    assert world.violations() == ()
    lanes = list(world.dispatcher.routes.lanes.values())
    counted = sum(lane.accounts.totals().good + lane.accounts.totals().bad for lane in lanes)
    assert counted + world.open == len(trace)


def test_an_overload_is_refused_and_counted_by_reason():
    result = simulate(DESIRED, poisson(60, 120), policy=static, spec=SimulationSpec(settled=SETTLED))

    lane = result.lane("long")
    assert lane.good_share is not None
    assert lane.good_share < 0.9
    assert sum(lane.refused.values()) == lane.breached["refused"]
    assert sum(lane.refused_over_time) == sum(lane.refused.values())
    assert lane.over_slo_s > 60


def test_clients_with_patience_come_back_when_they_were_told_to():
    spec = SimulationSpec(settled=SETTLED, retries_max=3)
    result = simulate(DESIRED, poisson(60, 60), policy=static, spec=spec)

    assert result.lane("long").came_again > 50
    alone = simulate(DESIRED, poisson(60, 60), policy=static, spec=SimulationSpec(settled=SETTLED))
    bursts = [each.lane("long").arrivals.measured for each in (result, alone)]
    assert bursts[0] == bursts[1], "who comes back makes the traffic of a fleet that refuses no burstier"
    arrived = result.requests + sum(lane.came_again for lane in result.lanes)
    assert sum(sum(lane.offered_over_time) for lane in result.lanes) == arrived


def test_a_killed_replica_is_replaced_after_its_boot_time():
    spec = SimulationSpec(
        settled=SETTLED, disturbances=(Disturbance(kind=DisturbanceKind.KILL, at_s=60, lane="short"),)
    )
    world = SimulatedWorld(DESIRED, static, spec, offerings=offerings())
    world.run(poisson(3, 300))

    assert "r1" not in world.controller.records
    assert sum(record.lane == "short" for record in world.controller.records.values()) == 1
    assert world.recorders["short"].ready_s == pytest.approx(300 - 125, abs=20)


def test_a_fleet_that_starts_fresh_boots_what_is_planned():
    spec = SimulationSpec(boot_s=20.0)
    result = simulate(DESIRED, poisson(3, 120), policy=reconcile, spec=spec, offerings=offerings())

    assert sum(count for code, count in result.decisions.items() if code.startswith("launch")) >= 3
    assert result.lane("long").refused or result.lane("long").breached
    assert result.lane("long").good > 0


def test_who_was_held_for_the_first_boot_is_late_and_moves_neither_the_ladder_nor_the_size():
    result = simulate(
        DESIRED, poisson(3, 240), policy=reconcile, spec=SimulationSpec(boot_s=90.0), offerings=offerings()
    )

    planned = sum(lane.replicas for lane in DESIRED.plan.lanes)
    assert result.decisions["launch replica-lacking"] == planned
    assert not [what for what in result.decisions if what.startswith("set-step")]
    assert result.lane("long").refused == {}
    assert result.lane("long").breached["ttft"] > 50


def test_a_slow_replica_makes_its_answers_late():
    # Every lane's: else the others' replicas would answer in time.
    slow = tuple(
        Disturbance(kind=DisturbanceKind.SLOW, at_s=10, lane=lane, count=2, factor=6.0)
        for lane in ("short", "long", "batch")
    )
    calm = simulate(DESIRED, poisson(4, 60), policy=static, spec=SimulationSpec(settled=SETTLED))
    slowed = simulate(DESIRED, poisson(4, 60), policy=static, spec=SimulationSpec(settled=SETTLED, disturbances=slow))

    assert slowed.lane("long").itl.p50_s > 3 * calm.lane("long").itl.p50_s


def test_spot_nodes_are_announced_and_taken_where_a_zone_has_none_left():
    desired = desired_for(three_lanes(spot="all", batch=20))
    rows = tuple(SpotRow(at_s=0, zone=zone, available=4) for zone in "abc") + tuple(
        SpotRow(at_s=100, zone=zone, available=0) for zone in "ab"
    )
    spec = SimulationSpec(settled={"short": 1, "long": 4, "batch": 1}, spot=rows, notice_s=60.0)
    world = SimulatedWorld(desired, reconcile, spec, offerings=offerings())
    world.run(poisson(3, 400))

    live = [record for record in world.controller.records.values() if record.market.value == "spot"]
    assert all(record.zone == "c" for record in live)
    assert world.violations() == ()


def test_what_stood_in_for_spot_is_given_back_and_nobody_misses_anything():
    desired = desired_for(three_lanes(spot="all", batch=0))
    rows = tuple(SpotRow(at_s=s, zone=zone, available=n) for s, n in ((0, 4), (200, 0), (600, 4)) for zone in "abc")
    spec = SimulationSpec(settled={"short": 1, "long": 4, "batch": 1}, boot_s=60.0, spot=rows, notice_s=120.0)
    world = SimulatedWorld(desired, static, spec, offerings=offerings())
    world.run(poisson(2, 1200))
    markets = [r.market.value for r in world.controller.records.values() if r.lane == "long"]
    assert markets == ["spot"] * 4
    decisions = world.controller.decisions
    assert decisions["launch replica-replaced"] == 5  # four long, one batch: in the tick of the notice
    assert decisions["launch spot-again"] >= 5
    assert all(record.losses > 0 for record in world.controller.memory.offerings.values() if record.lost_at)


def test_the_same_seed_gives_the_same_figures_under_any_hash_seed():
    code = "from tests.sim.test_world import figures; print(figures(3))"
    found = set()
    for hash_seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT, env=env)
        found.add(hashlib.sha256(out.stdout).hexdigest())
    assert len(found) == 1


def flood(count: int, *, stream: bool = False) -> list[Arrival]:
    """More batch work at once than a replica does in a minute."""
    return [
        Arrival(at_s=0.01 * number, prompt_tokens=2000, output_tokens=1000, stream=stream, batch=not stream)
        for number in range(count)
    ]


def test_what_has_not_ended_with_the_simulation_is_offered_and_unfinished():
    spec = SimulationSpec(settled=SETTLED, tail_s=10.0)
    lane = simulate(DESIRED, flood(200), policy=static, spec=spec).lane("batch")

    assert lane.offered == 200 == sum(lane.offered_over_time)
    assert lane.unfinished > 100
    assert lane.undecided == lane.unfinished  # its completion is promised within far longer
    decided = lane.good + sum(lane.breached.values())
    assert decided + lane.undecided == lane.offered
    assert lane.good_share == (lane.good / decided if decided else None)


def test_a_simulation_goes_on_until_everything_has_ended():
    spec = SimulationSpec(settled=SETTLED)
    world = SimulatedWorld(DESIRED, static, spec, offerings=offerings())
    world.run(flood(200))

    assert world.open == 0
    assert world.violations() == ()
    assert world.recorders["batch"].unfinished == 0
    assert world.recorders["batch"].held_s < 10  # replicas are counted while requests arrive


def test_what_waits_past_its_promise_when_the_simulation_ends_is_missed():
    hang = tuple(
        Disturbance(kind=DisturbanceKind.HANG, at_s=0.5, lane=lane, count=2) for lane in ("short", "long", "batch")
    )
    trace = [Arrival(at_s=1.0, prompt_tokens=100, output_tokens=50, stream=True)]
    spec = SimulationSpec(settled=SETTLED, tail_s=4.0, disturbances=hang)
    result = simulate(DESIRED, trace, policy=static, spec=spec)

    lane = result.lane("short")
    assert (lane.offered, lane.unfinished, lane.undecided) == (1, 1, 0)
    assert lane.good_share == 0.0


def test_what_no_lane_takes_is_counted_by_its_refusal():
    trace = [
        Arrival(at_s=0.0, prompt_tokens=200, output_tokens=50, stream=True),
        Arrival(at_s=1.0, prompt_tokens=10**7, output_tokens=9, stream=True),
    ]
    result = simulate(DESIRED, trace, policy=static, spec=SimulationSpec(settled=SETTLED))

    assert sum(result.unrouted.values()) == 1
    assert sum(lane.offered for lane in result.lanes) == 1
    assert result.lane("batch").good_share is None


def test_what_is_cached_is_work_in_the_lanes_whose_engines_cache_nothing():
    rows = [
        Arrival(at_s=float(n), prompt_tokens=300, cached_tokens=700, output_tokens=5, stream=True) for n in range(9)
    ]

    def lanes(*without: str) -> dict[str, int]:
        plan = DESIRED.plan
        each = tuple(
            replace(lane, launch=replace(lane.launch, prefix_caching=lane.lane not in without)) for lane in plan.lanes
        )
        wanted = replace(DESIRED, plan=replace(plan, lanes=each))
        spec = SimulationSpec(settled=SETTLED)
        found = simulate(wanted, rows, policy=static, spec=spec, offerings=offerings())
        return {each.lane: each.offered for each in found.lanes if each.offered}

    assert lanes() == {"short": 9}
    assert lanes("short") == lanes("short", "long", "batch") == {"long": 9}
    assert lanes("long") == {"short": 9}
