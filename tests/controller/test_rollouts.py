"""A changed profile reaches a running fleet lane by lane; killed anywhere, the next controller comes to the same end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.reconcile.limits import backoff_s
from fleetctl.core.rollout.advance import RolloutView, advance
from fleetctl.gateway.degrade import renamed
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import LaneMemory
from fleetctl.model.desired import Overrides
from fleetctl.model.profile import (
    CapacitySpec,
    ControlSpec,
    Mode,
    Profile,
    ReplicaShare,
    RolloutSpec,
)
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.rollout import LanePhase, Revision, Rollout, RolloutPhase
from fleetctl.ports.records import Collection
from fleetctl.testing import samples
from fleetctl.testing.provider import Fault
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig
from tests.reconcile.worlds import traffic

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import Plan

STATE = ReplicaState
BAKE_S = 20.0
ROLLOUT = RolloutSpec(bake_s=BAKE_S)
COST_OF_FOUR = sum(lane.replicas * lane.offering.price_usd_per_hour for lane in samples.plan(FLEET).lanes)


def fleet_profile(rollout: RolloutSpec = ROLLOUT, **changes: object) -> Profile:
    base = samples.profile(FLEET, control=ControlSpec(rollout=rollout))
    return replace(base, **changes)  # type: ignore[arg-type]  # any field of it


def fleet_plan(
    *flags: str, lanes: tuple[str, ...] = ("short", "long"), changed: tuple[str, ...] = ("short", "long")
) -> Plan:
    """Return the sample's plan with these engine flags in the changed lanes."""
    plan = samples.plan(FLEET)
    found = [plan.lane(name) if name in ("short", "long") else replace(plan.lane("long"), lane=name) for name in lanes]
    with_flags = [
        replace(lane, launch=replace(lane.launch, extra_args=flags)) if lane.lane in changed else lane for lane in found
    ]
    return replace(plan, lanes=tuple(with_flags))


class Fleet:
    """A rig with what a rollout is watched by."""

    def __init__(self, home: Path, rollout: RolloutSpec = ROLLOUT, **changes: object) -> None:
        self.rig = Rig(home)
        self.profile = fleet_profile(rollout, **changes)
        self.first = fleet_plan()
        self.put(self.first)

    def put(self, plan: Plan, profile: Profile | None = None) -> Desired:
        return self.rig.store.put_fleet(profile or self.profile, plan, now=self.rig.clock.now())

    async def settle(self) -> None:
        await self.rig.clock.sleep(75)
        self.rig.gateway.lanes = (traffic("short", rps=1.0), traffic("long", rps=1.0))
        await self.rig.clock.sleep(5)

    @property
    def rollout(self) -> Rollout:
        found = self.rig.store.memory(FLEET).rollout
        assert found is not None
        return found

    def flags(self, replica: Replica) -> tuple[str, ...]:
        """Return the flags that a replica's engine was started with."""
        (intent,) = [each for each in self._intents() if each[0] == replica.id]
        return intent[1]

    def _intents(self) -> list[tuple[str, tuple[str, ...]]]:
        return [
            (order.replica_id, tuple(a for a in order.argv if a.startswith(("--new", "--wide"))))
            for order in self.rig.provider.orders
        ]

    def ready(self, lane: str) -> list[tuple[str, ...]]:
        return sorted(self.flags(r) for r in self.rig.replicas(STATE.READY) if r.lane == lane)

    def serving(self, lane: str) -> list[str]:
        table = self.rig.gateway.table
        assert table is not None
        return sorted(row.id for row in table.replicas if row.lane == lane and row.in_rotation)

    async def until(self, seconds: float, *, step_s: float = 0.5) -> list[tuple[str, int]]:
        """Let time pass; return the least of replicas in rotation seen of each lane."""
        least: dict[str, int] = {}
        for _ in range(round(seconds / step_s)):
            await self.rig.clock.sleep(step_s)
            table = self.rig.gateway.table
            for lane in table.lanes if table is not None else ():
                count = len(self.serving(lane.name))
                least[lane.name] = min(least.get(lane.name, count), count)
        return sorted(least.items())

    async def until_all_are(self, flags: tuple[str, ...], seconds: float) -> list[tuple[str, int]]:
        """Let time pass until both lanes have come to these flags, and ten seconds more; return the least as `until` does."""
        least: list[tuple[str, int]] = []
        for _ in range(round(seconds / 10)):
            is_done = self.rollout.is_over and self.ready("short") == self.ready("long") == [flags, flags]
            least += await self.until(10)
            if is_done:
                break
        return least


