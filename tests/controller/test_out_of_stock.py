"""Orders that the provider takes and has no machine for, as a pod that stays Pending: tried elsewhere, or waited for."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.model.catalogue import Market
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from tests.controller.rig import FLEET, Rig

LIVE = (ReplicaState.PENDING, ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY)


def sold(market: Market, zone: str) -> str:
    return samples.offering(market=market, zone=zone).key


def test_spot_that_has_no_room_is_left_for_on_demand_and_no_start_has_failed(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        spot = {o.key for o in await rig.provider.offerings() if o.market is Market.SPOT}
        rig.provider.without_room = set(spot)
        async with rig.controller():
            await rig.clock.sleep(30.0)
            ready = rig.replicas(ReplicaState.READY)
            assert len(ready) == 4
            assert {r.market for r in ready} == {Market.ON_DEMAND}
        assert not rig.replicas(ReplicaState.FAILED)
        assert any("has no room for it: Unschedulable" in line for line in rig.journal("stop"))
        assert len(rig.provider.live_tokens) == 4  # nobody is left waiting for a substitute that does not come

    on_rig(scenario)


def test_where_nothing_else_is_sold_it_is_waited_for(on_rig):
    async def scenario(rig: Rig) -> None:
        profile = samples.profile(FLEET)
        rig.provider.without_room = {o.key for o in await rig.provider.offerings()}
        rig.up(replace(profile))
        async with rig.controller() as controller:
            await rig.clock.sleep(30.0)
            waiting = [r.id for r in rig.replicas() if r.state is ReplicaState.BOOTING]
            await rig.clock.sleep(30.0)
            assert [r.id for r in rig.replicas() if r.state is ReplicaState.BOOTING] == waiting
            seen = controller.status()
            assert seen is not None
            assert {r.pending_reason for r in seen.replicas if r.record.id in waiting} == {"Unschedulable"}
        assert waiting
        assert not rig.replicas(ReplicaState.FAILED)

    on_rig(scenario)


def test_what_stands_in_for_one_that_has_gone_keeps_its_place(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(30.0)
            rig.provider.without_room = {o.key for o in await rig.provider.offerings()}
            lost = rig.replicas(ReplicaState.READY)[0]
            rig.provider.end(rig.token(lost.id), "deleted")
            await rig.clock.sleep(15.0)
            (waiting,) = [r for r in rig.replicas() if r.state is ReplicaState.BOOTING]
            assert waiting.replaces == lost.id
            await rig.clock.sleep(60.0)
            assert [r.id for r in rig.replicas() if r.state is ReplicaState.BOOTING] == [waiting.id]

    on_rig(scenario)
