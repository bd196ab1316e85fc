"""The packaged profiles plan to something one would run."""

from __future__ import annotations

import math

import pytest

from fleetctl.model.catalogue import Market
from fleetctl.model.plan import Constraint
from fleetctl.model.slo import Metric
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_profile
from tests.sites import plugins_site

NAMES = ["quickstart", "chat", "voice", "code-inline", "code-panel", "rag", "batch", "saas"]


@pytest.mark.parametrize("name", NAMES)
async def test_packaged_profile_plans_within_its_own_bounds_and_promises(name: str) -> None:
    profile = find_profile(name)
    plan = await plan_profile(plugins_site(), profile)
    assert [lane.lane for lane in plan.lanes] == [lane.name for lane in profile.lanes]
    for lane in profile.lanes:
        answer = plan.lane(lane.name)
        assert lane.replicas.min <= answer.replicas <= lane.replicas.max
        assert answer.on_demand + answer.spot == answer.replicas
        assert answer.offering.market is Market.ON_DEMAND
        promised = lane.slo.strictest(Metric.TTFT)
        if promised is not None:
            assert answer.forecast.ttft_p99_s <= promised.limit_s
            assert math.fsum(i.seconds for i in answer.budget) == pytest.approx(promised.limit_s)
        gaps = lane.slo.strictest(Metric.ITL)
        assert gaps is None or answer.forecast.itl_p99_s <= gaps.limit_s
        assert answer.reasons
    assert plan.cost_usd_per_hour == pytest.approx(math.fsum(lane.cost_usd_per_hour for lane in plan.lanes))
    assert plan.cost_usd_per_hour <= (profile.capacity.max_cost_usd_per_hour or math.inf)
    assert sum(lane.rps for lane in plan.lanes) == pytest.approx(profile.workload.peak_rps)


async def test_quickstart_is_seven_l40s_with_room_to_spare() -> None:
    plan = await plan_profile(plugins_site(), find_profile("quickstart"))
    assert {lane.lane: lane.replicas for lane in plan.lanes} == {"short": 3, "long": 3, "batch": 1}
    assert {lane.lane: lane.constraint for lane in plan.lanes} == {
        "short": Constraint.MINIMUM, "long": Constraint.MINIMUM, "batch": Constraint.MINIMUM,
    }  # fmt: skip
    assert {lane.gpu for lane in plan.lanes} == {"L40S"}
    assert plan.gpu_spec is not None
    assert plan.lane("batch").spot == 1
    assert plan.lane("short").on_demand >= 1
    assert all(lane.forecast.utilisation < 0.5 for lane in plan.lanes)
