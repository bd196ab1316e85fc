"""Where the caps leave no room for a canary a rollout waits for what is leaving; else its first replacement is judged."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.profile import CapacitySpec, ReplicaShare, RolloutSpec
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import LanePhase
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET
from tests.controller.test_rollouts import BAKE_S, NEW, OLD, Fleet, fleet_plan, of_one
from tests.reconcile.worlds import traffic

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.plan import Plan

READY = ReplicaState.READY


def calm(fleet: Fleet) -> None:
    """Have so little come that one replica carries a lane."""
    fleet.rig.gateway.lanes = (traffic("short", rps=0.2), traffic("long", rps=0.2))


async def until_begun(fleet: Fleet, lane: str, phase: LanePhase) -> None:
    """Let time pass until a lane has come to a phase."""
    desired = fleet.rig.store.fleet(FLEET)
    assert desired is not None
    for _ in range(600):
        if fleet.rollout.revision == desired.revision and fleet.rollout.lanes[lane].phase is phase:
            return
        await fleet.rig.clock.sleep(0.25)
    pytest.fail(f"{lane} never came to be {phase}: {fleet.rollout}")


def test_the_next_lane_waits_for_the_node_of_one_that_still_drains_and_has_its_canary(tmp_path: Path) -> None:
    """Its bad revision was rolled out without one."""

    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=5))
        async with fleet.rig.controller():
            await fleet.settle()
            calm(fleet)
            known = {r.id for r in fleet.rig.replicas()}
            old = sorted((r.created_at, r.id) for r in fleet.rig.replicas(READY) if r.lane == "short")
            last = old[-1][1]
            fleet.rig.gateway.in_flight = {last: 1}
            fleet.put(fleet_plan("--new"))
            await until_begun(fleet, "long", LanePhase.CANARY)
            least = await fleet.until(15)
            assert {r.id: r.state for r in fleet.rig.replicas()}[last] is ReplicaState.DRAINING
            assert fleet.ready("long") == [OLD, OLD]
            assert fleet.rollout.lanes["long"].phase is LanePhase.CANARY
            assert "until what is leaving has ended" in fleet.rollout.waits["long"]
            fleet.rig.gateway.good = dict.fromkeys(known, 500)
            fleet.rig.gateway.in_flight = {}
            least += await fleet.until(10)
            assert fleet.ready("long") == [OLD, OLD, NEW]
            (canary,) = [r.id for r in fleet.rig.replicas(READY) if r.lane == "long" and r.id not in known]
            fleet.rig.gateway.breached = {canary: {"ttft": 40}}
            fleet.rig.gateway.good = dict.fromkeys(known, 540)
            least += await fleet.until(100)
            assert fleet.rollout.undoes == 2
            assert "new replicas serve worse" in fleet.rollout.reason
            assert fleet.ready("long") == [OLD, OLD]
            assert dict(least)["long"] == 2

    run_virtual(scenario())


def test_what_the_same_up_gives_up_makes_room_for_the_canary(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=5))
        fleet.put(with_three(fleet.first))
        async with fleet.rig.controller():
            await fleet.settle()
            calm(fleet)
            assert len(fleet.ready("short")) == 3
            fleet.put(fleet_plan("--new", changed=("long",)))
            seen = []
            for _ in range(400):
                await fleet.rig.clock.sleep(0.25)
                seen.append(fleet.ready("long"))
            assert [OLD, OLD, NEW] in seen
            assert min(len(each) for each in seen) == 2
            assert not fleet.rollout.lanes["long"].is_in_place

    run_virtual(scenario())


def with_three(plan: Plan) -> Plan:
    """Return the plan with three replicas in its first lane."""
    return replace(plan, lanes=(replace(plan.lanes[0], replicas=3, on_demand=3), *plan.lanes[1:]))


def test_without_room_the_first_replacement_is_judged_beside_the_rest_before_they_follow(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=4))
        async with fleet.rig.controller() as controller:
            await fleet.settle()
            calm(fleet)
            fleet.put(fleet_plan("--new", changed=("short",)))
            seen = []
            for _ in range(400):
                await fleet.rig.clock.sleep(0.25)
                seen.append(fleet.ready("short"))
            assert seen.count([OLD, NEW]) >= BAKE_S / 0.25
            assert fleet.ready("short") == [NEW, NEW]
            status = controller.status()
            assert status is not None
            assert status.rollout is not None
            notes = {lane.lane: lane.note for lane in status.rollout.lanes}
            assert notes == {
                "short": "no room for a canary beside the others: its first replacement was judged",
                "long": "",
            }

    run_virtual(scenario())


@pytest.mark.parametrize("max_unavailable", [0, 2])
def test_a_first_replacement_that_serves_worse_is_the_only_one(tmp_path: Path, max_unavailable: int) -> None:
    async def scenario() -> None:
        spec = RolloutSpec(bake_s=BAKE_S, max_unavailable=ReplicaShare(count=max_unavailable))
        fleet = Fleet(tmp_path, spec, capacity=CapacitySpec(max_nodes=5))
        fleet.put(with_three(fleet.first))
        async with fleet.rig.controller():
            await fleet.settle()
            calm(fleet)
            known = {r.id for r in fleet.rig.replicas()}
            fleet.rig.gateway.good = dict.fromkeys(known, 500)
            fleet.put(with_three(fleet_plan("--new", changed=("short",))))
            await until_begun(fleet, "short", LanePhase.ROLLING)
            await fleet.until(15)
            assert fleet.ready("short") == [OLD, OLD, NEW]
            (first,) = {r.id for r in fleet.rig.replicas(READY)} - known
            fleet.rig.gateway.breached = {first: {"ttft": 40}}
            fleet.rig.gateway.good = dict.fromkeys(known, 540)
            await fleet.until(100)
            assert fleet.rollout.undoes == 3
            assert "0 of 40 requests good (40 ttft) by new replicas" in fleet.rollout.reason
            assert fleet.ready("short") == [OLD, OLD, OLD]
            begun = [order.replica_id for order in fleet.rig.provider.orders if "--new" in order.argv]
            assert begun == [first]

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("max_nodes", "rps", "serving"),
    [
        (5, 2.0, [(2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]),
        (4, 0.2, [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2)]),
    ],
    ids=["room for one", "none"],
)
def test_a_renamed_lane_has_room_at_the_cap_as_the_old_one_gives_up_one_at_a_time(
    tmp_path: Path, max_nodes: int, rps: float, serving: list[tuple[int, int]]
) -> None:
    """It stood still until its timeout."""

    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=max_nodes))
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.rig.gateway.lanes = (traffic("short", rps=0.2), traffic("long", rps=rps))
            short, long = fleet.profile.lanes
            renamed = replace(fleet.profile, lanes=(short, replace(long, name="wide")))
            fleet.put(fleet_plan(lanes=("short", "wide")), renamed)
            seen = []
            for _ in range(240):
                await fleet.rig.clock.sleep(0.25)
                seen.append((len(fleet.serving("long")), len(fleet.serving("wide"))))
            steps = [state for state, _ in itertools.groupby(seen)]
            assert steps == serving
            assert len(fleet.ready("wide")) == 2
            assert {r.lane for r in fleet.rig.replicas(READY)} == {"short", "wide"}
            assert fleet.rollout.is_over
            assert fleet.rollout.reason == ""

    run_virtual(scenario())


def test_the_last_replica_of_a_renamed_lane_stays_until_another_serves(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=2))
        lanes = tuple(replace(lane, replicas=replace(lane.replicas, min=1, max=1)) for lane in fleet.profile.lanes)
        fleet.profile = replace(fleet.profile, lanes=lanes)
        fleet.put(of_one(fleet_plan()))
        async with fleet.rig.controller():
            await fleet.settle()
            calm(fleet)
            short, long = lanes
            renamed = replace(fleet.profile, lanes=(short, replace(long, name="wide")))
            fleet.put(of_one(fleet_plan(lanes=("short", "wide"))), renamed)
            least = await fleet.until(60)
            assert dict(least) == {"short": 1, "long": 1}
            assert not fleet.rollout.is_over

    run_virtual(scenario())