NEW, OLD = ("--new",), ()


def test_a_changed_flag_rolls_lane_by_lane_with_canaries_first_and_never_fewer_than_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 1)
            fleet.put(fleet_plan("--new"))
            least = await fleet.until(10)
            assert fleet.ready("short") == [OLD, OLD, NEW]
            assert fleet.ready("long") == [OLD, OLD]
            assert fleet.rollout.lanes["short"].phase is LanePhase.CANARY
            (canary,) = [r for r in fleet.rig.replicas(STATE.READY) if fleet.flags(r) == NEW]
            assert canary.market is Market.ON_DEMAND
            least += await fleet.until(120)
            assert fleet.ready("short") == fleet.ready("long") == [NEW, NEW]
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 2)
            assert min(count for _, count in least) == 2
            assert len(fleet.rig.provider.living()) == 4
            spoken = fleet.rig.journal("rollout")
            assert spoken[0] == "rollout fleet: revision 1 -> 2 begins"
            assert spoken[-1] == "rollout fleet: revision 2 is complete"

    run_virtual(scenario())


def test_a_new_revision_that_cannot_start_is_rolled_back_at_once_with_the_engines_line(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.rig.engines.cold = set(range(20_000, 60_000)) - {r.port for r in fleet.rig.replicas()}
            fleet.put(fleet_plan("--new"))
            least = await fleet.until(60)
            desired = fleet.rig.store.fleet(FLEET)
            assert desired is not None
            assert (desired.plan, desired.revision) == (fleet.first, 3)
            await fleet.until(20)
            assert fleet.ready("short") == fleet.ready("long") == [OLD, OLD]
            assert len(fleet.rig.provider.living()) == 4
            assert min(count for _, count in least) == 2
            assert (fleet.rollout.is_over, fleet.rollout.undoes) == (True, 2)
            assert "warm-up completions failed" in fleet.rollout.reason
            (rolled_back,) = fleet.rig.journal("roll-back")
            assert rolled_back.startswith("roll-back fleet: revision 2 failed, 1 takes its place: short:")

    run_virtual(scenario())


def test_canaries_whose_requests_fail_are_rolled_back_and_the_rest_never_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            known = {r.id for r in fleet.rig.replicas()}
            fleet.rig.gateway.good = dict.fromkeys(known, 500)
            fleet.put(fleet_plan("--new"))
            await fleet.until(8)
            (canary,) = {r.id for r in fleet.rig.replicas(STATE.READY)} - known
            fleet.rig.gateway.breached = {canary: {"error": 9}}
            fleet.rig.gateway.good = dict.fromkeys(known, 520) | {canary: 1}
            least = await fleet.until(20)
            assert fleet.ready("short") == fleet.ready("long") == [OLD, OLD]
            assert fleet.rollout.undoes == 2
            assert "1 of 10 requests good (9 error) by new replicas" in fleet.rollout.reason
            assert min(count for _, count in least) == 2
            revisions = fleet.rig.store.records(Collection.ROLLOUTS, fleet=FLEET, limit=10)
            assert [record.value_as(Revision).why for record in revisions][-1].startswith("revision 2 failed")

    run_virtual(scenario())


def test_few_or_undecided_requests_are_waited_for_and_not_taken_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            known = {r.id for r in fleet.rig.replicas()}
            fleet.rig.gateway.good = dict.fromkeys(known, 500)
            fleet.put(fleet_plan("--new"))
            await fleet.until(8)
            (canary,) = {r.id for r in fleet.rig.replicas(STATE.READY)} - known
            fleet.rig.gateway.good |= {canary: 5} | dict.fromkeys(known, 505)
            await fleet.until(2 * BAKE_S)
            assert fleet.rollout.lanes["short"].phase is LanePhase.CANARY
            fleet.rig.gateway.good |= {canary: 40}
            await fleet.until(5)
            assert fleet.rollout.lanes["short"].phase is not LanePhase.CANARY

    run_virtual(scenario())


@pytest.mark.parametrize(("ended", "is_undone"), [(20, True), (7, False)])
def test_canaries_that_end_no_request_are_not_good_where_the_others_end_many(
    tmp_path: Path, ended: int, *, is_undone: bool
) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            known = {r.id for r in fleet.rig.replicas()}
            fleet.rig.gateway.good = dict.fromkeys(known, 500)
            fleet.put(fleet_plan("--new"))
            await fleet.until(8)
            fleet.rig.gateway.good = dict.fromkeys(known, 500 + ended)
            await fleet.until(5 * BAKE_S + 20)
            assert (fleet.rollout.undoes == 2) is is_undone
            due = f"none of their requests has ended, where {ended} are due by their number"
            assert (due in fleet.rollout.reason) is is_undone

    run_virtual(scenario())


@pytest.mark.parametrize("cut_s", [0.2, 2, 4, 6, 9, 15, 25, 28, 31, 35, 40, 60])
def test_a_controller_killed_at_any_moment_of_a_rollout_is_followed_by_one_that_finishes_it(
    tmp_path: Path, cut_s: float
) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new"))
            least = await fleet.until(cut_s, step_s=0.1)
        await fleet.rig.clock.sleep(3)
        async with fleet.rig.controller():
            least += await fleet.until_all_are(NEW, 200)
            assert fleet.ready("short") == fleet.ready("long") == [NEW, NEW]
            assert fleet.rollout.is_over
            assert len(fleet.rig.provider.living()) == 4
            assert min(count for _, count in least) == 2

    run_virtual(scenario())


def test_a_paused_rollout_stays_where_it_is_through_a_restart_and_goes_on_when_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        store, clock = fleet.rig.store, fleet.rig.clock
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new"))
            await fleet.until(8)
            store.set_overrides(FLEET, Overrides(is_rollout_paused=True), now=clock.now())
            await fleet.until(60)
        async with fleet.rig.controller():
            await fleet.until(60)
            assert (fleet.ready("short"), fleet.ready("long")) == ([OLD, OLD, NEW], [OLD, OLD])
            store.set_overrides(FLEET, Overrides(), now=clock.now())
            await fleet.until(150)
            assert fleet.ready("short") == fleet.ready("long") == [NEW, NEW]

    run_virtual(scenario())


def test_a_pause_in_the_middle_of_a_surge_keeps_the_old_replica_until_it_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, RolloutSpec(canary=ReplicaShare()))
        store, clock = fleet.rig.store, fleet.rig.clock
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new"))
            await fleet.until(2)
            assert len([r for r in fleet.rig.replicas() if r.lane == "short"]) == 3
            store.set_overrides(FLEET, Overrides(is_rollout_paused=True), now=clock.now())
            least = await fleet.until(30)
            assert fleet.ready("short") == [OLD, OLD, NEW]
            assert min(count for _, count in least) == 2

    run_virtual(scenario())


