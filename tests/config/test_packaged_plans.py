"""Every packaged profile can be planned on what the local provider sells: `init` followed by `up` works."""

from __future__ import annotations

import pytest

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.config.profile import parse_profile, profile_hash
from fleetctl.config.use_cases import starter, use_cases
from fleetctl.core.plan import make_plan
from fleetctl_local.offerings import offerings


@pytest.mark.parametrize("use_case", use_cases())
def test_a_packaged_profile_has_a_plan_inside_its_own_caps(use_case: str) -> None:
    profile = parse_profile(starter(use_case), source=use_case)
    catalogue = load_catalogue()
    plan = make_plan(
        profile,
        model_card=resolve_model(profile.model, catalogue),
        catalogue=catalogue,
        offerings=offerings(),
        profile_hash=profile_hash(profile),
    )
    assert [lane.lane for lane in plan.lanes] == [lane.name for lane in profile.lanes]
    assert profile.capacity.max_cost_usd_per_hour is not None
    assert 0 < plan.cost_usd_per_hour <= profile.capacity.max_cost_usd_per_hour
    assert sum(lane.replicas for lane in plan.lanes) <= profile.capacity.max_nodes
    assert all(lane.forecast.utilisation < 0.9 for lane in plan.lanes)


def test_quickstart_is_planned_as_its_comments_say() -> None:
    profile = parse_profile(starter("quickstart"), source="quickstart")
    catalogue = load_catalogue()
    plan = make_plan(
        profile,
        model_card=resolve_model(profile.model, catalogue),
        catalogue=catalogue,
        offerings=offerings(),
        profile_hash=profile_hash(profile),
    )
    assert {lane.lane: lane.replicas for lane in plan.lanes} == {"short": 3, "long": 3, "batch": 1}
    assert {lane.gpu for lane in plan.lanes} == {"L40S"}
    assert sum(lane.on_demand for lane in plan.lanes) > 0
    assert sum(lane.spot for lane in plan.lanes) > 0
