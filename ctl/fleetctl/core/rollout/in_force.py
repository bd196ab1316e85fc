"""What of a fleet's profile and plan is in force while a rollout is under way: lanes that wait run as they did before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import LanePhase, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.decision import LaunchReplica
    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import CapacitySpec, LaneSpec, Profile
    from fleetctl.model.replica import Replica
    from fleetctl.model.rollout import Revision

_AS_BEFORE = (LanePhase.WAITING, LanePhase.CANARY)


def stable_number(rollout: Rollout | None, revision: int) -> int | None:
    """Return the revision that a rollout to `revision` comes from, by the newest rollout. None: there is none."""
    if rollout is None or not rollout.is_over:
        return None if rollout is None else rollout.stable
    return rollout.revision if rollout.revision != revision else None


def in_force(desired: Desired, rollout: Rollout | None) -> Desired:
    """Return the fleet as it should be now: each lane by its own revision, lanes to be retired last.

    What the gateway and the controller go by changes at once; what a lane's replicas are started with changes in its turn.
    """
    stable = desired.stable
    if stable is None or rollout is None or (rollout.is_over and rollout.revision == desired.revision):
        return desired
    before = {lane.name for lane in stable.profile.lanes}
    names = {lane.name for lane in desired.profile.lanes}
    kept = [
        _kept(lane if lane.model or not desired.profile.names_models else _named(lane, stable.profile), rollout)
        for lane in stable.profile.lanes
        if lane.name not in names and _is_as_before(lane.name, desired, rollout)
    ]
    waiting = {n for n in names & before if _is_as_before(n, desired, rollout)}
    if not kept and not waiting:
        return desired
    specs = [_spec(lane, stable.profile) if lane.name in waiting else lane for lane in desired.profile.lanes]
    plans = [_plan(lane, stable.plan) if lane.lane in waiting else lane for lane in desired.plan.lanes]
    return replace(
        desired,
        profile=replace(desired.profile, lanes=(*specs, *kept)),
        plan=replace(desired.plan, lanes=(*plans, *(stable.plan.lane(lane.name) for lane in kept))),
    )


def _is_as_before(lane: str, desired: Desired, rollout: Rollout) -> bool:
    """Whether the lane's turn has not come; before a rollout has begun that is so of all."""
    if rollout.revision != desired.revision:
        return True
    found = rollout.lanes.get(lane)
    return found is not None and found.phase in _AS_BEFORE


def _named(spec: LaneSpec, profile: Profile) -> LaneSpec:
    """Return a lane of a fleet of one model as it is called in a fleet of several."""
    return replace(spec, model=profile.model.name)


def _kept(spec: LaneSpec, rollout: Rollout) -> LaneSpec:
    """Return a lane that the profile no longer has, with as many replicas as the caps let it keep beside new lanes."""
    found = rollout.lanes.get(spec.name)
    if found is None or not found.keeps:
        return spec
    bounds = spec.replicas
    return replace(spec, replicas=replace(bounds, min=min(bounds.min, found.keeps), max=min(bounds.max, found.keeps)))


def _spec(spec: LaneSpec, stable: Profile) -> LaneSpec:
    old = stable.lane(spec.name)
    return replace(spec, engine=old.engine, emulator=old.emulator, launch=old.launch)


def _plan(planned: LanePlan, stable: Plan) -> LanePlan:
    """Return the plan of the replicas that run, and as many of them as the larger of both plans has."""
    old = stable.lane(planned.lane)
    if planned.replicas <= old.replicas:
        return old
    return replace(old, replicas=planned.replicas, on_demand=planned.on_demand, spot=planned.spot)


def lower_caps(capacity: CapacitySpec, other: CapacitySpec) -> CapacitySpec:
    """Return the first with the lower of both caps on nodes and on money: nobody but a person raises one."""
    caps = [c.max_cost_usd_per_hour for c in (capacity, other) if c.max_cost_usd_per_hour is not None]
    return replace(
        capacity,
        max_nodes=min(capacity.max_nodes, other.max_nodes),
        max_cost_usd_per_hour=min(caps, default=None),
    )


def restored(stable: Profile, failed: Profile) -> Profile:
    """Return the profile that takes the place of one that failed: the earlier one, and what is not its to take back.

    A cap that was lowered stays so; and a controller that was to act goes on, or nothing would be put back.
    """
    control = replace(stable.control, mode=failed.control.mode)
    return replace(stable, capacity=lower_caps(stable.capacity, failed.capacity), control=control)


def by_revision(desired: Desired, revision: Revision) -> Desired:
    """Return the fleet's record as if this revision alone were in force."""
    return replace(desired, profile=revision.profile, plan=revision.plan)


def launch_source(desired: Desired, rollout: Rollout | None, lane: str, *, is_canary: bool) -> Desired:
    """Return the record that a new replica of a lane is started by: one revision's, whole."""
    stable = desired.stable
    if stable is None or rollout is None or is_canary:
        return desired
    is_known = any(each.lane == lane for each in stable.plan.lanes)
    return by_revision(desired, stable) if is_known and _is_as_before(lane, desired, rollout) else desired


def by_source(
    desired: Desired, rollout: Rollout | None, launches: Iterable[LaunchReplica]
) -> list[tuple[Desired, list[LaunchReplica]]]:
    """Return the launches by the record that each is started by."""
    new: list[LaunchReplica] = []
    old: list[LaunchReplica] = []
    source = desired
    for launch in launches:
        found = launch_source(desired, rollout, launch.lane, is_canary=launch.is_canary)
        if found is desired:
            new.append(launch)
        else:
            source = found
            old.append(launch)
    return [each for each in ((desired, new), (source, old)) if each[1]]


def started_by(record: Replica, desired: Desired) -> Desired:
    """Return the record by which a replica was started, of the two revisions that a rollout is between; else today's."""
    stable = desired.stable
    if stable is None or not record.launch_digest or record.launch_digest == digest_of(desired, record.lane):
        return desired
    before = by_revision(desired, stable)
    return before if record.launch_digest == digest_of(before, record.lane) else desired


def digest_of(desired: Desired, lane: str) -> str:
    """Return what a lane's replicas are started with, in short; empty where there is no such lane."""
    return digests(desired.profile, desired.plan).get(lane, "")


def digests(profile: Profile, plan: Plan) -> dict[str, str]:
    """Return every lane's launch digest."""
    planned = {lane.lane: lane for lane in plan.lanes}
    return {lane.name: launch_digest(lane, planned[lane.name]) for lane in profile.lanes if lane.name in planned}


def hidden_lanes(desired: Desired, rollout: Rollout | None, records: Iterable[Replica]) -> frozenset[str]:
    """Return the new lanes that take no request yet: those they will take have another lane until a replica is ready."""
    if desired.stable is None or rollout is None or rollout.is_over:
        return frozenset()
    starting = {name for name, lane in rollout.lanes.items() if lane.phase is LanePhase.STARTING and not lane.was}
    ready = {record.lane for record in records if record.state is ReplicaState.READY}
    hidden = starting - ready
    return frozenset(hidden) if any(lane.name not in hidden for lane in desired.profile.lanes) else frozenset()
