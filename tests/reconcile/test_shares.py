"""Replicas that share machines: what the plan, the caps and a launch reckon with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.reconcile.headroom import Headroom, need_of
from fleetctl.core.shares import free_rooms, machine_room, rooms_coming
from fleetctl.core.transitions import node_seen
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeState, Notice, NoticeKind
from fleetctl.model.profile import CapacitySpec
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan

EIGHT = samples.offering(
    instance_type="p5.48xlarge", gpu="H100", gpu_count=8, price_usd_per_hour=55.04, is_shareable=True
)
SOLD = {EIGHT.key: EIGHT}
DIGEST = "d1"
MARKET = EIGHT.market


def lane_plan(tensor_parallel: int = 2) -> LanePlan:
    base = samples.lane_plan("short")
    launch = replace(base.launch, tensor_parallel=tensor_parallel)
    return replace(base, offering=EIGHT, spot_offering=None, gpu="H100", tensor_parallel=tensor_parallel, launch=launch)


def on_machine(slot: int, **changes: object) -> Replica:
    base = samples.replica(f"r{slot + 1}", state=ReplicaState.READY, market=MARKET)
    base = replace(
        base, lane=lane_plan().lane, offering=EIGHT.key, machine_id="i-1", gpu_indices=(2 * slot, 2 * slot + 1),
        machine_usd_per_hour=55.04, launch_digest=DIGEST,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]  # a test's own words


def test_four_replicas_of_two_gpus_cost_one_machine_of_eight() -> None:
    plan = lane_plan()
    assert [plan.machines(count) for count in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
    assert lane_plan(8).machines(4) == 4


def test_the_next_one_takes_the_first_free_gpus_of_the_fullest_machine() -> None:
    live = [on_machine(0), on_machine(2), on_machine(0, machine_id="i-2")]
    vacancy = machine_room(lane_plan(), live, MARKET, DIGEST, SOLD)
    assert vacancy is not None
    assert (vacancy.machine_id, vacancy.gpu_indices, vacancy.usd_per_hour) == ("i-1", (2, 3), 55.04)
    assert free_rooms(lane_plan(), live, MARKET, DIGEST) == 2 + 3


@pytest.mark.parametrize(
    "changes",
    [
        {"launch_digest": "another"},
        {"market": Market.SPOT if MARKET is Market.ON_DEMAND else Market.ON_DEMAND},
        {"state": ReplicaState.DRAINING},
        {"notice": Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)},
        {"machine_usd_per_hour": 0.0},
        {"assigned_at": samples.EPOCH},
    ],
)
def test_nobody_comes_to_a_machine_that_leaves_or_runs_something_else(changes: dict[str, object]) -> None:
    live = [on_machine(0, **changes)]
    assert machine_room(lane_plan(), live, MARKET, DIGEST, SOLD) is None
    assert free_rooms(lane_plan(), live, MARKET, DIGEST) == 0


def test_the_others_wait_for_the_machine_that_is_ordered() -> None:
    on_order = on_machine(0, state=ReplicaState.PENDING, machine_id="", gpu_indices=())
    assert rooms_coming(lane_plan(), [on_order], MARKET, DIGEST) == 3
    assert machine_room(lane_plan(), [on_order], MARKET, DIGEST, SOLD) is None


@given(st.integers(0, 40), st.integers(0, 6))
def test_the_caps_count_a_machine_once(launches: int, nodes: int) -> None:
    capacity = CapacitySpec(max_nodes=nodes, max_cost_usd_per_hour=nodes * 55.04)
    left = Headroom(nodes=nodes, usd_per_hour=nodes * 55.04, capacity=capacity)
    need = need_of(lane_plan(), MARKET)
    taken = 0
    while taken < launches and not left.refusal(need):
        left = left.without(need)
        taken += 1
    assert taken == min(launches, 4 * nodes)
    assert left.nodes == nodes - lane_plan().machines(taken)
    assert left.usd_per_hour == pytest.approx(55.04 * left.nodes)


def test_those_on_a_machine_pay_for_it_together() -> None:
    def seen(record: Replica, part: float) -> Replica:
        node = Node(
            id=record.id, token=record.id, owner="o", fleet=record.fleet, replica_id=record.id,
            state=NodeState.RUNNING, market=MARKET, host="10.0.0.1", port=8000, created_at=samples.EPOCH,
            offering=EIGHT.key, machine_id="i-1", gpu_indices=record.gpu_indices, machine_part=part,
        )  # fmt: skip
        return node_seen(record, node)

    three = [seen(on_machine(slot), 1 / 3) for slot in range(3)]
    assert sum(record.price_usd_per_hour for record in three) == pytest.approx(55.04)
    assert seen(three[0], 1.0).price_usd_per_hour == pytest.approx(55.04)
