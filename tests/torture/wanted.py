"""What is asked for in a run: two lanes of a small profile, and a plan for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.profile import CapacitySpec, ControlSpec, Mode, Profile, ReplicaBounds, RolloutSpec
from fleetctl.testing import samples
from tests.torture.cloud import SOLD

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan

FLEET = "demo"
LANES = ("short", "long")
SCALE_DOWN_AFTER_S = 30.0


def torture_profile(
    replicas_max: dict[str, int],
    *,
    capacity: CapacitySpec,
    tick_s: float,
    start_timeout_s: float,
    rollout: RolloutSpec,
    is_shadow: bool,
) -> Profile:
    """Return a profile with these bounds; it scales after seconds, so that a short run sees it do so."""
    profile = samples.profile(FLEET)
    lanes = tuple(replace(lane, replicas=ReplicaBounds(min=1, max=replicas_max[lane.name])) for lane in profile.lanes)
    control = ControlSpec(
        tick_s=tick_s,
        scale_up_after_s=5.0,
        scale_down_after_s=SCALE_DOWN_AFTER_S,
        start_timeout_s=start_timeout_s,
        drain_timeout_s=20.0,
        rollout=rollout,
        mode=Mode.SHADOW if is_shadow else Mode.ACTIVE,
    )
    return replace(profile, lanes=lanes, capacity=capacity, control=control)


def torture_plan(counts: dict[str, tuple[int, int]], *, machines: dict[str, int], flags: dict[str, str]) -> Plan:
    """Return a plan of so many on-demand and spot replicas by lane, at the cloud's first offerings.

    `machines` are those of one replica, `flags` what its engine is told.
    """
    first = {market: next(offering for offering in SOLD if offering.market is market) for market in Market}
    lanes = (samples.lane_plan(lane, on_demand=on_demand, spot=spot) for lane, (on_demand, spot) in counts.items())
    priced = (
        replace(
            plan,
            offering=first[Market.ON_DEMAND],
            spot_offering=first[Market.SPOT],
            launch=replace(
                plan.launch, pipeline_parallel=machines[plan.lane], extra_args=tuple(flags.get(plan.lane, "").split())
            ),
        )
        for plan in lanes
    )
    return replace(samples.plan(FLEET), lanes=tuple(priced))
