"""Engines that wait for a part of theirs that has failed, and starts that only take long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.model.node import NodeProcess
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from fleetctl.model.replica import Replica

LEADER = NodeProcess(id="1", name="engine", is_leader=True)
CORE = NodeProcess(id="2", name="core")
HELPER = NodeProcess(id="3", name="compiler")
NO_WEIGHTS = NodeProcess(id="2", name="core", exit_reason="model: no weights")
STOPPED_WITHIN_S = 12.0  # of fifteen; the rest is a person's `up`


def show(rig: Rig, *processes: NodeProcess) -> None:
    for token in rig.provider.live_tokens:
        rig.provider.node_processes[token] = processes


def failed(rig: Rig) -> list[Replica]:
    return [r for r in rig.store.replicas(FLEET) if r.state in (ReplicaState.STOPPING, ReplicaState.FAILED)]


@pytest.mark.parametrize(("last", "line"), [((LEADER, NO_WEIGHTS), "no weights"), ((LEADER,), "its core has vanished")])
def test_a_replica_whose_core_has_failed_is_stopped_with_the_cause(on_rig, last, line):
    async def scenario(rig: Rig) -> None:
        rig.engines.startup_s = 600.0
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10.0)
            show(rig, LEADER, CORE)
            await rig.clock.sleep(30.0)
            assert failed(rig) == []
            show(rig, *last)
            await rig.clock.sleep(STOPPED_WITHIN_S)
            assert len(failed(rig)) == 4
            for record in failed(rig):
                assert record.fault == f"its engine has failed to start: {line}"
                journal = rig.store.journal(FLEET, subjects=(Subject.replica(record.id),))
                assert ReasonCode.START_FAILED in {entry.code for entry in journal}

    on_rig(scenario)


def test_what_stays_is_not_tried_again(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.engines.startup_s = 600.0
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(5.0)
            show(rig, LEADER, NO_WEIGHTS)
            await rig.clock.sleep(60.0)
            assert len(failed(rig)) == 4
            assert rig.replicas() == []
            status = controller.status()
            assert status is not None
            assert all(lane.cannot_start for lane in status.lanes)

    on_rig(scenario)


def test_a_slow_start_is_left_alone_whatever_of_it_has_done_its_work(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.engines.startup_s = 120.0
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(5.0)
            show(rig, LEADER, HELPER)
            await rig.clock.sleep(20.0)
            show(rig, LEADER, CORE, NodeProcess(id="3", name="compiler", exit_reason="exit 0"))
            await rig.clock.sleep(20.0)
            show(rig, LEADER, CORE)
            await rig.clock.sleep(100.0)
            assert failed(rig) == []
            assert len(rig.replicas(ReplicaState.READY)) == 4

    on_rig(scenario)


def test_a_core_that_is_seen_again_was_not_lost(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.engines.startup_s = 60.0
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(5.0)
            show(rig, LEADER, CORE)
            await rig.clock.sleep(5.0)
            show(rig, LEADER)
            await rig.clock.sleep(3.0)
            show(rig, LEADER, CORE)
            await rig.clock.sleep(60.0)
            assert failed(rig) == []

    on_rig(scenario)
