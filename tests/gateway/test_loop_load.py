"""How busy the gateway's event loop is, as its snapshot and its page say."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fleetctl.clock import thread_cpu_s
from fleetctl.gateway.loop_load import LoopLoadMeter
from tests.gateway.rig import LIMITS, GatewayRig, until


def test_it_is_the_share_and_the_lateness_of_the_last_ten_seconds() -> None:
    computed = iter([0.0] * 40 + [0.2 * number for number in range(41)])
    meter = LoopLoadMeter(0.25, lambda: next(computed))
    for number in range(40):
        meter.note(0.25 * number)
    idle = meter.read()
    assert idle is not None
    assert (idle.cpu_share, idle.lag_s) == (0.0, 0.0)
    for number in range(41):  # each half as late again as the interval
        meter.note(10.0 + 0.375 * number)
    busy = meter.read()
    assert busy is not None
    assert busy.cpu_share == pytest.approx(0.2 / 0.375)
    assert busy.lag_s == pytest.approx(0.125)


def test_one_long_step_is_no_load_and_a_young_gateway_has_none() -> None:
    meter = LoopLoadMeter(0.25, lambda: 0.0)
    for number in range(7):
        meter.note(0.25 * number)
    assert meter.read() is None
    for number in range(7, 30):
        meter.note(0.25 * number + (2.0 if number > 20 else 0.0))
    found = meter.read()
    assert found is not None
    assert found.lag_s == 0.0


async def test_a_loop_that_computes_without_end_is_seen_in_the_snapshot_and_on_the_page() -> None:
    async with GatewayRig(limits=replace(LIMITS, sweep_interval_s=0.02)) as rig:
        await until(lambda: rig.frontend.snapshot(1).loop is not None)
        idle = rig.frontend.snapshot(1).loop
        assert idle is not None
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()

        def compute() -> None:
            end_s = thread_cpu_s() + 0.05
            while thread_cpu_s() < end_s:
                pass
            if not is_over.is_set():
                loop.call_soon(compute)

        loop.call_soon(compute)

        def is_seen() -> bool:
            found = rig.frontend.snapshot(1).loop
            return found is not None and found.lag_s > 0.025

        await until(is_seen, wait_s=50.0)
        busy = rig.frontend.snapshot(1).loop
        is_over.set()
        page = (await rig.get("/metrics")).body.decode()
    assert busy is not None
    assert busy.lag_s > 0.025
    assert busy.cpu_share > idle.cpu_share
    assert '\nfleetctl_gateway_event_loop_cpu_ratio{fleet="rig"} ' in page
    assert '\nfleetctl_gateway_event_loop_lag_seconds{fleet="rig"} ' in page
