"""What the creator says is on its way."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from fleetctl.controller.create import Creator
from fleetctl.controller.journal import Journal
from fleetctl.controller.loop import Controller
from fleetctl.controller.node_cache import NodeCache
from fleetctl.controller.place import PlaceGuard
from fleetctl.controller.provider_calls import ProviderCalls
from fleetctl.controller.records import Records
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig, behind

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.ports.store import Settlement


class Busy:
    """Background tasks whose last one of every name has not been cleared away yet."""

    def start(self, key: str, work: object) -> bool:
        del key, work
        return False


class CountingStore(SqliteStore):
    """Remembers how many intents each of its transactions settled."""

    def __init__(self, path: Path, rig: Rig) -> None:
        super().__init__(path, clock=rig.clock)
        self.settled: list[int] = []

    def settle_intents(self, settled: tuple[Settlement, ...]) -> None:
        self.settled.append(len(settled))
        super().settle_intents(settled)


def test_what_a_batch_made_is_settled_in_one_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.provider.capabilities = replace(rig.provider.capabilities, batch_max=20)
        rig.up()
        with closing(CountingStore(tmp_path / "state.db", rig)) as store:
            controller = asyncio.ensure_future(Controller(replace(rig.world, store=behind(store, rig.clock))).run())
            await rig.clock.sleep(5.0)
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)
            assert len(rig.replicas()) == 4
            assert store.settled == [4]
        rig.store.close()

    run_virtual(scenario())


def test_an_order_that_could_not_be_begun_is_not_taken_for_one_on_its_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        world, desired = rig.world, rig.store.fleet(FLEET)
        assert desired is not None
        creator = Creator(
            world,
            calls=ProviderCalls(
                rig.provider,
                rig.clock,
                owner=rig.store.owner,
                fleet=FLEET,
                verify_lease=rig.world.store.verify_lease,
                confirm_place=PlaceGuard(rig.provider, rig.world.store, rig.clock, fleet=FLEET).confirm,
            ),
            cache=NodeCache(lag_s=0.0, stop_again_s=20.0),
            records=Records(rig.world.store),
            background=cast("BackgroundTasks", Busy()),
            journal=Journal(rig.world.store, FLEET, rig.clock),
        )
        record = samples.replica()
        intent = rig.store.begin_replica(record, samples.node_request(replica_id=record.id), now=rig.clock.now())
        creator.begin(desired, [intent])
        assert not creator.is_creating(record.id)
        rig.store.close()

    run_virtual(scenario())
