"""Two controllers on one fleet: the older one is fenced, whenever it was stopped and however it goes on."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from fleetctl.controller.loop import Controller
from fleetctl.errors import FencedError
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.lease import LeaseHolder
from fleetctl.testing.samples import EPOCH
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig, behind
from tests.controller.stopping import StoppableGroup

_CHANGES = ("create", "stop", "prepare", "teardown")


class Leased:
    """A controller under a lease of its own, which can be stopped and continued."""

    def __init__(self, rig: Rig, pid: int) -> None:
        holder = LeaseHolder(pid=pid, host="here", boot_id="boot", started_at=EPOCH)
        lease = rig.store.acquire_lease(FLEET, holder, now=rig.clock.now())
        self.epoch = lease.epoch
        self.group = StoppableGroup()
        world = replace(rig.world, store=behind(rig.store.under(lease), rig.clock), pid=pid, epoch=lease.epoch)
        with self.group.members():
            self.task = asyncio.ensure_future(Controller(world).run())

    async def end(self) -> None:
        self.group.go_on()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def changes(rig: Rig) -> int:
    """Return how often anybody has changed something at the provider."""
    return sum(call.name in _CHANGES for call in rig.provider.calls)


def test_a_controller_that_lost_its_lease_ends_within_a_tick_and_touches_nothing(tmp_path):
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        old = Leased(rig, pid=1)
        await rig.clock.sleep(10)
        assert len(rig.replicas(ReplicaState.READY)) == 4
        before, tables, entries = changes(rig), len(rig.gateway.tables), rig.journal()
        rig.store.acquire_lease(
            FLEET, LeaseHolder(pid=2, host="here", boot_id="", started_at=EPOCH), now=rig.clock.now()
        )
        rig.down()  # there is much that it would do now
        await rig.clock.sleep(1.5)
        assert old.task.done()
        with pytest.raises(FencedError, match="process 2 on here has held epoch 2 since"):
            old.task.result()
        assert (changes(rig), len(rig.gateway.tables), rig.journal()) == (before, tables, entries)
        rig.store.close()

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(25))
def test_a_stopped_and_continued_controller_never_acts_beside_its_successor(tmp_path, seed):
    """The first is stopped at any moment, the second takes over at any later one, the first goes on at any other."""

    async def scenario() -> None:
        rng = random.Random(seed)
        rig = Rig(tmp_path)
        rig.up()
        old = Leased(rig, pid=1)
        await rig.clock.sleep(rng.uniform(0, 8))
        if rng.random() < 0.7:
            old.group.stop()
            await rig.clock.sleep(rng.uniform(0, 3))
        if rng.random() < 0.5 and rig.provider.live_tokens:
            rig.provider.end(rng.choice(rig.provider.live_tokens))
        taken_over_at, begun = rig.clock.monotonic_s(), _under_way(old)
        successor = Leased(rig, pid=2)
        after = len(rig.provider.calls)
        await rig.clock.sleep(rng.uniform(0, 6))
        old.group.go_on()
        await rig.clock.sleep(12)

        assert old.task.done()
        assert isinstance(old.task.exception(), FencedError)
        assert not successor.task.done()
        made_late = [table for at, table in rig.gateway.tables if at > taken_over_at]
        assert {table.epoch for table in made_late} <= {successor.epoch}
        created = [call.subject for call in rig.provider.calls[after:] if call.name == "create"]
        assert len(created) == len(set(created)) or begun, "a node was created twice"
        ready = rig.replicas(ReplicaState.READY)
        assert len(ready) == 4
        assert len(rig.provider.live_tokens) == 4
        assert rig.store.open_intents(FLEET) == ()
        await successor.end()
        rig.store.close()

    run_virtual(scenario())


def _under_way(controller: Leased) -> bool:
    """Whether it may have sent an order that was not answered: that one may be sent again, by the same token."""
    return any("create/" in task.get_name() for task in asyncio.all_tasks()) and not controller.task.done()
