"""The controller moves a warm replica by itself; killed anywhere in between, the next one comes to the same fleet."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.controller.store_access import InlineAccess
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.model.profile import Mode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig
from tests.controller.store_faults import FaultyStore, as_store
from tests.reconcile.worlds import traffic

if TYPE_CHECKING:
    from pathlib import Path

STATE = ReplicaState
BALANCED = (traffic("short", rps=1.0), traffic("long", rps=1.0))
# The sample plan has two replicas in each lane, for 1 rps each: `long` needs three now, `short` its minimum.
UNBALANCED = (traffic("short", rps=0.2), traffic("long", rps=2.9))


class CutOffStore(FaultyStore):
    """A store that takes so many more writes once a move is decided, and then none: as if its writer were dead."""

    def __init__(self, target: Any, *, writes: int) -> None:
        super().__init__(target)
        self._left = writes
        self.has_moved = False

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name == "append":

            def appended(fleet_entries: Any, *rest: Any, **named: Any) -> Any:
                entries = fleet_entries if isinstance(fleet_entries, tuple) else rest[0]
                self.has_moved = self.has_moved or any(entry.action == "assign" for entry in entries)
                return self._write(found, fleet_entries, *rest, **named)

            return appended
        return (lambda *args, **named: self._write(found, *args, **named)) if name.startswith("put") else found

    def _write(self, found: Any, *args: Any, **named: Any) -> Any:
        if self.has_moved:
            self._left -= 1
            if self._left < 0:
                self.fault = sqlite3.OperationalError("cut off")
        return found(*args, **named)


def lanes_of(rig: Rig) -> list[str]:
    return sorted(r.lane for r in rig.replicas(STATE.READY))


async def settle(rig: Rig) -> None:
    """Let the gateway's windows fill, and the fleet serve what it was planned for."""
    await rig.clock.sleep(75)
    rig.gateway.lanes = BALANCED
    await rig.clock.sleep(20)


def test_a_lane_whose_share_grows_is_given_a_warm_replica_within_seconds_and_without_a_boot(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        async with rig.controller():
            await settle(rig)
            orders = len(rig.provider.orders)
            rig.gateway.lanes = UNBALANCED
            await rig.clock.sleep(15)
            assert lanes_of(rig) == ["long", "long", "long", "short"]
            (entry,) = [e for e in rig.store.journal(FLEET, limit=1000) if e.action == "assign"]
            assert entry.inputs["to_lane"] == "long"
            table = rig.gateway.table
            assert table is not None
            assert sorted(r.lane for r in table.replicas if r.in_rotation) == ["long", "long", "long", "short"]
            rig.gateway.lanes = BALANCED
            await rig.clock.sleep(60)
            assert len(rig.journal("assign")) == 1
        assert len(rig.provider.orders) - orders <= 1
        rig.store.close()

    run_virtual(scenario())


@pytest.mark.parametrize("writes", range(6))
def test_a_controller_that_dies_in_the_middle_of_a_move_leaves_one_truth(tmp_path: Path, writes: int) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up()
        async with rig.controller():
            await settle(rig)
        orders, nodes = len(rig.provider.orders), rig.provider.live_tokens
        rig.gateway.lanes = UNBALANCED
        store = CutOffStore(rig.store, writes=writes)
        sound = rig.world
        rig.world = replace(sound, store=WriteBehindStore(InlineAccess(as_store(store)), FLEET, rig.clock))
        async with rig.controller():
            for _ in range(300):
                await rig.clock.sleep(0.1)
                if store.has_moved:
                    break
            await rig.clock.sleep(0.3)
        assert store.has_moved
        rig.world = replace(sound, store=WriteBehindStore(InlineAccess(rig.store), FLEET, rig.clock))
        await rig.run(20)
        assert lanes_of(rig) == ["long", "long", "long", "short"]
        assert (len(rig.provider.orders), rig.provider.live_tokens) == (orders, nodes)
        memory = rig.store.memory(FLEET)
        assert {name: lane.wanted for name, lane in memory.lanes.items()} == {"short": 1, "long": 3}
        table = rig.gateway.table
        assert table is not None
        assert {r.id: r.lane for r in table.replicas} == {r.id: r.lane for r in rig.replicas()}
        rig.store.close()

    run_virtual(scenario())


def test_shadow_mode_says_who_would_move_once_and_moves_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        rig.up(control=replace(samples.profile(FLEET).control, mode=Mode.SHADOW))
        async with rig.controller():
            await settle(rig)
            rig.gateway.lanes = UNBALANCED
            await rig.clock.sleep(40)
        assert lanes_of(rig) == ["long", "long", "short", "short"]
        (entry,) = [e for e in rig.store.journal(FLEET, limit=1000) if e.action == "assign"]
        assert entry.shadow
        rig.store.close()

    run_virtual(scenario())
