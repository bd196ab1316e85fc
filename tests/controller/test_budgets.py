"""What is left of a lane's error budget, through the deaths of controller and gateway."""

from __future__ import annotations

import itertools
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


def test_the_gateways_page_is_given_what_the_status_shows(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            counted(rig, 100, 0)
            await rig.clock.sleep(400)  # a burn rule waits until its short window has been counted
            counted(rig, 200, 100)
            await rig.clock.sleep(200)
            status = controller.status()
        assert status is not None
        last = rig.gateway.slo_feeds[-1]
        assert last.objective == 0.995
        shown = {lane.name: lane for lane in status.lanes}
        assert {lane.lane for lane in last.lanes} == set(shown)
        for lane in last.lanes:
            assert lane.alerts == shown[lane.lane].alerts
            assert (lane.budget.budget if lane.budget else None) == shown[lane.lane].budget
        assert shown["short"].alerts
        rig.store.close()

    run_virtual(scenario())


def test_readings_are_sent_every_five_seconds_and_when_an_alert_comes_or_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(100)
            quiet = len(rig.gateway.slo_feeds)
            assert 15 <= quiet <= 21
            counted(rig, 100, 0)
            await rig.clock.sleep(303)
            counted(rig, 200, 100)
            await rig.clock.sleep(300)
        seen = [tuple(alert.state for alert in feed.lanes[0].alerts) for feed in rig.gateway.slo_feeds]
        times = [feed.at_s for feed in rig.gateway.slo_feeds]
        steps = [after - before for before, after in itertools.pairwise(times)]
        changed = [after != before for before, after in itertools.pairwise(seen)]
        assert any(changed)
        assert all(is_new or step >= 4.9 for is_new, step in zip(changed, steps, strict=True))
        rig.store.close()

    run_virtual(scenario())