def test_a_lane_that_a_superseded_revision_began_otherwise_is_replaced_and_not_taken_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        short, long = fleet.profile.lanes
        three = replace(fleet.profile, lanes=(short, long, replace(long, name="wide")))
        lanes = ("short", "long", "wide")
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new", lanes=lanes), three)
            await fleet.until(10)
            assert fleet.ready("wide") == [OLD, OLD]
            assert fleet.rollout.ended_at is None
            fleet.put(fleet_plan("--wide", lanes=lanes, changed=("wide",)), three)
            least = await fleet.until(100)
            assert fleet.ready("wide") == [("--wide",), ("--wide",)]
            assert fleet.rollout.is_over
            assert min(count for _, count in least) >= 1

    run_virtual(scenario())


def test_a_second_up_goes_straight_to_the_newest_and_back_is_to_what_was_complete(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new"))
            await fleet.until(40)
            fleet.put(fleet_plan("--newer"))
            assert fleet.rollout.stable == 1
            least = await fleet.until(160)
            assert fleet.ready("short") == fleet.ready("long") == [("--newer",), ("--newer",)]
            assert min(count for _, count in least) == 2
            assert len(fleet.rig.provider.living()) == 4

    run_virtual(scenario())


def test_down_in_the_middle_of_a_rollout_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new"))
            await fleet.until(8)
            fleet.rig.down()
            await fleet.rig.clock.sleep(120)
        assert fleet.rig.provider.living() == []

    run_virtual(scenario())


def test_a_new_lane_takes_no_request_before_a_replica_serves_and_a_removed_one_goes_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            short, long = fleet.profile.lanes
            renamed = replace(fleet.profile, lanes=(short, replace(long, name="wide")))
            fleet.put(fleet_plan(lanes=("short", "wide")), renamed)
            tables_before = len(fleet.rig.gateway.tables)
            await fleet.until(60)
            for _, table in fleet.rig.gateway.tables[tables_before:]:
                serving = {row.lane for row in table.replicas if row.in_rotation}
                assert {lane.name for lane in table.lanes} <= serving | {"long"}
                assert {"long", "wide"} & {lane.name for lane in table.lanes} & serving
            assert {r.lane for r in fleet.rig.replicas(STATE.READY)} == {"short", "wide"}
            assert fleet.rollout.is_over

    run_virtual(scenario())


def test_a_replica_of_a_removed_lane_ends_as_soon_as_nothing_is_in_flight_and_not_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            short, _ = fleet.profile.lanes
            idle, busy = (r.id for r in fleet.rig.replicas(STATE.READY) if r.lane == "long")
            fleet.rig.gateway.in_flight = {busy: 1}
            fleet.put(fleet_plan(lanes=("short",)), replace(fleet.profile, lanes=(short,)))
            await fleet.until(10)
            leaving = {r.id: r.state for r in fleet.rig.replicas() if r.lane == "long" and r.state.is_live}
            assert leaving == {busy: STATE.DRAINING}
            assert fleet.rig.gateway.table is not None
            assert [row.in_rotation for row in fleet.rig.gateway.table.replicas if row.id == busy] == [False]
            fleet.rig.gateway.in_flight = {}
            await fleet.until(5)
            assert [r for r in fleet.rig.replicas() if r.lane == "long" and r.state.is_live] == []
            ended = [line for line in fleet.rig.journal("stop") if line.startswith((f"stop {idle}:", f"stop {busy}:"))]
            assert len(ended) == 2
            assert all("nothing in flight" in line for line in ended), ended

    run_virtual(scenario())


def test_without_room_for_one_more_one_leaves_first_as_far_as_the_load_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=4))
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.rig.gateway.lanes = (traffic("short", rps=0.2), traffic("long", rps=0.2))
            fleet.put(fleet_plan("--new"))
            most = 0
            for _ in range(500):
                await fleet.rig.clock.sleep(0.5)
                most = max(most, len(fleet.rig.provider.living()))
            assert most == 4
            assert set(fleet.ready("short")) == set(fleet.ready("long")) == {NEW}

    run_virtual(scenario())


