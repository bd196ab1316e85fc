"""The whole decision, composed of small ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.lane_view import Counts, LaneView
from fleetctl.core.overload import Rung, climb
from fleetctl.core.pressure import LanePressure, lane_pressure
from fleetctl.core.reconcile.balance import Balanced, Lane, balance
from fleetctl.core.reconcile.door import keep_gateway
from fleetctl.core.reconcile.down import take_down
from fleetctl.core.reconcile.lifecycle import Outcome, Scene, drain, next_step, stop
from fleetctl.core.reconcile.limits import later
from fleetctl.core.reconcile.room import Room, room_left
from fleetctl.core.reconcile.strays import stop_strays
from fleetctl.core.reconcile.watch import watch
from fleetctl.core.scaling import Target, target
from fleetctl.model.decision import (
    AdmitReplica,
    AnyAction,
    Decision,
    DrainReplica,
    LaneMemory,
    LaunchReplica,
    MarkBooting,
    MarkGone,
    Memory,
    SetStep,
    StartGateway,
    StopGateway,
    StopReplica,
    StopStray,
    WarmReplica,
)
from fleetctl.model.desired import Phase
from fleetctl.model.profile import Mode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.observation import Observation, ObservedReplica
    from fleetctl.model.profile import LaneSpec

# Facts are recorded first; a replacement is launched before anything leaves rotation.
_ORDER: tuple[type, ...] = (
    StartGateway, MarkGone, StopStray, LaunchReplica, DrainReplica, MarkBooting, StopReplica, WarmReplica, AdmitReplica,
    SetStep, StopGateway,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaneAnswer:
    view: LaneView
    target: Target
    rung: Rung
    balanced: Balanced


def reconcile(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
    """Return what should be done now, what to remember, when to look again, and why.

    Pure: the same arguments give the same answer, whatever the order of the replicas. Asked again about the world its
    own answer leads to, it has nothing to add.
    """
    observation = replace(observation, replicas=tuple(sorted(observation.replicas, key=_age)))
    memory = watch(observation, memory, now)
    scene = Scene(now=now, control=desired.profile.control, memory=memory, listing_ok=observation.listing_ok)
    if desired.phase is Phase.DOWN:
        return take_down(desired, observation, scene)
    return _keep_up(desired, observation, scene)


def _age(replica: ObservedReplica) -> tuple[datetime, int, str]:
    return (replica.record.created_at, len(replica.record.id), replica.record.id)


def _keep_up(desired: Desired, observation: Observation, scene: Scene) -> Decision:
    outcomes = [next_step(r, scene) for r in observation.replicas if r.record.state.is_live]
    names = {spec.name for spec in desired.profile.lanes}
    retired = [_retire(o, scene) for o in outcomes if o.replica.record.lane not in names]
    # The caps count what is really there: in shadow mode nothing leaves by the controller's own idea.
    room = room_left(desired.profile.capacity, (_as_done(o, desired) for o in outcomes), len(observation.strays))
    answers = _lanes(desired, observation, scene, outcomes, room)
    gateway_action, memory, gateway_reason = keep_gateway(observation, scene.memory, scene.now)
    actions: list[AnyAction] = [*([gateway_action] if gateway_action else []), *stop_strays(observation, scene)]
    actions += _actions(desired, retired)
    for name, answer in answers.items():
        actions += _actions(desired, answer.balanced.outcomes)
        actions += answer.balanced.launches
        actions += _step(desired, name, answer.rung)
    return Decision(
        actions=tuple(sorted(actions, key=lambda action: _ORDER.index(type(action)))),
        memory=replace(
            memory,
            lanes={name: answer.balanced.memory for name, answer in answers.items()},
            relapses=_relapses(memory, outcomes, desired),
        ),
        requeue_at=_look_again(observation, scene),
        reasons={
            **{name: _reason(desired, answer) for name, answer in answers.items()},
            "gateway": gateway_reason,
            "fleet": "" if observation.listing_ok else "the provider does not answer: nothing is believed gone",
        },
        inputs={name: _inputs(answer) for name, answer in answers.items()},
    )


def _relapses(memory: Memory, outcomes: list[Outcome], desired: Desired) -> dict[str, int]:
    """Count those that are taken out of rotation now; in shadow mode nobody is."""
    if desired.profile.control.mode is Mode.SHADOW:
        return memory.relapses
    now_out = [o.id for o in outcomes if isinstance(o.action, MarkBooting) and o.own_idea]
    return memory.relapses | {rid: memory.relapses.get(rid, 0) + 1 for rid in now_out}


def _retire(outcome: Outcome, scene: Scene) -> Outcome:
    """Return the way out of a replica whose lane the profile no longer has; a person's order, so not held back."""
    reason = f"lane {outcome.replica.record.lane} is no longer in the profile"
    if not outcome.state.counts_as_capacity or outcome.state is ReplicaState.PENDING:
        return replace(outcome, own_idea=False)
    if outcome.replica.record.state is ReplicaState.READY:
        return replace(drain(outcome.replica, scene, reason), own_idea=False)
    return replace(stop(outcome.replica, reason), own_idea=False)


