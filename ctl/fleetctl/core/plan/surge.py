"""Whether the caps leave room for a rollout: for a new replica of each lane beside all that the plan wants."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.core.plan.lane_cost import machines_usd_per_hour
from fleetctl.units import format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile

# A cent's fraction of rounding is no lack of room, as in `core/reconcile/headroom`.
_ROUNDING_USD = 1e-9


def surge_cautions(profile: Profile, plan: Plan, before: Plan | None = None) -> tuple[str, ...]:
    """Return, lane by lane, what a changed profile will meet where the caps leave no room for one more replica.

    `before` is the plan in force: lanes that only it has serve on until those that take their place do.
    """
    found = list(_start_cautions(profile, plan, before))
    for lane in plan.lanes:
        cap = _cap_reached(profile, plan, lane)
        if cap and lane.replicas:
            then = f"{_what_then(profile, lane, _remedy(cap))}{_without_canary(profile, lane)}"
            found.append(f"lane {lane.lane} has no room to surge in a rollout, at {cap}: {then}")
    return tuple(found)


def _start_cautions(profile: Profile, plan: Plan, before: Plan | None) -> Iterator[str]:
    """Yield what new lanes will meet where the caps leave no room for them beside those that leave."""
    names = {lane.lane for lane in plan.lanes}
    known = {lane.lane for lane in before.lanes} if before is not None else set()
    gone = [lane for lane in before.lanes if lane.lane not in names and lane.replicas] if before is not None else []
    new = [lane for lane in plan.lanes if lane.lane not in known and lane.replicas]
    if not gone or not new:
        return
    staying = [lane for lane in plan.lanes if lane.lane in known]
    head = plan.head_usd_per_hour
    cap = _cap_over(profile, [(lane, lane.replicas) for lane in (*staying, *gone, *new)], head)
    if not cap:
        return
    old = " and ".join(lane.lane for lane in gone)
    text = f"there is no room for all of {' and '.join(lane.lane for lane in new)} beside {old}, at {cap}: "
    least = [*((lane, lane.replicas) for lane in (*staying, *gone)), *((lane, 1) for lane in new)]
    if _cap_over(profile, least, head):
        last = "its last one stays, and the rollout fails after control.rollout.timeout"
        yield (
            f"{text}nor for one replica of each, so {old} gives up one at a time as far as the load allows; {last} where "
            f"there is no room even then: {_remedy(cap)}, or set control.rollout.max_unavailable: 1"
        )
    else:
        yield f"{text}once one replica of each serves, {old} gives up one at a time, and fewer serve meanwhile"


def _cap_over(profile: Profile, lanes: list[tuple[LanePlan, int]], head_usd_per_hour: float) -> str:
    """Return the cap that so many replicas of these lanes are over; empty: none."""
    capacity = profile.capacity
    if sum(lane.machines_of(count) for lane, count in lanes) > capacity.max_nodes:
        return f"capacity.max_nodes {capacity.max_nodes}"
    cap = capacity.max_cost_usd_per_hour
    cost = head_usd_per_hour + sum(_usd_per_hour(lane, count) for lane, count in lanes)
    if machine := _machine_over(lanes):
        return machine
    return f"capacity.max_cost_per_hour {format_usd(cap)}" if cap is not None and cost > cap + _ROUNDING_USD else ""


def _machine_over(lanes: list[tuple[LanePlan, int]]) -> str:
    """Return the GPUs that so many replicas of these lanes are over; empty: none."""
    taken: Counter[tuple[str, int]] = Counter()
    for lane, count in lanes:
        if lane.offering.pool_gpus is not None:
            taken[lane.offering.gpu, lane.offering.pool_gpus] += count * lane.gpus_each_node
    return next((f"all {there} {gpu} that are there" for (gpu, there), count in taken.items() if count > there), "")


def _remedy(cap: str) -> str:
    return "raise the cap" if cap.startswith("capacity.") else "plan fewer replicas"


def _usd_per_hour(lane: LanePlan, count: int) -> float:
    """Return what so many replicas of a lane cost, its on-demand ones first."""
    on_demand = min(count, lane.on_demand)
    return machines_usd_per_hour(lane, on_demand=on_demand, spot=count - on_demand)


def _cap_reached(profile: Profile, plan: Plan, lane: LanePlan) -> str:
    """Return the cap that the plan's replicas and one more of a lane are over; empty: none."""
    capacity = profile.capacity
    more = lane.machines_of(lane.replicas + 1) - lane.nodes
    if plan.nodes + more > capacity.max_nodes:
        return f"capacity.max_nodes {capacity.max_nodes}"
    cost, cap = plan.cost_usd_per_hour, capacity.max_cost_usd_per_hour
    price = lane.offering.price_usd_per_hour * more
    if machine := _machine_over([*((each, each.replicas) for each in plan.lanes), (lane, 1)]):
        return machine
    if cap is not None and cost + price > cap + _ROUNDING_USD:
        return f"capacity.max_cost_per_hour {format_usd(cap)}"
    return ""


def _without_canary(profile: Profile, lane: LanePlan) -> str:
    rollout = profile.control.rollout
    if not rollout.canary.of(lane.replicas):
        return ""
    if lane.replicas == 1:
        return "; there is no room for a canary beside it either: health alone is judged"
    return "; there is no room for a canary beside them either: the first replacement is judged in its stead"


def _what_then(profile: Profile, lane: LanePlan, remedy: str) -> str:
    rollout = profile.control.rollout
    missing = min(lane.replicas, rollout.max_unavailable.of(lane.replicas))
    if missing:
        left = lane.replicas - missing
        serving = f"{left} of {lane.replicas} serve" if left else "nobody serves, and requests wait or are refused"
        return (
            f"max_unavailable lets {format_count(missing, 'replica')} leave first, and {serving} while the next starts"
        )
    if lane.replicas == 1:
        only = "its only replica is never replaced, and the rollout fails after control.rollout.timeout"
        return f"{only}; {remedy}, or set control.rollout.max_unavailable: 1 (then nobody serves while it starts)"
    waits = (
        "one leaves first where what is measured says that the rest carries the load; else it waits, and fails after"
    )
    cost = f"{lane.replicas - 1} of {lane.replicas} serve while the next starts"
    return f"{waits} control.rollout.timeout; {remedy}, or set control.rollout.max_unavailable: 1 ({cost})"
