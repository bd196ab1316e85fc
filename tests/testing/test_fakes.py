"""The shipped fakes: time, faults and memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import AmbiguousOutcomeError, CapacityError, ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import NodeState
from fleetctl.model.slo import Validity
from fleetctl.testing.clocks import LoopClock, ManualClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.orders import create, listed
from fleetctl.testing.provider import FakeProvider, Fault
from fleetctl.testing.samples import EPOCH, lane_plan, node_request, offering, plan, profile
from fleetctl.testing.virtual_time import run_virtual

if TYPE_CHECKING:
    from fleetctl.ports.engine import Engine


async def test_manual_clock_wakes_sleepers_in_order_and_never_goes_ahead_of_them() -> None:
    clock = ManualClock(EPOCH)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps_s: float) -> None:
        for nap_s in naps_s:
            await clock.sleep(nap_s)
            woken.append((name, clock.monotonic_s()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper("a", 2.0, 2.0))
        tasks.create_task(sleeper("b", 3.0))
        await clock.advance(3.5)
        assert woken == [("a", 2.0), ("b", 3.0)]
        await clock.advance(10.0)
    assert woken[-1] == ("a", 4.0)
    assert clock.now() == EPOCH + timedelta(seconds=13.5)


async def test_manual_clock_forgets_a_cancelled_sleeper() -> None:
    clock = ManualClock(EPOCH)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(clock.sleep(5), timeout=0.01)
    await clock.advance(10)
    assert clock.monotonic_s() == 10


def test_a_virtual_day_passes_at_once_and_one_clock_rules_loop_and_code() -> None:
    async def day() -> tuple[float, timedelta]:
        clock = LoopClock(EPOCH)
        ticks = 0
        async with asyncio.timeout(86_401):
            while clock.now() < EPOCH + timedelta(days=1):
                await clock.sleep(60.0)
                ticks += 1
        assert ticks == 1440
        return asyncio.get_running_loop().time(), clock.now() - EPOCH

    loop_s, passed = run_virtual(day())
    assert loop_s == pytest.approx(86_400)
    assert passed == timedelta(days=1)


def test_a_deadlock_under_virtual_time_is_an_error_not_a_hang() -> None:
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="deadlock"):
        run_virtual(stuck())


async def test_fake_nodes_boot_and_stop_as_time_passes() -> None:
    clock = ManualClock(EPOCH)
    fake = FakeProvider(clock, boot_s=30, stop_s=5)
    node = await create(fake, node_request("t-1"))
    assert node.state is NodeState.STARTING
    clock.jump(30)
    assert (await listed(fake, owner="owner-1", fleet="demo"))[0].state is NodeState.RUNNING
    await fake.stop(node.id, grace_s=60)
    clock.jump(4)
    assert (await listed(fake, owner="owner-1", fleet="demo"))[0].state is NodeState.STOPPING
    clock.jump(1)
    assert (await listed(fake, owner="owner-1", fleet="demo"))[0].exit_reason == "stopped"
    clock.jump(3600)
    assert await listed(fake, owner="owner-1", fleet="demo") == ()


async def test_a_lane_whose_nodes_never_boot_stays_starting() -> None:
    clock = ManualClock(EPOCH)
    fake = FakeProvider(clock)
    fake.never_boots.add("short")
    await create(fake, node_request("t-1"))
    clock.jump(86_400)
    assert (await listed(fake, owner="owner-1", fleet="demo"))[0].state is NodeState.STARTING


async def test_scripted_faults_come_in_order_then_calls_succeed() -> None:
    clock = ManualClock(EPOCH)
    fake = FakeProvider(clock)
    fake.script("create", Fault(error=CapacityError("no stock")), Fault(error=ProviderError("throttled")))
    fake.script_lost_answer("create")
    request = node_request("t-1")
    for error in (CapacityError, ProviderError):
        with pytest.raises(error):
            await create(fake, request)
        assert fake.live_tokens == []
    with pytest.raises(AmbiguousOutcomeError):
        await create(fake, request)
    assert fake.live_tokens == ["t-1"]
    assert (await create(fake, request)).id == "fake-t-1"
    assert [(call.name, call.subject) for call in fake.calls] == [("create", "t-1")] * 4


def test_a_delayed_call_takes_that_long() -> None:
    async def delayed() -> float:
        fake = FakeProvider(LoopClock(EPOCH))
        fake.script("list_nodes", Fault(delay_s=40))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await listed(fake, owner="owner-1", fleet="demo")
        await listed(fake, owner="owner-1", fleet="demo")
        return asyncio.get_running_loop().time()

    assert run_virtual(delayed()) == pytest.approx(10)


async def test_stock_runs_out_by_offering() -> None:
    fake = FakeProvider(ManualClock(EPOCH))
    spot = offering(market=Market.SPOT).key
    fake.stock[spot] = 1
    await create(fake, node_request("t-1", offering=spot))
    with pytest.raises(CapacityError, match="out of stock"):
        await create(fake, node_request("t-2", offering=spot))
    await create(fake, node_request("t-3"))
    assert fake.live_tokens == ["t-1", "t-3"]


async def test_a_node_ended_from_inside_says_why_and_a_sooner_end_wins() -> None:
    clock = ManualClock(EPOCH)
    fake = FakeProvider(clock)
    await create(fake, node_request("t-1"))
    fake.end("t-1", "signal 9")
    assert (await listed(fake, owner="owner-1", fleet="demo"))[0].exit_reason == "signal 9"
    spot = await create(fake, node_request("t-2", market=Market.SPOT))
    await fake.interrupt(spot.id, notice_s=120)
    await fake.stop(spot.id, grace_s=100)
    clock.jump(120)
    assert (await listed(fake, owner="owner-1", fleet="demo"))[1].exit_reason == "stopped"


def test_fake_engine_reads_its_page_and_refuses_nonsense() -> None:
    engine: Engine = FakeEngine()
    good = engine.signals("running 3\nwaiting 1\nkv_usage 0.5\n")
    assert (good.validity, good.running, good.waiting, good.kv_usage) == (Validity.OK, 3, 1, 0.5)
    for page in ("", "running NaN\nwaiting 1\nkv_usage 0.5", "running 3\nwaiting -1\nkv_usage 0.5", "<html>"):
        assert engine.signals(page).validity is Validity.INVALID
    command = engine.launch(
        plan=plan(), lane=profile().lanes[0], lane_plan=lane_plan("short"), host="127.0.0.1", port=20001
    )
    assert command.argv[-3:] == ("short", "127.0.0.1", "20001")
