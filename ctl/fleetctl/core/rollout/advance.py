"""How far a rollout is, and what comes next: begins it, passes it from lane to lane, and finds that it has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from fleetctl.core.rollout.evidence import (
    BAKES_MAX,
    RevisionEvidence,
    RevisionFinding,
    judge_revision,
    request_counts,
    since,
)
from fleetctl.core.rollout.in_force import digests
from fleetctl.model.decision import LaneMemory
from fleetctl.model.desired import Desired
from fleetctl.model.gateway import GatewaySnapshot
from fleetctl.model.profile import Mode
from fleetctl.model.replica import CAPACITY_STATES, Replica, ReplicaState
from fleetctl.model.rollout import LanePhase, LaneRollout, Rollout
from fleetctl.units import format_duration

# New replicas of a lane that failed to start or died; of a large lane a tenth of what it wants, as nodes die by themselves.
_FAILURES_MAX = 3
_FAILURES_SHARE = 0.1
_NO_CANARY = "no room for a canary beside the others"
_WORSE = "new replicas serve worse than what they replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFailure:
    """A replica that failed to start or died, by no notice and nobody's order."""

    record: Replica
    reason: str
    is_final: bool  # it fails the same way however often it is started


@dataclass(frozen=True, kw_only=True)
class RolloutView:
    """What is known when a rollout is decided on."""

    desired: Desired
    now: datetime
    records: tuple[Replica, ...]
    lanes: Mapping[str, LaneMemory]
    gateway: GatewaySnapshot | None
    failures: tuple[ReplicaFailure, ...] = ()

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Return the launch digests of the revision that is rolled out, by lane; while none is, nobody asks for them."""
        return digests(self.desired.profile, self.desired.plan)

    def of_lane(self, lane: str) -> tuple[Replica, ...]:
        """Return the lane's replicas that serve or will."""
        return self._by_lane.get(lane, ())

    @cached_property
    def _by_lane(self) -> Mapping[str, tuple[Replica, ...]]:
        serving = [r for r in self.records if r.state in CAPACITY_STATES]
        return {lane: tuple([r for r in serving if r.lane == lane]) for lane in {r.lane for r in serving}}

    def wanted(self, lane: str) -> int:
        """Return how many replicas the lane wants, by the decision before."""
        memory = self.lanes.get(lane)
        return memory.wanted if memory is not None else 0

    def required(self, lane: str) -> int:
        """Return how many replicas end a rollout of the lane: what load wants beyond the plan is scaled for, caps permitting."""
        wanted = self.wanted(lane)
        if lane in self.desired.overrides.replicas:
            return wanted
        return min([wanted, *(planned.replicas for planned in self.desired.plan.lanes if planned.lane == lane)])

    def is_outdated(self, record: Replica) -> bool:
        """Whether a replica is of another revision; one that was moved to its lane is not, where another lane is so."""
        digest = record.launch_digest
        if not digest or digest == self.digests.get(record.lane):
            return False
        return record.assigned_at is None or digest not in self.digests.values()

    @property
    def is_shadow(self) -> bool:
        """Whether the controller only watches: nothing is replaced, and nothing gone back to."""
        return self.desired.profile.control.mode is Mode.SHADOW

    def updated(self, lane: str) -> list[Replica]:
        """Return the lane's replicas of the new revision."""
        digest = self.digests.get(lane)
        return [record for record in self.of_lane(lane) if digest and record.launch_digest == digest]

    def outdated(self, lane: str) -> list[Replica]:
        """Return the lane's replicas of another revision."""
        return [record for record in self.of_lane(lane) if self.is_outdated(record)]

    def has_all(self, lane: str) -> bool:
        """Whether as many serve in the lane as it requires, of whatever revision."""
        memory = self.lanes.get(lane)
        is_known = memory is not None and (memory.planned >= 0 or lane in self.desired.overrides.replicas)
        return is_known and sum(r.state is ReplicaState.READY for r in self.of_lane(lane)) >= self.required(lane)


