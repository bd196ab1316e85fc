"""A revision that fails is put back as it was, whoever waits for it is told so, and nothing else passes for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.desired import WHOLE_FLEET, Terms
from fleetctl.model.profile import CapacitySpec, Mode
from fleetctl.model.rollout import RolloutPhase, rollback_reason
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET
from tests.controller.test_rollouts import NEW, OLD, Fleet, fleet_plan, shadowed

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.controller.loop import Controller
    from fleetctl.model.desired import Desired
    from fleetctl.model.status import FleetStatus


def break_new_engines(fleet: Fleet) -> None:
    """Have no engine that is started from now on complete a request."""
    fleet.rig.engines.cold = set(range(20_000, 60_000)) - {r.port for r in fleet.rig.replicas()}


def wanted(fleet: Fleet) -> Desired:
    found = fleet.rig.store.fleet(FLEET)
    assert found is not None
    return found


def status(controller: Controller) -> FleetStatus:
    found = controller.status()
    assert found is not None
    return found


def test_a_rollback_keeps_the_lower_of_both_caps_and_is_shown_as_one_all_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path, capacity=CapacitySpec(max_nodes=8))
        async with fleet.rig.controller() as controller:
            await fleet.settle()
            break_new_engines(fleet)
            fleet.put(fleet_plan("--new"), replace(fleet.profile, capacity=CapacitySpec(max_nodes=6)))
            await fleet.until(60)
            assert (wanted(fleet).revision, wanted(fleet).profile.capacity.max_nodes) == (3, 6)
            rollout = status(controller).rollout
            assert rollout is not None
            assert (rollout.undoes, rollout.phase) == (2, RolloutPhase.COMPLETE)
            assert "warm-up completions failed" in rollout.reason

    run_virtual(scenario())


def test_a_rollback_to_a_revision_of_shadow_mode_is_carried_out(tmp_path: Path) -> None:
    """Else the controller would from then on watch what it was to put back."""

    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet.first, shadowed(fleet.profile))
            await fleet.until(5)
            assert (fleet.rollout.is_over, fleet.rollout.revision) == (True, 2)
            break_new_engines(fleet)
            fleet.put(fleet_plan("--new"))
            await fleet.until(80)
            assert (fleet.rollout.is_over, fleet.rollout.undoes, fleet.rollout.stable) == (True, 3, 2)
            assert wanted(fleet).profile.control.mode is Mode.ACTIVE
            assert fleet.ready("short") == fleet.ready("long") == [OLD, OLD]
            assert len(fleet.rig.provider.living()) == 4

    run_virtual(scenario())


def test_a_controller_that_finds_a_rollback_which_it_does_not_remember_knows_it_as_one(tmp_path: Path) -> None:
    """The one before was killed between the two writes."""

    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller():
            await fleet.settle()
            fleet.put(fleet_plan("--new"))
            await fleet.until(3)
        why = rollback_reason(2, 1, "short: r5 died")
        fleet.rig.store.put_fleet(fleet.profile, fleet.first, now=fleet.rig.clock.now(), why=why, over=2)
        async with fleet.rig.controller():
            await fleet.until(60)
            assert (fleet.rollout.undoes, fleet.rollout.reason) == (2, "short: r5 died")
            assert fleet.ready("short") == fleet.ready("long") == [OLD, OLD]

    run_virtual(scenario())


def test_a_first_revision_is_complete_only_once_it_is_one_to_go_back_to(tmp_path: Path) -> None:
    """An `up` in between would roll without a way back, and nothing would be shown of it."""

    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller() as controller:
            was_ready_and_not_complete = False
            for _ in range(400):
                await fleet.rig.clock.sleep(0.05)
                seen = controller.status()
                if seen is None or not seen.lanes or any(lane.ready < lane.wanted for lane in seen.lanes):
                    continue
                if seen.is_revision_complete:
                    break
                was_ready_and_not_complete = True
            assert was_ready_and_not_complete
            assert status(controller).revision == 1
            fleet.put(fleet_plan("--new"))
            await fleet.until(2)
            assert fleet.rollout.stable == 1

    run_virtual(scenario())


def test_a_revision_that_came_before_the_first_was_complete_is_not_while_replicas_of_that_serve(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller() as controller:
            await fleet.until(1)
            fleet.put(fleet_plan("--new"))
            seen = status(controller)
            while not (seen.generation == 2 and seen.is_revision_complete):
                assert seen.rollout is None
                await fleet.rig.clock.sleep(0.25)
                seen = status(controller)
            assert fleet.ready("short") == fleet.ready("long") == [NEW, NEW]

    run_virtual(scenario())


def test_a_first_revision_is_complete_once_it_serves_although_the_fleet_was_frozen_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleet = Fleet(tmp_path)
        async with fleet.rig.controller() as controller:
            await fleet.until(2)
            assert not status(controller).is_revision_complete
            frozen = replace(wanted(fleet).overrides, freezes={WHOLE_FLEET: Terms(reason="a launch")})
            fleet.rig.store.set_overrides(FLEET, frozen, now=fleet.rig.clock.now())
            await fleet.until(20)
            assert status(controller).is_revision_complete

    run_virtual(scenario())
