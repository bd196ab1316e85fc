"""What is left of a lane's error budget, through the deaths of controller and gateway."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.budget import ErrorBudget, RequestTotals
from fleetctl.model.gateway import LaneSnapshot
from fleetctl.testing.samples import EPOCH
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.status import FleetStatus


def counted(rig: Rig, good: int, bad: int) -> None:
    """Have the gateway say this of the lane `short`."""
    totals = RequestTotals(good=good, bad=bad)
    rig.gateway.lanes = (
        LaneSnapshot(name="short", in_flight=0, queued=0, oldest_wait_s=0.0, windows=(), totals=totals),
    )


def budget_of(status: FleetStatus | None, lane: str = "short") -> ErrorBudget | None:
    assert status is not None
    return next(found.budget for found in status.lanes if found.name == lane)


def test_a_controller_that_is_killed_counts_on_and_counts_nothing_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        await rig.run(10)
        counted(rig, 990, 5)
        await rig.run(10)
        counted(rig, 1985, 10)
        budget = budget_of(await rig.run(10))
        assert budget is not None
        assert (budget.good, budget.bad) == (1985, 10)
        assert budget_of(await rig.run(2), "long") is None
        rig.store.close()

    run_virtual(scenario())


def test_a_controller_killed_before_it_stored_the_counts_reads_them_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        await rig.run(10)
        for good in range(1, 9):  # several controllers, each shorter than what stands between two writes
            counted(rig, good, 0)
            budget = budget_of(await rig.run(1.5))
            assert budget is not None
            assert budget.good == good
        rig.store.close()

    run_virtual(scenario())


def test_the_counts_of_a_restarted_gateway_are_added(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            counted(rig, 990, 10)
            await rig.clock.sleep(10)
            counted(rig, 0, 0)
            rig.gateway.kill()
            await rig.clock.sleep(10)
            counted(rig, 2000, 0)  # more than before: only its start tells that they are new
            await rig.clock.sleep(10)
            budget = budget_of(controller.status())
        assert budget is not None
        assert (budget.good, budget.bad) == (2990, 10)
        assert EPOCH <= budget.since <= EPOCH + timedelta(seconds=15)
        rig.store.close()

    run_virtual(scenario())


def test_a_forgotten_fleet_leaves_no_ledger(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        await rig.run(10)
        counted(rig, 5, 5)
        await rig.run(10)
        assert set(rig.store.ledgers(FLEET)) == {"short"}
        rig.down()
        await rig.run(60)
        rig.store.remove_fleet(FLEET)
        assert rig.store.ledgers(FLEET) == {}
        rig.store.close()

    run_virtual(scenario())
