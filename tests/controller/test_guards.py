"""What the controller refuses whichever policy asks for it: creates while they are blocked, unlawful assignments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.assignment import assignment_refusal
from fleetctl.core.conditions import ConditionReason, ConditionType, fleet_condition
from fleetctl.core.reconcile import reconcile
from fleetctl.errors import CredentialsError, UnavailableError
from fleetctl.model.catalogue import Market, Precision
from fleetctl.model.decision import AssignReplica, LaunchReplica
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaCapacity, ReplicaState
from fleetctl.operations.service_check import check_service
from fleetctl.testing import samples
from fleetctl.testing.provider import Fault
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from fleetctl.model.decision import AnyAction, Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.observation import Observation


class Stubborn:
    """A policy that asks for the same actions every time, whatever it sees."""

    def __init__(self) -> None:
        self.actions: tuple[AnyAction, ...] = ()

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        decision = reconcile(desired, observation, memory, now)
        return replace(decision, actions=(*decision.actions, *self.actions)) if self.actions else decision


def launch() -> LaunchReplica:
    return LaunchReplica(lane="short", market=Market.ON_DEMAND, code=ReasonCode.LOAD, reason="more, more")


def assign(lane: str) -> AssignReplica:
    return AssignReplica(replica_id="r1", lane=lane, code=ReasonCode.LANE_REASSIGNED, reason="because")


def refused(rig: Rig, code: ReasonCode) -> list[JournalEntry]:
    return [entry for entry in rig.store.journal(FLEET, limit=1000) if entry.code is code and not entry.ok]


def test_a_policy_that_launches_without_credentials_creates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        policy = Stubborn()
        rig = Rig(tmp_path, policy=policy)
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            rig.provider.script("list_nodes", *[Fault(error=CredentialsError("the key has expired"))] * 100)
            await rig.clock.sleep(2)
            orders = len(rig.provider.orders)
            policy.actions = (launch(),)
            await rig.clock.sleep(10)
            policy.actions = ()
        assert len(rig.provider.orders) == orders
        assert len(rig.replicas()) == 4
        (entry,) = refused(rig, ReasonCode.LAUNCH_BLOCKED)
        assert (entry.action, entry.reason) == ("launch", "the key has expired")
        rig.store.close()

    run_virtual(scenario())


@pytest.mark.parametrize("lane", ["nowhere", "long"])
def test_an_assignment_it_could_not_serve_is_refused_and_journalled_not_done(tmp_path: Path, lane: str) -> None:
    async def scenario() -> None:
        policy = Stubborn()
        rig = Rig(tmp_path, policy=policy)
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            record = next(r for r in rig.replicas(ReplicaState.READY) if r.id == "r1")
            assert record.capacity is not None
            rig.store.put_replica(replace(record, capacity=replace(record.capacity, max_model_len=16)))
            policy.actions = (assign(lane),)
            await rig.clock.sleep(10)
        assert {r.id: r.lane for r in rig.replicas()}["r1"] == "short"
        assert [entry.action for entry in refused(rig, ReasonCode.ASSIGNMENT_REFUSED)] == ["assign"]
        assert rig.journal("assign-replica") == []
        rig.store.close()

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"max_num_seqs": 1}, ""),
        ({"max_model_len": 16}, "takes requests of"),
        ({"precision": Precision.FP8}, "was started with fp8"),
    ],
)
def test_a_lane_s_requests_must_fit_what_the_replica_was_started_with(changes, why):
    plan = samples.plan(FLEET)
    settings = plan.lane("long").launch
    capacity = ReplicaCapacity(
        max_model_len=settings.max_model_len, max_num_seqs=settings.max_num_seqs, precision=settings.quantization,
        continues_streams=True,
    )  # fmt: skip
    record = replace(samples.replica("r1", lane="short"), capacity=replace(capacity, **changes))
    found = assignment_refusal(record, "long", plan)
    assert why in found
    assert bool(found) is bool(why)
    assert "not recorded" in assignment_refusal(replace(record, capacity=None), "long", plan)


def test_a_fleet_whose_ticks_all_fail_does_not_say_that_it_is_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        failing: list[str] = []

        def policy(desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
            if failing:
                raise ValueError(failing[0])
            return reconcile(desired, observation, memory, now)

        rig = Rig(tmp_path, policy=policy)
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            failing.append("no such table")
            await rig.clock.sleep(10)
            status = controller.status()
            assert status is not None
            found = fleet_condition(status)
            assert (found.type, found.reason_code) == (ConditionType.STALE, ConditionReason.CONTROLLER_FAILING)
            assert "the last tick failed: no such table; so do all since" in found.message
            with pytest.raises(UnavailableError, match="nobody looks after the fleet"):
                check_service([status])
            failing.clear()
            await rig.clock.sleep(40)
            status = controller.status()
            assert status is not None
            assert fleet_condition(status).type is ConditionType.READY
        rig.store.close()

    run_virtual(scenario())
