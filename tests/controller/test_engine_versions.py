"""A profile asks for an engine's version: a changed one is rolled out, and an engine that is another never serves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.replica import ReplicaState
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.test_rollouts import Fleet

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.profile import Profile


def asking_for(fleet: Fleet, version: str) -> Profile:
    return replace(fleet.profile, lanes=tuple(replace(lane, engine_version=version) for lane in fleet.profile.lanes))


def versions(fleet: Fleet) -> set[tuple[str, str]]:
    """Return what ready replicas were to be, and what they said they are."""
    return {(r.engine_version, r.reported_version) for r in fleet.rig.replicas(ReplicaState.READY)}


def test_what_every_engine_says_it_is_is_on_record_asked_for_or_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            assert versions(fleet) == {("", "1.0.0")}

    run_virtual(scenario())


def test_another_version_is_rolled_out_as_a_flag_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.rig.engines.version = "1.1.0+cu129"
            fleet.put(fleet.first, asking_for(fleet, "1.1.0"))
            least = await fleet.until(200)
            assert fleet.rollout.is_over
            assert versions(fleet) == {("1.1.0", "1.1.0+cu129")}
            assert min(count for _, count in least) == 2

    run_virtual(scenario())


def test_an_engine_of_another_version_serves_nobody_and_is_rolled_back_with_what_it_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet.first, asking_for(fleet, "1.1.0"))
            known = {r.id for r in fleet.rig.replicas()}
            least = await fleet.until(5)
            fresh = [r for r in fleet.rig.replicas() if r.id not in known]
            assert {r.ready_at for r in fresh} == {None}
            least += await fleet.until(60)
            assert fleet.rollout.undoes == 2
            assert "cannot start: it says it is emulator 1.0.0, and the profile asks for 1.1.0" in fleet.rollout.reason
            assert versions(fleet) == {("", "1.0.0")}
            assert min(count for _, count in least) == 2

    run_virtual(scenario())


def test_a_first_bring_up_with_an_engine_of_another_version_is_not_tried_again_and_says_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        fleet.put(fleet.first, asking_for(fleet, "1.1.0"))
        async with fleet.rig.controller() as controller:
            await fleet.until(60)
            status = controller.status()
            assert status is not None
            assert {lane.cannot_start for lane in status.lanes} == {True}
            fault = status.lanes[0].engine_fault
            assert fault is not None
            assert "says it is emulator 1.0.0" in fault.line
        assert len(fleet.rig.replicas()) <= 4

    run_virtual(scenario())