def test_without_room_a_lane_that_needs_all_it_has_stays_and_says_what_would_help(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=4))
        async with fleet.rig.controller() as controller:
            await fleet.settle()
            fleet.rig.gateway.lanes = (traffic("short", rps=3.0), traffic("long", rps=3.0))
            fleet.put(fleet_plan("--new"))
            least = await fleet.until(60)
            assert min(count for _, count in least) == 2
            status = controller.status()
            assert status is not None
            assert "set max_unavailable" in next(lane.reason for lane in status.lanes if lane.name == "short")

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("capacity", "cap"),
    [
        (CapacitySpec(max_nodes=4), "at the fleet's cap of 4 nodes (capacity.max_nodes)"),
        (
            CapacitySpec(max_cost_usd_per_hour=COST_OF_FOUR),
            f"the fleet's cap of ${COST_OF_FOUR:.2f}/h (capacity.max_cost_per_hour)",
        ),
    ],
    ids=["nodes", "money"],
)
def test_a_rollout_that_a_cap_held_until_its_timeout_names_the_cap_wherever_the_failure_is_told(
    tmp_path: Path, capacity: CapacitySpec, cap: str
) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, RolloutSpec(bake_s=BAKE_S, timeout_s=60), capacity=capacity)
        async with fleet.rig.controller() as controller:
            await fleet.settle()
            fleet.rig.gateway.lanes = (traffic("short", rps=3.0), traffic("long", rps=3.0))
            fleet.put(fleet_plan("--new"))
            await fleet.until(30)
            status = controller.status()
            assert status is not None
            assert status.rollout is not None
            assert cap in next(lane.note for lane in status.rollout.lanes if lane.lane == "short")
            await fleet.until(90 + 5 * BAKE_S)
            why = fleet.rollout.reason
            assert why.startswith("no progress in ")
            assert "(short rolling, long waiting); short: no room to surge," in why
            assert cap in why
            assert "raise the cap, or set max_unavailable" in why
            assert any(cap in line for line in fleet.rig.journal("rollout") if "revision 2: no progress" in line)
            (rolled_back,) = fleet.rig.journal("roll-back")
            assert cap in rolled_back
            assert NEW not in fleet.ready("short") + fleet.ready("long")

    run_virtual(scenario())