def _as_done(outcome: Outcome, desired: Desired) -> Outcome:
    """Return the outcome as it will really be: in shadow mode the controller's own ideas are not done."""
    if desired.profile.control.mode is Mode.SHADOW and outcome.own_idea:
        return replace(outcome, state=outcome.replica.record.state)
    return outcome


def _lanes(
    desired: Desired, observation: Observation, scene: Scene, outcomes: list[Outcome], room: Room
) -> dict[str, _LaneAnswer]:
    """Return every lane's answer; lanes people wait on come first where the caps leave little."""
    specs = desired.profile.lanes
    pressures = {spec.name: _pressure(desired, observation, spec, scene.now) for spec in specs}
    levels = [pressures[spec.name].level for spec in specs if not spec.interruptible]
    level = max((each for each in levels if each is not None), default=None)
    answers: dict[str, _LaneAnswer] = {}
    for spec in sorted(specs, key=lambda lane: lane.interruptible):
        ours = tuple(o for o in outcomes if o.replica.record.lane == spec.name)
        view = LaneView(
            spec=spec,
            plan=desired.plan.lane(spec.name),
            control=desired.profile.control,
            memory=scene.memory.lanes.get(spec.name, LaneMemory()),
            pressure=pressures[spec.name],
            counts=_counts(ours),
            now=scene.now,
            override=desired.overrides.replicas.get(spec.name),
            pinned=desired.overrides.step.get(spec.name),
            interactive_level=level,
        )
        answers[spec.name] = _answer(view, ours, scene, room, observation.refused.get(spec.name, ""))
        room = answers[spec.name].balanced.room
    return {spec.name: answers[spec.name] for spec in specs}


def _answer(view: LaneView, outcomes: tuple[Outcome, ...], scene: Scene, room: Room, refused: str) -> _LaneAnswer:
    rung = climb(view)
    aim = target(replace(view, memory=rung.memory))
    lane = Lane(
        spec=view.spec,
        plan=view.plan,
        memory=aim.memory,
        target=aim,
        ordered=aim.wanted if view.override is not None else view.bounded(view.plan.replicas),
        shadow=view.control.mode is Mode.SHADOW,
        outcomes=outcomes,
        refused=refused,
    )
    return _LaneAnswer(view=view, target=aim, rung=rung, balanced=balance(lane, scene, room))


def _pressure(desired: Desired, observation: Observation, spec: LaneSpec, now: datetime) -> LanePressure:
    gateway = observation.gateway
    if gateway is None:
        return LanePressure(validity=Validity.NONE)
    lane: LaneSnapshot | None = next((lane for lane in gateway.lanes if lane.name == spec.name), None)
    return lane_pressure(
        spec,
        lane,
        validity=observation.gateway_validity,
        uptime_s=(now - gateway.started_at).total_seconds(),
        objective=desired.profile.objective.fraction,
    )


def _counts(outcomes: tuple[Outcome, ...]) -> Counts:
    ready = sum(o.state is ReplicaState.READY for o in outcomes)
    return Counts(ready=ready, pending=sum(o.state.counts_as_capacity for o in outcomes) - ready)


def _actions(desired: Desired, outcomes: Iterable[Outcome]) -> list[AnyAction]:
    """Return the outcomes' actions; in shadow mode the controller's own ideas are marked as such."""
    shadow = desired.profile.control.mode is Mode.SHADOW
    return [
        msgspec.structs.replace(o.action, shadow=True) if shadow and o.own_idea else o.action
        for o in outcomes
        if o.action is not None
    ]


def _step(desired: Desired, lane: str, rung: Rung) -> list[AnyAction]:
    if not rung.changed:
        return []
    shadow = desired.profile.control.mode is Mode.SHADOW and not rung.pinned
    return [SetStep(lane=lane, step=rung.memory.step, reason=rung.reason, shadow=shadow)]


def _look_again(observation: Observation, scene: Scene) -> datetime:
    """Return the next tick, or the next instant something falls due before it."""
    due = [r.record.drain_deadline for r in observation.replicas if r.record.state is ReplicaState.DRAINING]
    tick = later(scene.now, scene.control.tick_s)
    return min([at for at in due if at is not None and at > scene.now] + [tick])


def _reason(desired: Desired, answer: _LaneAnswer) -> str:
    words = [answer.target.reason, answer.rung.reason, *answer.balanced.notes]
    if desired.profile.control.mode is Mode.SHADOW:
        words.append("shadow: not acted on")
    return "; ".join(word for word in words if word)


def _inputs(answer: _LaneAnswer) -> dict[str, float | str]:
    pressure, counts = answer.view.pressure, answer.view.counts
    figures: dict[str, float | str] = {
        "wanted": answer.target.wanted,
        "ready": counts.ready,
        "pending": counts.pending,
        "validity": pressure.validity.value,
        "offered_rps": round(pressure.offered_rps, 4),
        "queued": pressure.queued,
        "in_flight": pressure.in_flight,
        "unmet": round(pressure.unmet, 4),
        "step": answer.rung.memory.step.name.lower(),
    }
    if pressure.level is not None:
        figures["pressure"] = round(pressure.level, 4)
    if pressure.latency is not None:
        figures["latency"] = pressure.latency.words
    if pressure.burn is not None:
        figures["burn_5m"] = round(pressure.burn, 3)
    return figures