def advance(before: Rollout | None, view: RolloutView) -> Rollout:
    """Return the rollout as it is now. One revision after another: a newer one takes the place of what is under way."""
    desired = view.desired
    rollout = before
    if rollout is None or rollout.revision != desired.revision:
        rollout = _begin(before, view)
    resumed_at = desired.overrides.rollout_resumed_at
    if rollout.failed_at is not None and resumed_at is not None and resumed_at > rollout.failed_at:
        rollout = _anew(rollout, view.now)
    if rollout.is_over or rollout.is_failed:
        return rollout
    if desired.overrides.is_rollout_paused or desired.overrides.freezes:
        # What is frozen is not changed by the controller's own choice; one lane's freeze holds the fleet's rollout.
        return replace(_started(rollout, view), progressed_at=view.now)
    after = replace(rollout, lanes={name: _lane(name, lane, rollout, view) for name, lane in rollout.lanes.items()})
    after = _next_lane(after, view)
    if _progress(after) != _progress(rollout):
        after = replace(after, progressed_at=view.now)
    failed = _why_failed(after, view)
    if failed:
        return replace(after, failed_at=view.now, reason=failed)
    return _ended(after, view)


def _started(rollout: Rollout, view: RolloutView) -> Rollout:
    """Return a rollout that is held: where there is none to go back to, nothing but starts is under way, and those go on."""
    if rollout.stable is not None or any(lane.phase is LanePhase.ROLLING for lane in rollout.lanes.values()):
        return rollout
    lanes = {name: _lane(name, lane, rollout, view) for name, lane in rollout.lanes.items()}
    return _ended(replace(rollout, lanes=lanes), view)


def _ended(rollout: Rollout, view: RolloutView) -> Rollout:
    is_over = all(lane.is_over for lane in rollout.lanes.values())
    return replace(rollout, ended_at=view.now) if is_over else rollout


def _begin(before: Rollout | None, view: RolloutView) -> Rollout:
    desired, stable, newest = view.desired, view.desired.stable, view.desired.newest
    failed = newest.failed if newest is not None and before is not None else None
    old = digests(stable.profile, stable.plan) if stable is not None else {}
    lanes = {name: _first(name, digest, old.get(name, ""), view) for name, digest in view.digests.items()}
    gone = {name: LaneRollout(phase=LanePhase.WAITING, was=was) for name, was in old.items() if name not in lanes}
    return Rollout(
        revision=desired.revision,
        stable=stable.number if stable is not None else None,
        lanes=lanes | gone,
        started_at=view.now,
        progressed_at=view.now,
        undoes=failed,
        reason=newest.failure if newest is not None and failed is not None else "",
    )


def _anew(rollout: Rollout, now: datetime) -> Rollout:
    """Return a failed rollout as a person has it tried again: what was held against it is forgotten."""
    lanes = {
        name: replace(lane, failures=0, failures_in_row=0, last_failure=None, is_bad=False, baked_since=None, before={})
        for name, lane in rollout.lanes.items()
    }
    return replace(rollout, lanes=lanes, failed_at=None, rolled_back_at=None, reason="", progressed_at=now)


def _first(name: str, digest: str, was: str, view: RolloutView) -> LaneRollout:
    """Return how a lane begins: one that is as it should be is done, one that never was otherwise starts."""
    lane = LaneRollout(phase=LanePhase.STARTING, digest=digest, was=was)
    outdated = view.outdated(name)
    if view.is_shadow:
        return replace(lane, phase=LanePhase.COMPLETE) if digest == was and not outdated else lane
    if view.desired.stable is None or not was:
        # What another revision began here leaves: it was never complete, or is what a `down` had not yet ended when the
        # fleet was wanted again. Whatever ran before revisions were kept stays.
        is_kept = not view.desired.revision
        return replace(lane, phase=LanePhase.ROLLING) if outdated and not is_kept else lane
    if digest == was:
        # A known revision needs no canaries; what was begun in its stead leaves.
        return replace(lane, phase=LanePhase.ROLLING if outdated else LanePhase.COMPLETE)
    serves = any(record.state is ReplicaState.READY for record in outdated)
    return replace(lane, phase=LanePhase.WAITING if serves else LanePhase.ROLLING)