def test_at_the_cap_a_lane_of_one_replica_is_replaced_in_place_where_the_profile_lets_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        in_place = RolloutSpec(bake_s=BAKE_S, max_surge=ReplicaShare(), max_unavailable=ReplicaShare(count=1))
        fleet = Fleet(tmp_path, in_place, capacity=CapacitySpec(max_nodes=2))
        lanes = tuple(replace(lane, replicas=replace(lane.replicas, min=1, max=1)) for lane in fleet.profile.lanes)
        fleet.profile = replace(fleet.profile, lanes=lanes)
        fleet.put(of_one(fleet_plan()))
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(of_one(fleet_plan("--new")))
            await fleet.until(100)
            assert fleet.ready("short") == fleet.ready("long") == [NEW]
            assert fleet.rollout.is_over
            assert len(fleet.rig.provider.living()) == 2

    run_virtual(scenario())


def of_one(plan: Plan) -> Plan:
    """Return the plan with one replica in every lane."""
    return replace(plan, lanes=tuple(replace(lane, replicas=1, on_demand=1, spot=0) for lane in plan.lanes))


def test_while_a_rollout_changes_the_models_name_both_are_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            plan = fleet_plan()
            lanes = tuple(replace(lane, launch=replace(lane.launch, served_name="new-name")) for lane in plan.lanes)
            model = replace(fleet.profile.model, served_name="new-name")
            fleet.put(replace(plan, lanes=lanes), replace(fleet.profile, model=model))
            await fleet.until(8)
            table = fleet.rig.gateway.table
            assert table is not None
            assert set(table.served_names) == {samples.MODEL_ID, "new-name"}
            assert {row.served_name for row in table.replicas} == {samples.MODEL_ID, "new-name"}
            await fleet.until(150)
            table = fleet.rig.gateway.table
            assert table is not None
            assert (fleet.rollout.is_over, table.served_names, table.model) == (True, (), "new-name")

    run_virtual(scenario())


