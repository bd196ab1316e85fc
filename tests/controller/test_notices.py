"""What a provider warns of: seen by everybody, drained for only where the node leaves for certain."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from fleetctl.model.gateway import RouteReplica
    from fleetctl.model.replica import Replica

STATE = ReplicaState


def hint(kind: NoticeKind) -> Notice:
    return Notice(kind=kind, deadline=None, is_certain=False)


def one_of_long(rig: Rig) -> Replica:
    return next(r for r in rig.replicas(STATE.READY) if r.lane == "long")


def routed(rig: Rig, replica_id: str) -> RouteReplica:
    assert rig.gateway.table is not None
    return next(r for r in rig.gateway.table.replicas if r.id == replica_id)


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.MAINTENANCE, NoticeKind.NOT_READY])
def test_a_hint_is_shown_journalled_once_and_at_its_end_and_drains_nobody(on_rig, kind):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller() as controller:
            await rig.clock.sleep(10)
            warned, token = one_of_long(rig), rig.token(one_of_long(rig).id)
            rig.provider.notify(token, hint(kind))
            await rig.clock.sleep(30)
            status = controller.status()
            assert status is not None
            (shown,) = (r.record for r in status.replicas if r.record.id == warned.id)
            assert (shown.state, shown.notice) == (STATE.READY, hint(kind))
            assert routed(rig, warned.id).in_rotation
            assert routed(rig, warned.id).node_ready is (kind is not NoticeKind.NOT_READY)
            assert len(rig.journal("notice")) == 1
            assert rig.journal("notice")[0].startswith(f"notice {warned.id}: the provider gives {kind} notice")
            rig.provider.notify(token, None)
            await rig.clock.sleep(10)
            assert routed(rig, warned.id).node_ready
        async with rig.controller():  # another controller says nothing again
            await rig.clock.sleep(10)
        assert len(rig.journal("notice")) == len(rig.journal("notice-ended")) == 1
        assert rig.journal("drain") == []
        assert len(rig.replicas(STATE.READY)) == 4

    on_rig(scenario)


def test_certain_maintenance_with_a_deadline_drains_as_an_interruption_does(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            warned = one_of_long(rig)
            rig.gateway.in_flight = {warned.id: 1}
            at = rig.clock.now() + timedelta(seconds=120)
            notice = Notice(kind=NoticeKind.MAINTENANCE, deadline=at, is_certain=True)
            rig.provider.notify(rig.token(warned.id), notice)
            await rig.clock.sleep(10)
            (draining,) = rig.replicas(STATE.DRAINING)
            assert (draining.id, draining.notice_deadline) == (warned.id, at)
            assert draining.reason.startswith("maintenance notice: the node is taken in")
        (drained,) = [e for e in rig.store.journal(FLEET, limit=1000) if e.action == "drain"]
        assert drained.code is ReasonCode.NODE_NOTICE

    on_rig(scenario)


def test_certain_maintenance_at_an_unknown_time_is_a_hint(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            notice = Notice(kind=NoticeKind.MAINTENANCE, deadline=None, is_certain=True)
            rig.provider.notify(rig.token(one_of_long(rig).id), notice)
            await rig.clock.sleep(20)
        assert rig.journal("drain") == []

    on_rig(scenario)


def test_scaling_down_gives_up_the_warned_one_first(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(10)
            oldest = min((r for r in rig.replicas(STATE.READY) if r.lane == "short"), key=lambda r: r.created_at)
            rig.provider.notify(rig.token(oldest.id), hint(NoticeKind.REBALANCE))
            await rig.clock.sleep(2)
            plan = samples.plan(FLEET)
            fewer = replace(plan, lanes=(samples.lane_plan("short", on_demand=1), plan.lanes[1]))
            rig.store.put_fleet(samples.profile(FLEET), fewer, now=rig.clock.now())
            await rig.clock.sleep(10)
        assert [line.split(":")[0] for line in rig.journal("drain")] == [f"drain {oldest.id}"]

    on_rig(scenario)
