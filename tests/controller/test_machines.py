"""The real controller and machines: replicas that share one, and replicas that span several."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.machines import machine_count
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.fault_provider import CloudFaults
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.cloud_rig import Cloud
from tests.controller.rig import FLEET

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from fleetctl.model.replica import Replica

KIND = CloudFaults(
    list_s=0.2, list_lag_s=0.0, create_s=1.0, address_s=0.0, boot_s=2.0, stop_s=1.0,
    throttled=0.0, cut=0.0, partial=0.0, strangers=0,
)  # fmt: skip
LARGE = tuple(samples.offering(instance_type="g6e.12xlarge", gpu_count=4, market=market) for market in Market)
SPANS = 3


def on_shared_machines(home: Path, faults: CloudFaults = KIND) -> Cloud:
    """Return a fleet whose three spot replicas fit one machine of four GPUs."""
    cloud = Cloud(home, 7, slots=4, faults=faults, sold=LARGE)
    cloud.up(spot=3)
    return cloud


def in_groups(home: Path, faults: CloudFaults = KIND) -> Cloud:
    """Return a fleet whose replicas span three machines each."""
    cloud = Cloud(home, 7, slots=4, faults=faults)
    cloud.engine = FakeEngine(multi_node=True)
    cloud.up()
    desired = cloud.store.fleet(FLEET)
    assert desired is not None
    lanes = tuple(replace(p, launch=replace(p.launch, pipeline_parallel=SPANS)) for p in desired.plan.lanes)
    capacity = replace(desired.profile.capacity, max_nodes=4 * SPANS)
    cloud.store.put_fleet(
        replace(desired.profile, capacity=capacity), replace(desired.plan, lanes=lanes), now=cloud.clock.now()
    )
    return cloud


def ready(cloud: Cloud, market: Market | None = None) -> list[Replica]:
    return [r for r in cloud.replicas(ReplicaState.READY) if market is None or r.market is market]


def routed(cloud: Cloud) -> set[str]:
    table = cloud.gateway.table
    return {r.id for r in table.replicas if r.in_rotation} if table is not None else set()


async def until_out_of_rotation(cloud: Cloud, replicas: list[Replica]) -> float:
    """Return the seconds until the gateway was told to send none of them anything."""
    since_s = cloud.clock.monotonic_s()
    while routed(cloud) & {r.id for r in replicas}:
        await cloud.clock.sleep(0.05)
    return cloud.clock.monotonic_s() - since_s


def test_replicas_share_a_machine_and_its_notice_drains_each_of_them_within_a_second(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_shared_machines(tmp_path)
        waits: list[float] = []
        doomed: list[Replica] = []

        async def take() -> None:
            while len(ready(cloud)) < 4 or len(routed(cloud)) < 4:
                await cloud.clock.sleep(0.1)
            doomed.extend(ready(cloud, Market.SPOT))
            await cloud.provider.interrupt(doomed[0].node_id, notice_s=15.0)
            waits.append(await until_out_of_rotation(cloud, doomed))

        await beside(cloud, take, seconds=60)
        assert len({r.machine_id for r in doomed}) == 1
        assert sorted(gpu for r in doomed for gpu in r.gpu_indices) == [0, 1, 2]
        assert waits[0] < 1.0
        assert len(ready(cloud, Market.SPOT)) == 3
        assert {r.machine_id for r in ready(cloud, Market.SPOT)}.isdisjoint({doomed[0].machine_id})
        survivors = ready(cloud, Market.ON_DEMAND)
        assert [r.notice_deadline for r in survivors] == [None]
        cloud.down()
        assert await cloud.live(200)
        assert cloud.provider.machines() == set()

    run_virtual(scenario())


def test_maintenance_of_a_machine_drains_every_replica_on_it_once_others_are_ready(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_shared_machines(tmp_path)
        doomed: list[Replica] = []

        async def announce() -> None:
            while len(routed(cloud)) < 4:
                await cloud.clock.sleep(0.1)
            doomed.extend(ready(cloud, Market.SPOT))
            deadline = cloud.clock.now() + timedelta(minutes=5)
            notice = Notice(kind=NoticeKind.MAINTENANCE, deadline=deadline, is_certain=True)
            cloud.provider.notify_machine(doomed[0].machine_id, notice)
            assert 1.0 < await until_out_of_rotation(cloud, doomed) < 20.0

        await beside(cloud, announce, seconds=60)
        assert len(doomed) == 3
        assert len(ready(cloud)) == 4
        assert {r.id for r in ready(cloud)}.isdisjoint({r.id for r in doomed})

    run_virtual(scenario())


def test_a_machines_loss_is_the_loss_of_every_replica_on_it_and_each_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = on_shared_machines(tmp_path)
        await cloud.live(20)
        lost = ready(cloud, Market.SPOT)
        cloud.provider.end_machine(lost[0].machine_id, "hardware failure")
        await cloud.live(60)
        assert len(lost) == 3
        assert len(ready(cloud)) == 4
        records = {r.id: r for r in cloud.store.replicas(FLEET)}
        assert all("hardware failure" in records[r.id].fault for r in lost)

    run_virtual(scenario())


def test_gpus_of_replicas_on_a_machine_never_overlap_through_deaths_and_killed_controllers(tmp_path: Path) -> None:
    async def scenario() -> None:
        faults = replace(KIND, create_s=10.0, address_s=5.0, list_lag_s=10.0, throttled=0.2, cut=0.2, partial=0.1)
        cloud = Cloud(tmp_path, 11, slots=12, faults=faults, sold=LARGE)
        cloud.up(spot=6)
        for _ in range(20):
            await cloud.live(cloud.dice.uniform(1, 40), steps=cloud.dice.randrange(1, 200))
            check_no_overlap(cloud)
            if living := cloud.provider.living():
                cloud.provider.end(cloud.dice.choice(living).token, "signal 9")
        await cloud.live(400, until=lambda: len(ready(cloud)) == 12)
        check_no_overlap(cloud)
        held = [(r.machine_id, gpu) for r in ready(cloud) for gpu in r.gpu_indices]
        assert len(held) == len({*held}) == 12
        assert machine_count(ready(cloud)) == len({machine for machine, _ in held}) < 12
        cloud.down()
        assert await cloud.live(600)
        assert cloud.provider.machines() == set()
        cloud.store.close()

    run_virtual(scenario())


def check_no_overlap(cloud: Cloud) -> None:
    held = [(node.machine_id, gpu) for node in cloud.provider.living() for gpu in node.gpu_indices]
    assert len(held) == len({*held})


def test_a_replica_over_several_machines_is_ordered_whole_and_counts_for_all_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = in_groups(tmp_path)
        await cloud.live(30)
        (first, *_) = ready(cloud)
        assert len(ready(cloud)) == 4
        assert all(len(r.members) == r.node_count - 1 == 2 for r in ready(cloud))
        assert len(cloud.provider.machines()) == machine_count(ready(cloud)) == 4 * SPANS
        assert first.price_usd_per_hour == SPANS * samples.offering().price_usd_per_hour
        assert cloud.status is not None
        assert cloud.status.cost_usd_per_hour == sum(r.price_usd_per_hour for r in ready(cloud))

    run_virtual(scenario())


def test_no_replica_is_ordered_that_spans_more_machines_than_the_cap_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = in_groups(tmp_path)
        desired = cloud.store.fleet(FLEET)
        assert desired is not None
        capacity = replace(desired.profile.capacity, max_nodes=2 * SPANS + 2)
        cloud.store.put_fleet(replace(desired.profile, capacity=capacity), desired.plan, now=cloud.clock.now())
        await cloud.live(60)
        assert len(ready(cloud)) == 2
        assert len(cloud.provider.machines()) == 2 * SPANS
        assert cloud.status is not None
        assert any("spans 3 nodes" in lane.reason for lane in cloud.status.lanes)

    run_virtual(scenario())


def test_a_replica_whose_member_died_is_replaced_and_leaves_no_machine_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = in_groups(tmp_path)
        await cloud.live(30)
        lost = ready(cloud)[0]
        cloud.provider.end_machine(lost.members[1], "kernel panic")
        await cloud.live(60)
        assert len(ready(cloud)) == 4
        record = next(r for r in cloud.store.replicas(FLEET) if r.id == lost.id)
        assert record.state is ReplicaState.FAILED
        assert f"member {lost.members[1]} ended: kernel panic" in record.fault
        assert {m for r in ready(cloud) for m in (r.machine_id, *r.members)} == cloud.provider.machines()
        cloud.down()
        assert await cloud.live(200)
        assert cloud.provider.machines() == set()

    run_virtual(scenario())


def test_a_groups_members_have_their_own_command(tmp_path: Path) -> None:
    async def scenario() -> None:
        cloud = in_groups(tmp_path)
        await cloud.live(30)
        orders = [cloud.provider.orders[r.id] for r in ready(cloud)]
        assert {order.node_count for order in orders} == {SPANS}
        for order in orders:
            leader, *members = [order.command(rank, leader_host="10.0.0.1") for rank in range(SPANS)]
            assert leader == order.argv
            assert [command[-2:] for command in members] == [("10.0.0.1", "1"), ("10.0.0.1", "2")]

    run_virtual(scenario())


async def beside(cloud: Cloud, work: Callable[[], Coroutine[object, object, None]], *, seconds: float) -> None:
    """Have a controller live for so long, and the work done meanwhile."""
    working = asyncio.ensure_future(work())
    await cloud.live(seconds)
    assert working.done(), "it did not come to its end"
    await working