def _lane(name: str, lane: LaneRollout, rollout: Rollout, view: RolloutView) -> LaneRollout:
    """Return a lane with what was seen of it, a step further where it has done what its phase asks for."""
    updated = view.updated(name)
    ready = sum(record.state is ReplicaState.READY for record in updated)
    failures = [each for each in view.failures if each.record.lane == name and _is_new(each.record, lane, rollout)]
    lane = _counted(replace(lane, failures=lane.failures + len(failures)), failures, updated, view.now)
    if lane.phase is not LanePhase.COMPLETE and ready > lane.ready_max:
        lane = replace(lane, ready_max=ready)
    if lane.phase is LanePhase.CANARY:
        return _baked(name, lane, rollout, view)
    if lane.phase is LanePhase.RETIRING:
        return replace(lane, phase=LanePhase.COMPLETE, note="", keeps=0) if not view.of_lane(name) else lane
    if lane.phase is LanePhase.STARTING:
        # In shadow mode the old ones stay: a revision that none of them runs has shown nothing, and is none to go back to.
        is_over = view.has_all(name) and not (view.is_shadow and view.outdated(name))
        return replace(lane, phase=LanePhase.COMPLETE) if is_over else lane
    has_all = view.has_all(name) and ready >= view.required(name)
    if lane.phase is LanePhase.ROLLING and has_all and not view.outdated(name):
        return replace(lane, phase=LanePhase.COMPLETE, note=_in_place_note(lane), before={}, keeps=0)
    if lane.phase is LanePhase.ROLLING and ready and lane.digest != lane.was:
        return _judged(name, lane, view)
    return lane


def _counted(lane: LaneRollout, failures: list[ReplicaFailure], updated: list[Replica], now: datetime) -> LaneRollout:
    """Return a lane with its failures in a row: one more where it was ordered after the last, none once one is ready since."""
    last = lane.last_failure
    if any(last is None or each.record.requested_at >= last for each in failures):
        return replace(lane, failures_in_row=lane.failures_in_row + 1, last_failure=now)
    serving = (record.ready_at for record in updated if record.state is ReplicaState.READY)
    if last is not None and any(at is not None and at > last for at in serving):
        return replace(lane, failures_in_row=0, last_failure=None)
    return lane


def _judged(name: str, lane: LaneRollout, view: RolloutView) -> LaneRollout:
    """Return a lane whose rest follows its canaries: while old replicas serve there is something to judge it by.

    Without canaries the rest follows once the first replacement has shown to be good.
    """
    old = [record.id for record in view.outdated(name) if record.state is ReplicaState.READY]
    if not old:
        return replace(lane, keeps=0) if lane.keeps else lane
    if lane.baked_since is None:
        return replace(lane, baked_since=view.now, before=request_counts(view.gateway, old))
    served_s = (view.now - lane.baked_since).total_seconds() if lane.keeps else 0.0
    found = _found(name, lane, view, old, served_s=served_s)
    if found.finding is RevisionFinding.BAD:
        return replace(lane, is_bad=True, note=f"{_WORSE}: {found.message}")
    if not lane.keeps:
        return lane
    if found.finding is RevisionFinding.GOOD:
        return replace(lane, keeps=0, note=f"{_in_place_note(lane)}: {found.message}")
    bake_s = view.desired.profile.control.rollout.bake_s
    waits = f"its first replacement serves for {format_duration(served_s)} of {format_duration(bake_s)}"
    return replace(lane, note=f"{_NO_CANARY}; {waits}: {found.message}")


def _in_place(lane: LaneRollout, *, old: int) -> LaneRollout:
    """Return a lane whose caps leave no room for canaries: one of its replicas is replaced first, and judged beside the rest."""
    lane = replace(lane, phase=LanePhase.ROLLING, is_in_place=True, keeps=max(0, old - 1))
    first = "the first replacement is judged in its stead" if lane.keeps else "health alone is judged"
    return replace(lane, note=f"{_NO_CANARY}: {first}")


