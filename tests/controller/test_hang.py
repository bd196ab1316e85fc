"""Engines that hang while their routes answer, and the controller that finds them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from fleetctl.model.replica import Replica

OUT_WITHIN_S = 10.0
AT_WORK = "running 2\nwaiting 0\nkv_usage 0.2\nprompt_tokens 900\noutput_tokens 4711"
IDLE = AT_WORK.replace("running 2", "running 0")


async def out_of_rotation_s(rig: Rig, replica_id: str, *, patience_s: float = 30.0) -> float | None:
    """Wait until the gateway has a table that keeps requests away from a replica; None: it has none in time."""
    begun_s = rig.clock.monotonic_s()
    while rig.clock.monotonic_s() - begun_s < patience_s:
        await rig.clock.sleep(0.1)
        table = rig.gateway.table
        rows = {row.id: row for row in table.replicas} if table else {}
        if not rows[replica_id].in_rotation:
            assert not rows[replica_id].healthy
            return rig.clock.monotonic_s() - begun_s
    return None


async def victim_in_short(rig: Rig, page: str) -> Replica:
    """Return a replica of the lane whose engine shows this page of metrics, once that has been seen."""
    await rig.clock.sleep(15.0)
    victim = next(r for r in rig.replicas() if r.lane == "short")
    rig.engines.pages[victim.port] = page
    await rig.clock.sleep(6.0)
    return victim


def codes(rig: Rig, replica_id: str) -> set[ReasonCode]:
    return {entry.code for entry in rig.store.journal(FLEET, subjects=(Subject.replica(replica_id),))}


@pytest.mark.parametrize("at_work", [True, False])
def test_a_hung_engine_is_out_of_rotation_within_ten_seconds_and_replaced(on_rig, at_work):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            victim = await victim_in_short(rig, AT_WORK if at_work else IDLE)
            rig.engines.hung.add(victim.port)
            if at_work:
                rig.gateway.in_flight[victim.id] = 2
                rig.gateway.silent_since[victim.id] = rig.clock.monotonic_s()
            out_s = await out_of_rotation_s(rig, victim.id)
            assert out_s is not None
            assert out_s <= OUT_WITHIN_S
            assert ReasonCode.STALLED in codes(rig, victim.id)
            await rig.clock.sleep(40.0)
            assert victim.id not in {r.id for r in rig.replicas()}
            assert len(rig.replicas(ReplicaState.READY)) == 4

    on_rig(scenario)


def test_one_that_stood_still_proves_itself_by_an_answer_longer_than_a_warm_up(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            victim = await victim_in_short(rig, IDLE)
            rig.engines.stuck_after[victim.port] = 5
            rig.gateway.stalled.add(victim.id)
            assert await out_of_rotation_s(rig, victim.id) is not None
            rig.gateway.stalled.clear()
            await rig.clock.sleep(60.0)
            assert victim.id not in {r.id for r in rig.replicas()}
            admitted = [
                entry
                for entry in rig.store.journal(FLEET, subjects=(Subject.replica(victim.id),))
                if entry.kind.value == "admit" or entry.code is ReasonCode.WARMED
            ]
            assert len(admitted) == 1

    on_rig(scenario)


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_canary_tells_a_broken_engine_from_requests_that_break_engines(on_rig, is_broken):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            victim = await victim_in_short(rig, IDLE)
            rig.gateway.errors[victim.id] = 12
            if is_broken:
                rig.engines.cold.add(victim.port)
            out_s = await out_of_rotation_s(rig, victim.id)
            assert (out_s is not None) is is_broken
            assert (ReasonCode.UNHEALTHY in codes(rig, victim.id)) is is_broken
            if out_s is not None:
                assert out_s <= OUT_WITHIN_S

    on_rig(scenario)


@pytest.mark.parametrize(
    ("page", "allowance_s"),
    [(IDLE, 0.0), (AT_WORK, 60.0), (AT_WORK.replace("4711", "nan"), 0.0)],
    ids=["idle", "a long prompt", "figures unfit"],
)
def test_an_engine_that_works_or_cannot_be_read_is_left_alone(on_rig, page, allowance_s):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(15.0)
            victim = next(r for r in rig.replicas() if r.lane == "short")
            rig.engines.pages[victim.port] = page
            if page is not IDLE:
                rig.gateway.in_flight[victim.id] = 2
                rig.gateway.silent_since[victim.id] = rig.clock.monotonic_s()
                rig.gateway.prefill_allowance_s = allowance_s
            assert await out_of_rotation_s(rig, victim.id, patience_s=40.0) is None

    on_rig(scenario)


def test_idle_replicas_are_tried_at_a_bounded_rate_and_busy_ones_never(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(15.0)
            busy = next(r for r in rig.replicas() if r.lane == "short")
            rig.engines.pages[busy.port] = AT_WORK.replace("4711", "0").replace("900", "0")
            await rig.clock.sleep(10.0)
            rig.engines.completions.clear()
            await rig.clock.sleep(60.0)
            ports = [port for _, port in rig.engines.completions]
            assert busy.port not in ports
            assert 3 * 60 / 6 <= len(ports) <= 3 * 60 / 4

    on_rig(scenario)
