"""Engines that are started anew on the nodes that they have: by the controller itself, by a person, and when that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ProviderError
from fleetctl.model.engine_restart import RestartPhase
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.provider import Fault
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig
from tests.controller.test_hang import IDLE, codes, victim_in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from fleetctl.model.engine_restart import EngineRestart
    from fleetctl.model.node import Node
    from fleetctl.model.replica import Replica


@pytest.fixture
def on_restarting_rig(tmp_path: Path) -> Callable[[Callable[[Rig], Coroutine[object, object, None]]], None]:
    """Run a scenario where the provider can start engines anew."""

    def run(scenario: Callable[[Rig], Coroutine[object, object, None]]) -> None:
        async def whole() -> None:
            rig = Rig(tmp_path, restarts=True)
            try:
                await scenario(rig)
            finally:
                rig.store.close()

        run_virtual(whole())

    return run


def calls(rig: Rig, name: str) -> list[str]:
    return [call.subject for call in rig.provider.calls if call.name == name]


def now_of(rig: Rig, record: Replica) -> Replica:
    return next(r for r in rig.store.replicas(FLEET) if r.id == record.id)


def restart_of(rig: Rig, record: Replica) -> EngineRestart:
    found = now_of(rig, record).restart
    assert found is not None
    return found


def order(rig: Rig, record: Replica, number: int = 1) -> None:
    desired = rig.store.fleet(FLEET)
    assert desired is not None
    rig.store.set_overrides(FLEET, replace(desired.overrides, restarts={record.id: number}), now=rig.clock.now())


def test_a_hung_engine_serves_again_on_its_node_and_no_other_was_ordered(on_restarting_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            victim = await victim_in_short(rig, IDLE)
            launched = len(rig.provider.orders)
            rig.engines.hung.add(victim.port)
            await rig.clock.sleep(60.0)
            back = now_of(rig, victim)
            assert (back.state, back.node_id) == (ReplicaState.READY, victim.node_id)
            assert restart_of(rig, victim).phase is RestartPhase.OVER
            assert calls(rig, "restart") == [victim.node_id]
            assert (calls(rig, "stop"), len(rig.provider.orders)) == ([], launched)
            assert {ReasonCode.STALLED, ReasonCode.WARM_UP_FAILED, ReasonCode.RESTARTED} <= codes(rig, victim.id)
            # Once in its life: the next time its node is replaced.
            rig.engines.hung.add(victim.port)
            await rig.clock.sleep(60.0)
            assert calls(rig, "restart") == [victim.node_id]
            assert calls(rig, "stop") == [victim.node_id]
            assert len(rig.replicas(ReplicaState.READY)) == 4

    on_restarting_rig(scenario)


def test_where_the_provider_cannot_after_all_it_is_replaced_and_the_next_is_not_tried(on_restarting_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        rig.provider.script("restart", Fault(error=ProviderError("no agent answers", hint="give it one")))
        async with rig.controller():
            victim = await victim_in_short(rig, IDLE)
            rig.engines.hung.add(victim.port)
            await rig.clock.sleep(60.0)
            assert now_of(rig, victim).state is ReplicaState.GONE or not now_of(rig, victim).state.is_live
            assert "no agent answers" in now_of(rig, victim).fault
            assert len(rig.replicas(ReplicaState.READY)) == 4
            other = await victim_in_short(rig, IDLE)
            rig.engines.hung.add(other.port)
            await rig.clock.sleep(60.0)
            assert calls(rig, "restart") == [victim.node_id]
            assert not now_of(rig, other).state.is_live

    on_restarting_rig(scenario)


def test_a_persons_order_is_followed_once_over_a_controller_that_is_killed(on_restarting_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            chosen = await victim_in_short(rig, IDLE)
        rig.provider.script("restart", Fault(delay_s=1e6))
        order(rig, chosen)
        async with rig.controller():
            await rig.clock.sleep(20.0)  # killed while it waits for the provider
            assert restart_of(rig, chosen).phase is RestartPhase.REQUESTED
        async with rig.controller():
            await rig.clock.sleep(30.0)
        back = now_of(rig, chosen)
        assert (back.state, restart_of(rig, chosen).orders, back.node_id) == (ReplicaState.READY, 1, chosen.node_id)
        assert calls(rig, "restart") == [chosen.node_id] * 2
        assert calls(rig, "stop") == []
        assert len(rig.provider.orders) == 4
        table = rig.gateway.table
        assert table is not None
        assert {row.id for row in table.replicas if row.in_rotation} >= {chosen.id}

    on_restarting_rig(scenario)


def test_an_engine_that_is_restarted_is_out_of_rotation_before_it_ends(on_restarting_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        rotation: list[bool] = []
        begin_anew = rig.provider.on_restart

        def on_restart(node: Node) -> None:
            assert rig.gateway.table is not None
            rows = {row.id: row.in_rotation for row in rig.gateway.table.replicas}
            rotation.append(rows[chosen.id])
            begin_anew(node)

        rig.provider.on_restart = on_restart
        async with rig.controller():
            chosen = await victim_in_short(rig, IDLE)
            rig.gateway.in_flight[chosen.id] = 1
            order(rig, chosen)
            await rig.clock.sleep(5.0)
            assert (now_of(rig, chosen).state, rotation) == (ReplicaState.DRAINING, [])
            rig.gateway.in_flight[chosen.id] = 0
            await rig.clock.sleep(15.0)
            assert (now_of(rig, chosen).state, rotation) == (ReplicaState.READY, [False])

    on_restarting_rig(scenario)