def _in_place_note(lane: LaneRollout) -> str:
    """Return what is left to say of a lane that was rolled without canaries; empty: it had them."""
    if not lane.is_in_place:
        return ""
    return f"{_NO_CANARY}: {'its first replacement' if lane.baked_since is not None else 'health alone'} was judged"


def _found(name: str, lane: LaneRollout, view: RolloutView, old: list[str], *, served_s: float) -> RevisionEvidence:
    serving = [record.id for record in view.updated(name) if record.state is ReplicaState.READY]
    return judge_revision(
        since(request_counts(view.gateway, serving), {}),
        since(request_counts(view.gateway, old), lane.before),
        share=len(serving) / len(old) if old else 0.0,
        objective=view.desired.profile.objective.fraction,
        served_s=served_s,
        bake_s=view.desired.profile.control.rollout.bake_s,
    )


def _is_new(record: Replica, lane: LaneRollout, rollout: Rollout) -> bool:
    is_of_it = bool(lane.digest) and record.launch_digest == lane.digest and lane.digest != lane.was
    return is_of_it and rollout.stable is not None


def _baked(name: str, lane: LaneRollout, rollout: Rollout, view: RolloutView) -> LaneRollout:
    """Return a lane whose canaries serve; rolling, where they have shown to be good."""
    spec = view.desired.profile.control.rollout
    serving = [record.id for record in view.updated(name) if record.state is ReplicaState.READY]
    canaries = canary_count(view, name)
    if lane.baked_since is None and rollout.lacks_room and not view.updated(name):
        return _in_place(lane, old=len(view.outdated(name)))
    if lane.baked_since is None and len(serving) < canaries:
        return replace(lane, note=f"{len(serving)} of {canaries} canaries ready")
    if lane.baked_since is None:
        old = [record.id for record in view.outdated(name)]
        lane = replace(lane, baked_since=view.now, before=request_counts(view.gateway, old))
    served_s = (view.now - (lane.baked_since or view.now)).total_seconds()
    found = _found(name, lane, view, [record.id for record in view.outdated(name)], served_s=served_s)
    if found.finding is RevisionFinding.BAD:
        return replace(lane, is_bad=True, note=f"{_WORSE}: {found.message}")
    if found.finding is RevisionFinding.GOOD:
        return replace(lane, phase=LanePhase.ROLLING, note=found.message)
    waits = f"canaries serve for {format_duration(served_s)} of {format_duration(spec.bake_s)}"
    return replace(lane, note=f"{waits}: {found.message}")


def canary_count(view: RolloutView, lane: str) -> int:
    """Return how many replicas of the new revision serve beside a lane's old ones first."""
    wanted = view.wanted(lane)
    return min(wanted, view.desired.profile.control.rollout.canary.of(wanted))


def _next_lane(rollout: Rollout, view: RolloutView) -> Rollout:
    """Return the rollout with the next lane begun where none is under way, and the lanes to retire at the end."""
    under_way = any(lane.phase in (LanePhase.CANARY, LanePhase.ROLLING) for lane in rollout.lanes.values())
    name = next((name for name in order(rollout, view.desired) if _waits(rollout.lanes[name])), None)
    if name is not None and not under_way:
        phase = LanePhase.CANARY if canary_count(view, name) else LanePhase.ROLLING
        rollout = _with(rollout, name, replace(rollout.lanes[name], phase=phase))
    rest = {name: lane for name, lane in rollout.lanes.items() if lane.digest}
    is_free = all(lane.is_over or (view.is_shadow and view.has_all(name)) for name, lane in rest.items())
    gone = [name for name, lane in rollout.lanes.items() if not lane.digest and lane.phase is LanePhase.WAITING]
    if is_free:
        retiring = {name: replace(rollout.lanes[name], phase=LanePhase.RETIRING) for name in gone}
        return replace(rollout, lanes=rollout.lanes | retiring)
    if gone and (rollout.lacks_room or rollout.lacks_start_room):
        return _with_room(gone, rollout, view)
    return rollout