def test_a_request_is_sent_on_by_the_name_that_its_replica_knows() -> None:
    names = ("old", "new")
    assert renamed(b'{"model":"old","n":1}', "new", names) == b'{"model":"new","n":1}'
    assert renamed(b'{"model":"new","n":1}', "new", names) == b'{"model":"new","n":1}'
    assert renamed(b'{"model":"another","n":1}', "new", names) == b'{"model":"another","n":1}'


def test_a_lane_that_is_scaled_by_hand_meanwhile_is_rolled_out_to_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            desired = fleet.put(fleet_plan("--new"))
            scaled = replace(desired.overrides, replicas={"short": 3})
            fleet.rig.store.set_overrides(FLEET, scaled, now=fleet.rig.clock.now())
            await fleet.until(150)
            assert fleet.ready("short") == [NEW, NEW, NEW]
            assert fleet.ready("long") == [NEW, NEW]
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 2)

    run_virtual(scenario())


def test_an_up_before_the_first_revision_is_complete_leaves_no_replica_of_that(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.until(1)
            assert len(fleet.rig.replicas()) == 4
            assert not fleet.rollout.is_over
            fleet.put(fleet_plan("--new"))
            await fleet.until(60)
            assert fleet.ready("short") == fleet.ready("long") == [NEW, NEW]
            assert (fleet.rollout.is_over, fleet.rollout.stable) == (True, None)
            assert len(fleet.rig.provider.living()) == 4

    run_virtual(scenario())


def test_an_up_while_a_down_waits_for_orders_of_an_earlier_revision_leaves_no_replica_of_that(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        fleet.rig.provider.script("create", *[Fault(delay_s=8.0)] * 4)
        async with fleet.rig.controller():
            await fleet.until(1)
            fleet.put(fleet_plan("--new"))
            await fleet.until(1)
            fleet.rig.down()
            await fleet.until(2)
            assert {(r.state, fleet.rig.store.memory(FLEET).rollout) for r in fleet.rig.replicas()} == {
                (STATE.PENDING, None)
            }
            fleet.put(fleet_plan("--new"))
            await fleet.until(80)
            assert fleet.ready("short") == fleet.ready("long") == [NEW, NEW]
            assert (fleet.rollout.is_over, fleet.rollout.stable) == (True, None)
            assert len(fleet.rig.provider.living()) == 4

    run_virtual(scenario())


def test_what_runs_since_before_revisions_were_kept_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        kept = Fleet(tmp_path).rig.store.fleet(FLEET)
        assert kept is not None
        lanes = enumerate(["short", "long"] * 2, start=1)
        ready = [samples.replica(f"r{n}", lane=lane, state=STATE.READY, launch_digest="before") for n, lane in lanes]
        memory = {lane: LaneMemory(wanted=2, planned=2) for lane in ("short", "long")}
        for revision, is_over in ((0, True), (1, False)):
            desired = replace(kept, revision=revision)
            view = RolloutView(desired=desired, now=samples.EPOCH, records=tuple(ready), lanes=memory, gateway=None)
            assert advance(advance(None, view), view).is_over is is_over

    run_virtual(scenario())


def test_what_load_wants_beyond_the_plan_keeps_no_rollout_from_its_end(tmp_path: Path) -> None:
    """The caps may have no room for it, ever."""

    async def scenario() -> None:
        desired = Fleet(tmp_path).rig.store.fleet(FLEET)
        assert desired is not None
        lanes = enumerate(["short", "long"] * 2, start=1)
        ready = [samples.replica(f"r{n}", lane=lane, state=STATE.READY) for n, lane in lanes]
        memory = {"short": LaneMemory(wanted=3, planned=2), "long": LaneMemory(wanted=2, planned=2)}
        view = RolloutView(desired=desired, now=samples.EPOCH, records=tuple(ready), lanes=memory, gateway=None)
        assert advance(advance(None, view), view).is_over
        missing = replace(view, records=tuple(ready[1:]))
        assert not advance(advance(None, missing), missing).is_over

    run_virtual(scenario())


def shadowed(profile: Profile, mode: Mode = Mode.SHADOW) -> Profile:
    return replace(profile, control=replace(profile.control, mode=mode))


def test_a_revision_asked_for_in_shadow_mode_that_nothing_runs_is_none_to_go_back_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, replace(ROLLOUT, timeout_s=300.0))
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.rig.engines.cold = set(range(20_000, 60_000)) - {r.port for r in fleet.rig.replicas()}
            fleet.put(fleet_plan("--new"), shadowed(fleet.profile))
            await fleet.until(2 * fleet.profile.control.rollout.timeout_s, step_s=5)
            assert (fleet.rollout.is_over, fleet.rollout.is_failed, fleet.rollout.stable) == (False, False, 1)
            assert fleet.ready("short") == fleet.ready("long") == [OLD, OLD]
            fleet.put(fleet_plan("--new"))
            least = await fleet.until(80)
            assert (fleet.rollout.is_over, fleet.rollout.undoes, fleet.rollout.stable) == (True, 3, 1)
            desired = fleet.rig.store.fleet(FLEET)
            assert desired is not None
            assert desired.plan == fleet.first
            assert fleet.ready("short") == fleet.ready("long") == [OLD, OLD]
            assert min(count for _, count in least) == 2

    run_virtual(scenario())


def test_shadow_mode_with_the_same_launch_settings_is_complete_at_once_and_shows_when_it_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller() as controller:
            await fleet.settle()
            fleet.put(fleet.first, shadowed(fleet.profile))
            await fleet.until(5)
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 2)
            fleet.put(fleet_plan("--new"), shadowed(fleet.profile))
            await fleet.until(5)
            status = controller.status()
            assert status is not None
            assert status.rollout is not None
            assert (status.rollout.phase, status.rollout.stable) == (RolloutPhase.PAUSED, 2)
            fleet.put(fleet.first)
            await fleet.until(5)
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 4)
            assert len(fleet.rig.provider.living()) == 4

    run_virtual(scenario())


