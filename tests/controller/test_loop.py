"""The controller's whole loop among fakes on virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.core.conditions import fleet_condition
from fleetctl.errors import CapacityError, CredentialsError, ProviderError
from fleetctl.model.action import EntryKind
from fleetctl.model.catalogue import Market
from fleetctl.model.profile import ControlSpec, Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.testing import samples
from fleetctl.testing.provider import Fault
from tests.controller.rig import FLEET, Rig

STATE = ReplicaState


def test_desired_state_becomes_a_warmed_fleet_in_rotation(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        status = await rig.run(10)
        assert len(rig.replicas(STATE.READY)) == 4
        assert len(rig.provider.live_tokens) == 4
        assert rig.gateway.table is not None
        assert sorted(r.id for r in rig.gateway.table.replicas if r.in_rotation) == [
            "r1", "r2", "r3", "r4",
        ]  # fmt: skip
        assert status is not None
        assert [(lane.name, lane.ready, lane.wanted) for lane in status.lanes] == [("short", 2, 2), ("long", 2, 2)]
        assert status.gateway_alive
        assert rig.store.open_intents(FLEET) == ()

    on_rig(scenario)


def test_the_gateway_gets_the_engines_figures_that_may_be_decided_on(on_rig):
    async def check(rig: Rig) -> None:
        rig.up()
        rig.engines.page = "running 3\nwaiting 1\nkv_usage 0.25"
        async with rig.controller():
            await rig.clock.sleep(20.0)
            assert {s.id for s in rig.gateway.feeds[-1].replicas} == {r.id for r in rig.replicas()}
            assert {(s.running, s.waiting, s.kv_usage) for s in rig.gateway.feeds[-1].replicas} == {(3, 1, 0.25)}
            assert all(0.0 <= s.age_s <= 6.0 for s in rig.gateway.feeds[-1].replicas)
            sent = len(rig.gateway.feeds)
            rig.engines.page = "running 3\nwaiting 1\nkv_usage nan"
            await rig.clock.sleep(20.0)
            assert len(rig.gateway.feeds) > sent
            assert rig.gateway.feeds[-1].replicas == ()

    on_rig(check)


def test_nothing_serves_before_its_own_completion_came_back(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        await rig.run(10)
        warmed_at = {port: at for at, port in rig.engines.completions}
        for at, table in rig.gateway.tables:
            for route in table.replicas:
                assert warmed_at[route.port] <= at

    on_rig(scenario)


def test_a_dead_replica_is_replaced(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(70)
            rig.provider.end(rig.token("r1"), "signal 9")
            await rig.clock.sleep(10)
        assert [r.id for r in rig.replicas(STATE.READY) if r.lane == "short"] == ["r2", "r5"]
        dead = next(r for r in rig.store.replicas(FLEET) if r.id == "r1")
        assert dead.state is STATE.FAILED
        assert dead.fault.startswith("died while ready: signal 9: its process was killed by signal 9 (SIGKILL)")

    on_rig(scenario)


def test_a_notice_brings_a_replacement_and_the_noticed_one_serves_until_that_is_ready(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(STATE.READY) if r.market.value == "spot")
            rig.gateway.in_flight = {spot.id: 2}
            await rig.provider.interrupt(spot.node_id, notice_s=120)
            await rig.clock.sleep(1.0)
            assert _rotation(rig)[spot.id] is True
            assert len([r for r in rig.replicas() if r.lane == "long"]) == 3
            await rig.clock.sleep(9)
            assert [r.lane for r in rig.replicas(STATE.READY)].count("long") == 2
            assert [r.id for r in rig.replicas(STATE.DRAINING)] == [spot.id]
            assert _rotation(rig)[spot.id] is False
            rig.gateway.in_flight = {}
            await rig.clock.sleep(5)
            assert spot.id not in [r.id for r in rig.replicas()]
        (drained,) = [e for e in rig.store.journal(FLEET, limit=1000) if e.action == "drain"]
        assert (drained.kind, drained.code) == (EntryKind.NOTICE, ReasonCode.SPOT_NOTICE)
        (record,) = [r for key, r in rig.store.memory(FLEET).offerings.items() if key.endswith("spot")]
        assert record.losses == 1.0

    on_rig(scenario)


def test_a_short_notice_takes_it_out_of_rotation_within_a_second(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            spot = next(r for r in rig.replicas(STATE.READY) if r.market.value == "spot")
            rig.gateway.in_flight = {spot.id: 2}
            noticed_s = rig.clock.monotonic_s()
            await rig.provider.interrupt(spot.node_id, notice_s=15)
            await rig.clock.sleep(1.0)
            assert _rotation(rig)[spot.id] is False
            out_s = next(at for at, table in rig.gateway.tables if any(not r.in_rotation for r in table.replicas))
            assert out_s - noticed_s <= 1.0

    on_rig(scenario)


def _rotation(rig: Rig) -> dict[str, bool]:
    assert rig.gateway.table is not None
    return {r.id: r.in_rotation for r in rig.gateway.table.replicas}


def test_a_drain_by_hand_ends_with_a_new_replica_and_no_old_one(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            rig.store.request_drain(FLEET, "r1", now=rig.clock.now())
            controller.wake()
            await rig.clock.sleep(10)
        assert [r.id for r in rig.replicas(STATE.READY) if r.lane == "short"] == ["r2", "r5"]

    on_rig(scenario)


def test_down_leaves_nothing(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        await rig.run(10)
        rig.down()
        await rig.run(20)
        assert rig.provider.live_tokens == []
        assert not rig.gateway.is_alive()
        assert not rig.gateway.port_held
        rig.store.remove_fleet(FLEET)  # which refuses while anything lives

    on_rig(scenario)


def test_down_in_the_middle_of_coming_up_leaves_nothing(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.provider.script("create", Fault(delay_s=8.0), Fault(delay_s=3.0))
        rig.up()
        await rig.run(2)
        rig.down()
        await rig.run(60)
        assert rig.provider.live_tokens == []
        rig.store.remove_fleet(FLEET)

    on_rig(scenario)


def test_a_gateway_that_dies_is_started_again_and_gets_the_table(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            rig.gateway.kill()
            await rig.clock.sleep(4)
            assert rig.gateway.table is not None
            assert sum(r.in_rotation for r in rig.gateway.table.replicas) == 4
        assert len(rig.gateway.starts) == 2

    on_rig(scenario)


def test_a_gateway_that_never_comes_back_has_its_port_closed_after_half_a_minute(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            rig.gateway.dies_at_once = True
            rig.gateway.kill()
            await rig.clock.sleep(25)
            assert rig.gateway.port_held
            await rig.clock.sleep(30)
        assert any("clients are refused at once" in line for line in rig.journal("release-port"))

    on_rig(scenario)


def test_a_hanging_gateway_is_ended_and_started_afresh(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(20)
            rig.gateway.hangs = True
            await rig.clock.sleep(25)
            assert rig.gateway.table is not None
        assert len(rig.gateway.starts) == 2

    on_rig(scenario)


def test_table_versions_only_grow_across_controllers(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        for _ in range(4):
            await rig.run(6)
            rig.store.request_drain(FLEET, rig.replicas(STATE.READY)[0].id, now=rig.clock.now())
        versions = [table.version for _, table in rig.gateway.tables]
        assert versions == sorted(set(versions))

    on_rig(scenario)


def test_a_stock_out_goes_to_the_next_offering(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.provider.script("create", Fault(error=CapacityError("no stock of that")))
        rig.provider._sold = tuple(  # the fake's constructor took it before the rig could
            samples.offering(market=market, zone=zone) for market in Market for zone in ("zone-a", "zone-b")
        )
        rig.up()
        await rig.run(12)
        assert len(rig.replicas(STATE.READY)) == 4
        failed = [r for r in rig.store.replicas(FLEET) if r.state is STATE.FAILED]
        assert [r.fault for r in failed] == ["no stock of that"]

    on_rig(scenario)


def test_missing_credentials_are_said_once_and_asked_about_ever_more_slowly(on_rig):
    async def scenario(rig: Rig) -> None:
        faults = [Fault(error=CredentialsError("no credentials", hint="log in"))] * 500
        rig.provider.script("create", *faults)
        rig.up()
        await rig.run(120)
        creates = [call for call in rig.provider.calls if call.name == "create"]
        assert len(creates) < 40
        assert any("no credentials; log in" in line for line in rig.journal("create"))
        assert rig.replicas() == [] or all(r.state is STATE.PENDING for r in rig.replicas())

    on_rig(scenario)


def test_an_order_whose_answer_was_lost_makes_one_node_only(on_rig):
    async def scenario(rig: Rig) -> None:
        for _ in range(4):
            rig.provider.script_lost_answer("create")
        rig.up()
        await rig.run(15)
        assert len(rig.provider.live_tokens) == 4
        assert len(rig.replicas(STATE.READY)) == 4
        assert any("found by its token" in line for line in rig.journal("adopt"))

    on_rig(scenario)


def test_orders_given_at_once_have_a_port_each_however_slow_the_provider_is(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.provider.script("listen_addresses", *[Fault(delay_s=1.0)] * 4)
        rig.provider.script("create", *[Fault(delay_s=2.0)] * 4)
        rig.up()
        await rig.run(15)
        assert len({order.port for order in rig.provider.orders}) == len(rig.provider.orders) == 4

    on_rig(scenario)


def test_an_order_cut_off_before_it_had_an_effect_is_given_again(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.provider.script("create", Fault(delay_s=1e6))
        rig.up()
        await rig.run(1)
        await rig.run(12)
        assert len(rig.provider.live_tokens) == 4
        assert len(rig.replicas(STATE.READY)) == 4

    on_rig(scenario)


@pytest.mark.parametrize("life_s", [0.3, 0.9, 1.7, 2.6])
def test_controllers_that_keep_dying_never_double_a_node(on_rig, life_s):
    async def scenario(rig: Rig) -> None:
        rig.up()
        most = 0
        for _ in range(12):
            await rig.run(life_s)
            most = max(most, len(rig.provider.live_tokens))
        await rig.run(10)
        assert most <= 4
        assert len(rig.provider.live_tokens) == 4
        assert len(rig.replicas(STATE.READY)) == 4
        assert len(rig.gateway.starts) == 1

    on_rig(scenario)


def test_a_silent_provider_takes_nothing_down(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            rig.provider.script("list_nodes", *[Fault(error=ProviderError("API down"))] * 200)
            await rig.clock.sleep(60)
            status = controller.status()
            assert status is not None
            assert "does not answer" in status.reason
        assert len(rig.replicas(STATE.READY)) == 4

    on_rig(scenario)


def test_a_slow_provider_is_being_asked_until_its_own_deadline_has_passed(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.provider.script("list_nodes", *[Fault(delay_s=600.0)] * 10)
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(rig.provider.pace.list_deadline_s - 1)
            early = controller.status()
            await rig.clock.sleep(3)
            late = controller.status()
        assert early is not None
        assert late is not None
        assert early.reason.startswith("the provider is being asked what there is (")
        assert "the provider does not answer" in late.reason

    on_rig(scenario)


def test_an_unhealthy_replica_is_taken_out_of_rotation_and_comes_back_warmed(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(20)
            unhealthy = next(r for r in rig.replicas(STATE.READY) if r.id == "r1")
            rig.engines.unhealthy.add(unhealthy.port)
            rig.engines.startup_s = 20.0  # its substitute is not there before it has recovered
            await rig.clock.sleep(6)
            assert rig.gateway.table is not None
            assert not {r.id: r.in_rotation for r in rig.gateway.table.replicas}["r1"]
            warmed = len(rig.engines.completions)
            rig.engines.unhealthy.clear()
            await rig.clock.sleep(8)
            assert {r.id: r.in_rotation for r in rig.gateway.table.replicas}["r1"]
            assert len(rig.engines.completions) > warmed

    on_rig(scenario)


def test_a_replica_that_fails_at_the_gateway_is_warmed_anew_before_it_serves(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            rig.gateway.failures = {"r1": 3}
            await rig.clock.sleep(6)
            assert any("3 requests in a row" in line for line in rig.journal("mark-booting"))
            # The old failures speak against it no longer.
            assert "r1" in [r.id for r in rig.replicas(STATE.READY)]
            assert len(rig.journal("mark-booting")) == 1

    on_rig(scenario)


def test_an_engine_that_completes_nothing_is_given_up(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.engines.cold.add(20000)
        rig.up()
        await rig.run(60)
        failed = [r for r in rig.store.replicas(FLEET) if r.state is STATE.FAILED]
        assert next(r.fault for r in failed if r.port == 20000) == "3 warm-up completions failed"

    on_rig(scenario)


def test_shadow_mode_brings_the_fleet_up_and_then_changes_nothing(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up(control=ControlSpec(mode=Mode.SHADOW))
        async with rig.controller():
            await rig.clock.sleep(70)
            assert len(rig.replicas(STATE.READY)) == 4
            rig.provider.end(rig.token("r1"))
            await rig.clock.sleep(30)
        assert len(rig.provider.live_tokens) == 3
        ideas = [e for e in rig.store.journal(FLEET, limit=1000) if e.shadow]
        assert [(e.action, e.subject) for e in ideas] == [("launch", Subject.lane("short"))]

    on_rig(scenario)


def test_a_tick_that_fails_is_journalled_and_survived(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            whole = rig.gateway.snapshot
            object.__setattr__(rig.world, "gateway", Broken())
            await rig.clock.sleep(10)
            assert any("a bug" in line for line in rig.journal("tick"))
            shown = controller.status()
            assert shown is not None
            assert "a bug" in shown.reason
            object.__setattr__(rig.world, "gateway", rig.gateway)
            await rig.clock.sleep(40)
            assert controller.status() is not None
            del whole
        assert len(rig.replicas(STATE.READY)) == 4

    on_rig(scenario)


class Broken:
    """A gateway door with a bug in it."""

    async def snapshot(self) -> None:
        raise RuntimeError("a bug")


def test_an_idle_fleet_writes_nothing(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(30)
            lines, tables = len(rig.journal()), len(rig.gateway.tables)
            memory, records = rig.store.memory(FLEET), rig.store.replicas(FLEET)
            await rig.clock.sleep(60)
            assert (len(rig.journal()), len(rig.gateway.tables)) == (lines, tables)
            assert rig.store.replicas(FLEET) == records
            assert replace(rig.store.memory(FLEET), lanes={}) == replace(memory, lanes={})

    on_rig(scenario)


def test_a_gateway_that_does_not_progress_is_ended_at_once_and_replaced(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            rig.gateway.hangs, rig.gateway.stalled_at = True, rig.clock.monotonic_s()
            await rig.clock.sleep(1.0)
            status = controller.status()
            assert status is not None
            assert "process 4242 is stopped" in fleet_condition(status).message
            await rig.clock.sleep(5)
            assert [within_s < 1.0 for within_s in rig.gateway.stops] == [True]
            assert len(rig.gateway.starts) == 2
            assert rig.gateway.table is not None

    on_rig(scenario)
