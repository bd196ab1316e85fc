"""The clock is set, the state is deleted, moved or put back: nobody decides on what was seen before."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.controller.interruptions import step_since
from fleetctl.controller.store_access import InlineAccess
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.core.clock_steps import shifted
from fleetctl.core.conditions import fleet_condition
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.lease import Lease, LeaseHolder
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH
from tests.controller.store_faults import FaultyStore, as_store
from tests.controller.test_store_faults import Kept
from tests.reconcile.worlds import snapshot

if TYPE_CHECKING:
    from fleetctl.ports.store import StateStore
    from tests.controller.rig import Rig

READY = ReplicaState.READY
HOUR_S = 3600.0


def creates(rig: Rig) -> int:
    return sum(call.name == "create" for call in rig.provider.calls)


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S, 26 * HOUR_S])
def test_a_clock_that_is_set_changes_nothing_of_a_fleet_at_rest(on_rig, step_s):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(20)
            before = {r.id for r in rig.replicas(READY)}
            made = creates(rig)
            rig.clock.step_wall(step_s)
            await rig.clock.sleep(30)
            assert {r.id for r in rig.replicas(READY)} == before
            assert creates(rig) == made
            assert len(rig.gateway.starts) == 1
            status = controller.status()
            assert status is not None
            assert [(lane.ready, lane.wanted) for lane in status.lanes] == [(2, 2), (2, 2)]

    on_rig(scenario)


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S, 26 * HOUR_S])
def test_what_goes_on_while_the_clock_is_set_takes_no_longer_than_ever(on_rig, step_s):
    """A replica boots, another drains, the gateway is dead: each is over in its own time."""

    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            rig.provider.end(rig.token(rig.replicas(READY)[0].id))
            await rig.clock.sleep(1.5)
            made = creates(rig)
            rig.clock.step_wall(step_s)
            rig.gateway.kill()
            await rig.clock.sleep(10)
            assert len(rig.replicas(READY)) == 4
            assert creates(rig) == made, "what was ordered already was ordered again"
            assert rig.gateway.table is not None
            rig.down()
            await rig.clock.sleep(40)
            assert not rig.replicas()

    on_rig(scenario)


def test_a_step_while_no_controller_was_there_is_told_by_the_lease():
    clock = ManualClock(EPOCH)
    clock.jump(100.0)
    holder = LeaseHolder(pid=1, host="here", boot_id="boot", started_at=EPOCH)
    lease = Lease(
        fleet="demo",
        epoch=1,
        holder=holder,
        acquired_at=EPOCH,
        renewed_at=clock.now(),
        renewed_monotonic_s=clock.monotonic_s(),
    )
    clock.jump(50.0)
    assert step_since(lease, clock) is None
    clock.step_wall(-HOUR_S)
    assert step_since(lease, clock) == timedelta(hours=-1)
    assert step_since(replace(lease, renewed_monotonic_s=None), clock) is None


class DyingStore(FaultyStore):
    """Dies with its controller at the write after so many."""

    def __init__(self, target: StateStore, *, dies_after: int) -> None:
        super().__init__(target)
        self.left = dies_after

    def __getattr__(self, name: str) -> Any:  # whatever the target has
        found = super().__getattr__(name)
        if name in ("put_replica", "put_memory", "put_ledgers", "renew_lease"):
            self.left -= 1
            if self.left < 0:
                raise ConnectionError("killed")
        return found


@pytest.mark.parametrize("dies_after", range(6))
def test_a_controller_that_dies_while_it_moves_its_records_along_has_moved_none_of_them(dies_after):
    async def scenario() -> None:
        clock = ManualClock(EPOCH)
        store = SqliteStore(None, clock=clock)
        holder = LeaseHolder(pid=1, host="here", boot_id="boot", started_at=EPOCH)
        store.put_fleet(samples.profile("demo"), samples.plan("demo"), now=EPOCH)
        for number in (1, 2):
            record = samples.replica(f"r{number}", fleet="demo")
            store.begin_replica(record, samples.node_request(f"t{number}", replica_id=record.id), now=EPOCH)
        store.put_memory("demo", Memory(gateway_missing_since=EPOCH))
        first = store.under(store.acquire_lease("demo", holder, now=EPOCH))
        first.renew_lease(now=clock.now(), monotonic_s=clock.monotonic_s())
        clock.step_wall(HOUR_S)
        for left in (dies_after, 100):
            bound = store.under(store.acquire_lease("demo", holder, now=clock.now()))
            access = InlineAccess(as_store(DyingStore(bound, dies_after=left)))
            with suppress(ConnectionError):
                await WriteBehindStore(access, "demo", clock).open()
        later = EPOCH + timedelta(hours=1)
        assert [record.changed_at for record in store.replicas("demo")] == [later, later]
        assert store.memory("demo").gateway_missing_since == later

    asyncio.run(scenario())


def test_every_instant_of_a_memory_moves_and_nothing_else():
    memory = Memory(
        gateway_missing_since=EPOCH, missing_since={"r1": EPOCH}, lanes={"short": LaneMemory(up_since=EPOCH, wanted=3)}
    )
    later = EPOCH + timedelta(hours=1)
    assert shifted(memory, timedelta(hours=1)) == Memory(
        gateway_missing_since=later, missing_since={"r1": later}, lanes={"short": LaneMemory(up_since=later, wanted=3)}
    )


def test_nothing_is_decided_while_the_state_is_gone_and_all_goes_on_when_it_is_back(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        store = FaultyStore(rig.store)
        kept = Kept(rig, InlineAccess(as_store(store)))
        await rig.clock.sleep(10)
        made, tables = creates(rig), len(rig.gateway.tables)
        store.is_there = False
        await rig.clock.sleep(2)
        for token in tuple(rig.provider.live_tokens):
            rig.provider.end(token)  # as a listing looks whose directory is gone
        await rig.clock.sleep(60)
        assert (creates(rig), len(rig.gateway.tables)) == (made, tables)
        assert not kept.task.done()
        status = kept.controller.status()
        assert status is not None
        assert "state missing" in fleet_condition(status).message
        store.is_there = True
        await rig.clock.sleep(12)
        assert len(rig.replicas(READY)) == 4
        status = kept.controller.status()
        assert status is not None
        assert fleet_condition(status).type.value == "READY"
        await kept.end()

    on_rig(scenario)


def test_a_write_that_is_refused_has_everything_read_anew(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            rig.world.store.put_memory(Memory())
            rig.world.store._queue._broken = ValueError("refused")
            await rig.clock.sleep(5)
            assert not rig.world.store.is_broken
            assert len(rig.replicas(READY)) == 4
            assert rig.world.store.replicas() == rig.store.replicas(samples.profile("demo").name)

    on_rig(scenario)


def test_a_gateways_rates_are_of_its_own_time_whatever_the_clock_says():
    born_in_the_future = replace(snapshot(), started_at=EPOCH + timedelta(hours=1), uptime_s=60.0)
    assert born_in_the_future.age_s(EPOCH) == 60.0
    assert replace(born_in_the_future, uptime_s=None, started_at=EPOCH - timedelta(hours=1)).age_s(EPOCH) == HOUR_S