def test_what_people_drain_in_shadow_mode_is_replaced_by_the_new_revision_and_completes_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new", changed=("short",)), shadowed(fleet.profile))
            await fleet.until(5)
            old = [r.id for r in fleet.rig.replicas() if r.lane == "short"]
            for drained, serving in zip(old, ([OLD, NEW], [NEW, NEW]), strict=True):
                assert not fleet.rollout.is_over
                fleet.rig.store.request_drain(FLEET, drained, now=fleet.rig.clock.now())
                await fleet.until(60)
                assert fleet.ready("short") == serving
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 2)

    run_virtual(scenario())


def test_a_canary_that_fails_to_start_is_tried_again_after_a_backoff_that_doubles(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.rig.engines.cold = set(range(20_000, 60_000)) - {r.port for r in fleet.rig.replicas()}
            begun = fleet.rig.clock.now()
            fleet.put(fleet_plan("--new"))
            await fleet.until(60)
            journal = [each for each in fleet.rig.store.journal(FLEET, limit=1000) if each.at >= begun]
            tried = [e.at for e in journal if e.reason.startswith("canary 1 of 1") and e.action == "request-node"]
            failed = [e.at for e in journal if e.action == "stop" and e.reason.endswith("warm-up completions failed")]
            waits = [(again - at).total_seconds() for at, again in zip(failed, tried[1:], strict=False)]
            assert [backoff_s(1) <= waits[0] < backoff_s(2), backoff_s(2) <= waits[1] < backoff_s(3)] == [True, True]
            assert (len(tried), len(failed)) == (3, 3), (
                "a start that failed is one failure, also once its node has ended"
            )
            assert "3 new replicas failed" in fleet.rollout.reason

    run_virtual(scenario())


def test_a_canary_that_finds_no_stock_is_ordered_again_after_the_backoff_of_its_lane(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            provider = fleet.rig.provider
            provider.stock = {each.key: 0 for each in await provider.offerings()}
            begun = fleet.rig.clock.now()
            fleet.put(fleet_plan("--new"))
            await fleet.until(100)
            journal = [each for each in fleet.rig.store.journal(FLEET, limit=1000) if each.at >= begun]
            tried = [each.at for each in journal if each.action == "launch" and each.reason.startswith("canary")]
            waits = [(again - at).total_seconds() for at, again in itertools.pairwise(tried)]
            assert len(waits) >= 3
            assert all(wait >= backoff_s(failures) for failures, wait in enumerate(waits, start=1)), waits

    run_virtual(scenario())


@pytest.mark.parametrize("max_nodes", [6, 10], ids=["room for the next once some have left", "room"])
def test_the_last_one_of_a_lane_serves_until_another_does_where_there_is_room_for_both(
    tmp_path: Path, max_nodes: int
) -> None:
    async def scenario() -> None:
        every = RolloutSpec(bake_s=BAKE_S, canary=ReplicaShare(), max_unavailable=ReplicaShare(share=1.0))
        fleet = Fleet(tmp_path, every, capacity=CapacitySpec(max_nodes=max_nodes))
        fleet.put(
            replace(fleet.first, lanes=tuple(replace(lane, replicas=3, on_demand=3) for lane in fleet.first.lanes))
        )
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(of_one(fleet_plan("--new")))
            least = await fleet.until(100)
            assert fleet.rollout.is_over
            assert fleet.ready("short") == fleet.ready("long") == [NEW]
            assert min(count for _, count in least) == 1

    run_virtual(scenario())


def test_what_load_wants_and_the_caps_have_no_room_for_keeps_no_replica_from_being_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        one_less = RolloutSpec(bake_s=BAKE_S, canary=ReplicaShare(), max_unavailable=ReplicaShare(count=1))
        fleet = Fleet(tmp_path, one_less, capacity=CapacitySpec(max_nodes=2))
        fleet.profile = replace(fleet.profile, lanes=fleet.profile.lanes[:1])
        fleet.put(fleet_plan(lanes=("short",)))
        async with fleet.rig.controller() as controller:
            await fleet.settle()
            fleet.rig.gateway.lanes = (traffic("short", rps=9.0),)
            await fleet.until(60)
            seen = controller.status()
            assert seen is not None
            assert [(lane.ready, lane.wanted > 3) for lane in seen.lanes] == [(2, True)]
            fleet.put(fleet_plan("--new", lanes=("short",)))
            least = await fleet.until(60)
            assert fleet.rollout.is_over
            assert fleet.ready("short") == [NEW, NEW]
            assert least == [("short", 1)]

    run_virtual(scenario())


def test_no_canary_waits_because_replicas_of_the_revision_before_die_early(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
        memory = fleet.rig.store.memory(FLEET)
        dying = replace(memory.lanes["short"], early_deaths=8, last_early_death=fleet.rig.clock.now())
        fleet.rig.store.put_memory(FLEET, replace(memory, lanes={**memory.lanes, "short": dying}))
        fleet.put(fleet_plan("--new"))
        async with fleet.rig.controller():
            await fleet.until(3)
            assert len(fleet.rig.replicas()) == 5

    run_virtual(scenario())


def test_a_replica_whose_drain_is_taken_back_after_a_rollout_is_replaced_as_the_others_were(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            drained = next(r.id for r in fleet.rig.replicas(STATE.READY) if r.lane == "long")
            fleet.rig.gateway.in_flight = {drained: 1}
            fleet.rig.store.request_drain(FLEET, drained, now=fleet.rig.clock.now())
            await fleet.until(10)
            desired = fleet.put(fleet_plan("--new"))
            await fleet.until(75)
            assert fleet.rollout.is_over
            back = replace(desired.overrides, undrained=(drained,), replicas={"long": 3})
            fleet.rig.store.set_overrides(FLEET, back, now=fleet.rig.clock.now())
            await fleet.until(2)
            assert fleet.ready("long") == [OLD, NEW, NEW]
            least = await fleet.until(60)
            assert fleet.ready("long") == [NEW, NEW, NEW]
            assert ("long", 3) in least

    run_virtual(scenario())