def _with_room(gone: list[str], rollout: Rollout, view: RolloutView) -> Rollout:
    """Return the rollout with one replica less of a lane that is gone, as the caps leave no room for what takes its place.

    Until a replica of each new lane serves, what is gone takes their requests: its last one stays then, where the profile
    lets none be missing, and as many as the load needs.
    """
    starting = [name for name, lane in rollout.lanes.items() if lane.phase is LanePhase.STARTING]
    serves = all(any(r.state is ReplicaState.READY for r in view.of_lane(name)) for name in starting)
    may_miss = view.desired.profile.control.rollout.max_unavailable
    for name in gone:
        left = len(view.of_lane(name)) - 1
        needed = 0 if serves else max(0, max(1, _need(name, view)) - may_miss.of(left + 1))
        if left < needed:
            continue
        lane = replace(rollout.lanes[name], keeps=max(0, left), note="gives up replicas, as new lanes have no room")
        return _with(rollout, name, lane if left > 0 else replace(lane, phase=LanePhase.RETIRING))
    return rollout


def _need(lane: str, view: RolloutView) -> int:
    """Return how many replicas carry what is measured of a lane; as many as it wants, where nothing is."""
    memory = view.lanes.get(lane, LaneMemory())
    return memory.bursts.levels[-1].need if memory.bursts.levels else memory.wanted


def _waits(lane: LaneRollout) -> bool:
    return lane.phase is LanePhase.WAITING and bool(lane.digest)


def order(rollout: Rollout, desired: Desired) -> list[str]:
    """Return the lanes in the order in which they are rolled: those that nobody waits on first, then the profile's."""
    specs = [spec for spec in desired.profile.lanes if spec.name in rollout.lanes]
    return [spec.name for spec in sorted(specs, key=lambda spec: not spec.interruptible)]


def _with(rollout: Rollout, name: str, lane: LaneRollout) -> Rollout:
    return replace(rollout, lanes={**rollout.lanes, name: lane})


def _progress(rollout: Rollout) -> list[tuple[LanePhase, int, int, bool]]:
    lanes = rollout.lanes.values()
    return [(lane.phase, lane.ready_max, lane.keeps, lane.baked_since is not None) for lane in lanes]


def _why_failed(rollout: Rollout, view: RolloutView) -> str:
    """Return why the rollout has failed, naming the lane; empty: it has not.

    Without an earlier revision nothing fails, nor in shadow mode: going back would be an act.
    """
    if rollout.stable is None or view.is_shadow:
        return ""
    for name, lane in rollout.lanes.items():
        if lane.is_bad:
            return f"{name}: {lane.note}"
        found = [each for each in view.failures if each.record.lane == name and _is_new(each.record, lane, rollout)]
        final = next((each for each in found if each.is_final), None)
        if final is not None:
            return f"{name}: {final.record.id} cannot start: {final.reason}"
        most = max(_FAILURES_MAX, round(_FAILURES_SHARE * view.wanted(name)))
        if found and lane.failures >= most:
            return (
                f"{name}: {lane.failures} new replicas failed, the last one {found[-1].record.id}: {found[-1].reason}"
            )
    waited_s = (view.now - rollout.progressed_at).total_seconds()
    spec = view.desired.profile.control.rollout
    lanes = rollout.lanes.values()
    is_baking = any(
        lane.phase is LanePhase.CANARY or (lane.is_in_place and lane.keeps and lane.baked_since) for lane in lanes
    )
    limit_s = spec.timeout_s + (BAKES_MAX * spec.bake_s if is_baking else 0.0)
    if waited_s > limit_s and rollout.undoes is None:
        stuck = ", ".join(f"{name} {lane.phase}" for name, lane in rollout.lanes.items() if not lane.is_over)
        why = "".join(f"; {name}: {text}" for name, text in rollout.waits.items() if not rollout.lanes[name].is_over)
        return f"no progress in {format_duration(waited_s)}, the limit is {format_duration(limit_s)} ({stuck}){why}"
    return ""
