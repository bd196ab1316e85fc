"""A controller at work says so between the parts of its work; one that does not come on with a part is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.reconcile.fleet import reconcile
from tests.controller.rig import FakeGateway, Rig

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import GatewaySnapshot, RoutingTable, SignalFeed
    from fleetctl.model.observation import Observation
    from fleetctl.model.slo_feed import SloFeed

PARTS_S_MAX = 15.0


@dataclass
class SlowGateway:
    """Takes its time with every answer."""

    behind: FakeGateway
    snapshot_s: float = 0.0
    signals_s: float = 0.0

    async def snapshot(self) -> GatewaySnapshot:
        await self.behind.clock.sleep(self.snapshot_s)
        return await self.behind.snapshot()

    async def put_table(self, table: RoutingTable) -> int:
        return await self.behind.put_table(table)

    async def put_signals(self, feed: SignalFeed) -> None:
        await self.behind.clock.sleep(self.signals_s)
        await self.behind.put_signals(feed)

    async def put_slo(self, feed: SloFeed) -> None:
        await self.behind.put_slo(feed)


def test_a_tick_gives_a_sign_of_life_right_before_and_after_it_decides(on_rig):
    async def scenario(rig: Rig) -> None:
        seen: list[str] = []

        def decide(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
            seen.append("decision")
            return reconcile(desired, observation, memory, now)

        rig.world = replace(rig.world, policy_of=lambda _: decide, made_progress=lambda: seen.append("sign"))
        rig.up()
        await rig.run(10.0)
        decisions = [place for place, what in enumerate(seen) if what == "decision"]
        assert len(decisions) >= 10
        assert all(seen[at - 1] == seen[at + 1] == "sign" for at in decisions[:-1])

    on_rig(scenario)


@pytest.mark.parametrize(
    ("snapshot_s", "signals_s", "is_progressing"),
    [
        (0.7 * PARTS_S_MAX, 0.7 * PARTS_S_MAX, True),  # longer than a part may take, and each of its parts ends
        (1.5 * PARTS_S_MAX, 0.0, False),
        (0.0, 1.5 * PARTS_S_MAX, False),
    ],
)
def test_a_long_tick_progresses_as_long_as_its_parts_end(on_rig, snapshot_s, signals_s, is_progressing):
    async def scenario(rig: Rig) -> None:
        slow = SlowGateway(rig.gateway)
        rig.world = replace(rig.world, gateway=slow)
        rig.engines.page = "running 3\nwaiting 1\nkv_usage 0.25"
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(20.0)
            slow.snapshot_s, slow.signals_s = snapshot_s, signals_s
            looks = []
            for _ in range(150):
                await rig.clock.sleep(0.5)
                looks.append(controller.is_progressing)
            assert all(looks) is is_progressing

    on_rig(scenario)
