"""A replica's lane is an assignment: it may change while its engine runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target
from fleetctl.model.decision import AssignReplica, LaunchReplica, MarkBooting, StopReplica
from fleetctl.model.desired import Overrides
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig
from tests.reconcile.worlds import decide, observation, observed, of_kind, one_lane
from tests.sim.toy import Toy

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation

STATE = ReplicaState


class Mover:
    """A policy that is told to move one replica to `long`, and wants as many replicas as each lane has."""

    def __init__(self) -> None:
        self.moving = ""

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        if not self.moving:
            return reconcile(desired, observation, memory, now)
        seen = tuple(
            msgspec.structs.replace(r, record=replace(r.record, lane="long", assigned_at=now))
            if r.record.id == self.moving
            else r
            for r in observation.replicas
        )
        decision = reconcile(desired, replace(observation, replicas=seen), memory, now, scaling=_as_it_is)
        if any(r.record.id == self.moving and r.record.lane != "long" for r in observation.replicas):
            action = AssignReplica(
                replica_id=self.moving, lane="long", code=ReasonCode.LANE_REASSIGNED, reason="short has one to spare"
            )
            return replace(decision, actions=(*decision.actions, action))
        return decision


def _as_it_is(view: LaneView) -> Target:
    wanted = view.counts.ready + view.counts.pending
    return Target(
        wanted=wanted, memory=replace(view.memory, wanted=wanted), code=ReasonCode.LOAD_HELD, reason="as it is"
    )


def test_the_controller_moves_a_ready_replica_without_a_boot_and_the_routing_table_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        policy = Mover()
        rig = Rig(tmp_path, policy=policy)
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            (before,) = [r for r in rig.replicas(STATE.READY) if r.id == "r1"]
            assert before.lane == "short"
            assert before.capacity is not None
            assert (before.capacity.max_num_seqs, before.capacity.max_model_len) == (64, 8192)
            nodes, warmed = rig.provider.live_tokens, rig.journal("warm")
            policy.moving = "r1"
            controller.wake()
            await rig.clock.sleep(10)
            table = rig.gateway.table
        (after,) = [r for r in rig.replicas(STATE.READY) if r.id == "r1"]
        assert (after.lane, after.node_id, after.ready_at) == ("long", before.node_id, before.ready_at)
        assert after.assigned_at is not None
        assert after.assigned_at > before.created_at
        assert (rig.provider.live_tokens, rig.journal("warm")) == (nodes, warmed)
        assert table is not None
        assert {r.id: (r.lane, r.in_rotation) for r in table.replicas}["r1"] == ("long", True)
        assert all(r.in_rotation for _, t in rig.gateway.tables[-1:] for r in t.replicas)
        assert rig.journal("assign") == ["assign r1: short has one to spare"]
        (entry,) = [e for e in rig.store.journal(FLEET, limit=1000) if e.action == "assign"]
        assert entry.subject.path == "replica/r1"
        assert entry.inputs["to_lane"] == "long"
        rig.store.close()

    run_virtual(scenario())


def test_a_toy_fleet_moves_a_replica_without_a_boot() -> None:
    policy = Mover()
    toy = Toy(5, policy=policy)
    toy.is_calm = True
    toy.desired = replace(toy.desired, overrides=Overrides(replicas={"short": 2, "long": 2, "batch": 1}))
    for _ in range(60):
        toy.step()
    moved = next(r for r in toy.in_rotation() if r.lane == "short")
    toy.desired = replace(toy.desired, overrides=Overrides())
    policy.moving, launched, logged = moved.id, toy.launched, len(toy.log)
    for _ in range(30):
        toy.step()
    after = toy.records[moved.id]
    assert (after.lane, after.state, after.ready_at) == ("long", STATE.READY, moved.ready_at)
    assert toy.launched == launched
    assert [line for line in toy.log[logged:] if "SetStep" not in line and "AssignReplica" not in line] == []
    assert toy.nodes[moved.node_id].warm


def test_the_built_in_policy_takes_a_moved_replica_for_one_of_its_new_lane() -> None:
    fleet = one_lane(2)
    seen = observation(observed("r1"), observed("r2", record_lane="long"))
    assert len(of_kind(decide(fleet, seen), LaunchReplica)) == 1


def test_an_assignment_goes_through_json_as_every_action_does() -> None:
    action = AssignReplica(
        replica_id="r1", lane="long", code=ReasonCode.LANE_REASSIGNED, reason="short has one to spare"
    )
    assert msgspec.json.decode(msgspec.json.encode(action), type=AssignReplica) == action


def test_one_just_taken_out_of_rotation_is_asked_before_it_is_given_up_as_missing() -> None:
    fleet = one_lane(1)
    failing = observed("r1", node=None, consecutive_failures=3)
    memory = decide(fleet, observation(failing, now_s=0), now_s=0).memory
    first = decide(fleet, observation(failing), memory)
    assert len(of_kind(first, MarkBooting)) == 1
    unasked = observed("r1", STATE.BOOTING, node=None, healthy=None, record_ready_at=failing.record.ready_at)
    assert of_kind(decide(fleet, observation(unasked), first.memory), StopReplica) == []
