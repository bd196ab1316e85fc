"""Caps that leave no room for a rollout are named before it begins, with what it then comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.plan.surge import surge_cautions
from fleetctl.model.profile import CapacitySpec, ControlSpec, ReplicaShare, RolloutSpec
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile


def capped(nodes: int, *, max_unavailable: int = 0, usd_per_hour: float | None = None) -> Profile:
    rollout = RolloutSpec(max_unavailable=ReplicaShare(count=max_unavailable))
    capacity = CapacitySpec(max_nodes=nodes, max_cost_usd_per_hour=usd_per_hour)
    return replace(samples.profile(), control=ControlSpec(rollout=rollout), capacity=capacity)


def planned(count: int) -> Plan:
    lane = samples.lane_plan("short", on_demand=count)
    plan = replace(samples.plan(), lanes=(lane,))
    return replace(plan, cost_usd_per_hour=count * lane.offering.price_usd_per_hour)


def test_where_one_more_fits_nothing_is_said() -> None:
    assert surge_cautions(capped(3), planned(2)) == ()


@pytest.mark.parametrize(
    ("count", "max_unavailable", "consequence"),
    [
        (
            1,
            0,
            "its only replica is never replaced, and the rollout fails after control.rollout.timeout; raise the cap",
        ),
        (1, 1, "max_unavailable lets 1 replica leave first, and nobody serves, and requests wait or are refused"),
        (2, 0, "one leaves first where what is measured says that the rest carries the load; else it waits"),
        (3, 2, "max_unavailable lets 2 replicas leave first, and 1 of 3 serve while the next starts"),
    ],
)
def test_at_the_nodes_cap_what_a_rollout_comes_to_is_told(count: int, max_unavailable: int, consequence: str) -> None:
    (caution,) = surge_cautions(capped(count, max_unavailable=max_unavailable), planned(count))
    assert caution.startswith(f"lane short has no room to surge in a rollout, at capacity.max_nodes {count}: ")
    assert consequence in caution
    instead = "health alone is judged" if count == 1 else "the first replacement is judged in its stead"
    assert caution.endswith(instead)


@pytest.mark.parametrize(("gpus", "tensor_parallel"), [(2, 1), (5, 2), (8, 4)])
def test_a_machine_whose_gpus_are_all_taken_has_no_room_either(gpus: int, tensor_parallel: int) -> None:
    plan = planned(2)
    (lane,) = plan.lanes
    share = replace(lane.offering, pool_gpus=gpus, gpu_count=tensor_parallel)
    full = replace(plan, lanes=(replace(lane, offering=share, tensor_parallel=tensor_parallel),))
    (caution,) = surge_cautions(capped(8), full)
    assert caution.startswith(f"lane short has no room to surge in a rollout, at all {gpus} L40S that are there: ")
    roomy = replace(full, lanes=(replace(full.lanes[0], offering=replace(share, pool_gpus=3 * tensor_parallel)),))
    assert surge_cautions(capped(8), roomy) == ()


def test_of_a_canary_nothing_is_said_where_none_is_wanted() -> None:
    profile = capped(2)
    none = replace(profile.control.rollout, canary=ReplicaShare())
    (caution,) = surge_cautions(replace(profile, control=replace(profile.control, rollout=none)), planned(2))
    assert "canary" not in caution


def test_at_the_cap_on_money_it_is_told_as_well() -> None:
    price = planned(1).cost_usd_per_hour
    (caution,) = surge_cautions(capped(9, usd_per_hour=2.5 * price), planned(2))
    assert "at capacity.max_cost_per_hour $" in caution
    assert surge_cautions(capped(9, usd_per_hour=3 * price), planned(2)) == ()


@pytest.mark.parametrize(
    ("nodes", "consequence"),
    [
        (4, None),
        (3, "once one replica of each serves, short gives up one at a time"),
        (2, "nor for one replica of each, so short gives up one at a time as far as the load allows"),
    ],
)
def test_a_renamed_lane_without_room_for_all_of_it_is_told_of(nodes: int, consequence: str | None) -> None:
    before = planned(2)
    after = replace(before, lanes=(replace(before.lanes[0], lane="wide"),))
    found = [line for line in surge_cautions(capped(nodes), after, before) if line.startswith("there is no room")]
    if consequence is None:
        assert found == []
        return
    (caution,) = found
    assert caution.startswith(f"there is no room for all of wide beside short, at capacity.max_nodes {nodes}: ")
    assert consequence in caution
    assert surge_cautions(capped(nodes), after) == surge_cautions(capped(nodes), after, after)
