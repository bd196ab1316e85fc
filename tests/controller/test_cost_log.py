"""What a fleet has cost is counted through the deaths of its controller, and kept when the fleet is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.costs import CostHour
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.gateway import LaneSnapshot, TokenTotals
from fleetctl.ports.records import Collection
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from pathlib import Path


def hours(rig: Rig) -> list[CostHour]:
    return [each.value_as(CostHour) for each in rig.store.records(Collection.COSTS, fleet=FLEET)]


def spent(rig: Rig) -> float:
    return sum(hour.usd for hour in hours(rig))


def served(rig: Rig, prompt: int, output: int) -> None:
    """Have the gateway say this of the lane `short`."""
    tokens = TokenTotals(prompt=prompt, output=output)
    rig.gateway.lanes = (
        LaneSnapshot(name="short", in_flight=0, queued=0, oldest_wait_s=0.0, windows=(), tokens=tokens),
    )


def test_what_a_killed_controller_had_not_stored_and_what_nobody_watched_is_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        served(rig, 1000, 200)
        status = await rig.run(90)
        assert status is not None
        assert status.cost_usd_per_hour > 0
        await rig.clock.sleep(120)  # nobody watches, and the nodes are paid for
        served(rig, 1500, 300)
        await rig.run(100)
        begun = min(record.requested_at for record in rig.store.replicas(FLEET))
        (hour,) = hours(rig)
        lasted_h = (hour.counted_until - begun).total_seconds() / 3600
        assert hour.usd == pytest.approx(status.cost_usd_per_hour * lasted_h, rel=0.02)
        assert (hour.lanes["short"].prompt_tokens, hour.lanes["short"].output_tokens) == (1500, 300)
        rig.store.close()

    run_virtual(scenario())


def test_a_fleet_that_is_down_costs_no_more_and_keeps_what_it_has_cost(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        await rig.run(70)
        before = spent(rig)
        assert before > 0
        rig.store.set_phase(FLEET, DesiredPhase.DOWN, now=rig.clock.now())
        await rig.run(60)
        assert all(not record.state.is_live for record in rig.store.replicas(FLEET))
        rig.store.remove_fleet(FLEET)
        total = spent(rig)
        assert total >= before
        await rig.clock.sleep(timedelta(hours=2).total_seconds())
        assert spent(rig) == total
        rig.store.close()

    run_virtual(scenario())
