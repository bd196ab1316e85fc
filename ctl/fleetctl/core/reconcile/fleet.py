"""The whole decision, composed of small ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.absence import Counts
from fleetctl.core.borrowed_need import with_borrowed_need
from fleetctl.core.changed import changed
from fleetctl.core.disruption import e2e_s_p99, notice_of
from fleetctl.core.drains import cordoned_zones, surging, with_drains
from fleetctl.core.hazard import Hazards, learned
from fleetctl.core.lane_view import LaneView, lane_views
from fleetctl.core.liveness import stall_limits_s
from fleetctl.core.orphaned import orphaned_cost
from fleetctl.core.overload import StepDecision, decide_step
from fleetctl.core.placement import possible_offerings
from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.core.reconcile.balance import balance
from fleetctl.core.reconcile.disruption_limit import hold_doubtful
from fleetctl.core.reconcile.down import take_down
from fleetctl.core.reconcile.freeze import held_still
from fleetctl.core.reconcile.gateways import keep_gateways
from fleetctl.core.reconcile.headroom import Headroom, headroom_left
from fleetctl.core.reconcile.lane_report import LaneReport, report_lane
from fleetctl.core.reconcile.lane_state import LaneDecision, LaneState, MarketView, with_order
from fleetctl.core.reconcile.late import late_ids
from fleetctl.core.reconcile.lifecycle import drain, next_step, stop
from fleetctl.core.reconcile.limits import UNHEALTHY_MAX, later
from fleetctl.core.reconcile.notices import leaves_rotation_at
from fleetctl.core.reconcile.orphaned_nodes import stop_orphaned_nodes
from fleetctl.core.reconcile.out_of_stock import given_up
from fleetctl.core.reconcile.provider import launches_blocked, provider_reasons, store_reasons
from fleetctl.core.reconcile.reassign import reassign
from fleetctl.core.reconcile.rejected import rejected_options
from fleetctl.core.reconcile.replica_step import Origin, ReconcileContext, ReplicaStep
from fleetctl.core.reconcile.rollout import Rolled, roll
from fleetctl.core.reconcile.shared import prepare_shared
from fleetctl.core.reconcile.update_memory import update_memory
from fleetctl.core.scaling import Scaling, Target, target
from fleetctl.model.decision import (
    AnyAction,
    Decision,
    LaneMemory,
    MarkBooting,
    Memory,
    SetStep,
)
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.profile import CapacitySpec, Mode
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, GATEWAY, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.desired import Desired, Overrides, Terms
    from fleetctl.model.observation import Observation, ObservedReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaneAim:
    ladder: StepDecision
    target: Target
    report: LaneReport


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaneResult:
    view: LaneView
    aim: _LaneAim
    state: LaneState
    decided: LaneDecision


def reconcile(
    desired: Desired, observation: Observation, memory: Memory, now: datetime, *, scaling: Scaling = target
) -> Decision:
    """Return what should be done now, what to remember, when to look again, and why.

    Pure: the same arguments give the same answer, whatever the order of the replicas. Idempotent: asked about the state its own
    actions lead to, it returns none. With another `scaling` it is another policy, whose every other part stays.
    """
    seen = with_drains(observation.replicas, desired.overrides)
    observation = replace(observation, replicas=tuple(sorted(seen, key=_age)))
    memory = learned(update_memory(observation, memory, now), observation, now)
    context = ReconcileContext(
        now=now,
        generation=desired.generation,
        changed_at=desired.changed_at if desired.changed_at <= now else None,
        control=desired.profile.control,
        memory=memory,
        listing_ok=observation.listing_ok,
        surging=surging(observation.replicas, desired.overrides),
        stop_deadline_s=observation.stop_deadline_s,
        stall_limits_s=stall_limits_s(desired.profile) if observation.gateway is not None else {},
        e2e_s_p99=e2e_s_p99(desired.plan, observation),
    )
    if desired.phase is DesiredPhase.DOWN:
        return take_down(desired, observation, context)
    return _keep_up(desired, observation, context, scaling)


def _age(replica: ObservedReplica) -> tuple[datetime, int, str]:
    return (replica.record.created_at, len(replica.record.id), replica.record.id)


def _keep_up(desired: Desired, observation: Observation, context: ReconcileContext, scaling: Scaling) -> Decision:
    taken = [next_step(r, context) for r in observation.replicas if r.record.state.is_live]
    steps, held = hold_doubtful(taken, context)
    steps = given_up(desired, observation, steps, cordoned=cordoned_zones(desired.overrides))
    rolled = roll(desired, observation, context, steps)
    desired = rolled.desired
    names = {spec.name for spec in desired.profile.lanes}
    retired = [_retire(o, context) for o in steps if o.replica.record.lane not in names]
    # The caps count what is really there: in shadow mode nothing leaves because the controller wants it to.
    headroom = headroom_left(
        desired.profile.capacity,
        (_as_done(o, desired) for o in steps),
        lanes=desired.plan.lanes,
        orphaned=orphaned_cost(observation.orphaned_nodes, desired.plan),
        digests={spec.name: launch_digest(spec, desired.plan.lane(spec.name)) for spec in desired.profile.lanes},
    )
    results = _lanes(rolled, observation, context, steps, headroom, scaling)
    gateway_actions, memory, gateway_reasons = keep_gateways(observation, context.memory, context.now)
    shared = prepare_shared(observation, context.now)
    actions: list[AnyAction] = [
        *gateway_actions,
        # While nobody's absence is believed, nobody's node is ended either.
        *(stop_orphaned_nodes(observation, context) if observation.listing_ok else ()),
        *shared.actions,
        *rolled.actions,
    ]
    actions += _actions(desired, retired)
    for name, result in results.items():
        decided = [*_actions(desired, result.decided.steps), *result.decided.launches]
        actions += _with_rejected([*decided, *_step(desired, name, result.aim.ladder)], name, results, context)
        actions += result.aim.report.actions
    return Decision(
        actions=tuple(sorted(actions, key=lambda action: action.order)),
        memory=replace(
            memory,
            lanes={name: result.decided.memory for name, result in results.items()},
            rollout=rolled.after({name: result.decided for name, result in results.items()}, retired),
            unhealthy_count=_unhealthy_count(memory, steps, desired),
        ),
        requeue_at=_look_again(observation, context),
        reasons={
            **{
                Subject.lane(name): (*_reasons(desired, result), *held.get(name, ()))
                for name, result in results.items()
            },
            GATEWAY: gateway_reasons,
            FLEET: (*store_reasons(observation), *provider_reasons(observation), *shared.reasons, *rolled.reasons),
        },
        inputs={name: _inputs(result) for name, result in results.items()},
    )


def _unhealthy_count(memory: Memory, steps: list[ReplicaStep], desired: Desired) -> dict[str, int]:
    """Count those that are taken out of rotation now, to recover or for good; in shadow mode nobody is."""
    if desired.profile.control.mode is Mode.SHADOW:
        return memory.unhealthy_count
    known = memory.unhealthy_count
    to_recover = [o.id for o in steps if isinstance(o.action, MarkBooting) and o.origin is Origin.CONTROLLER]
    for_good = [o.id for o in steps if o.action is not None and o.action.code is ReasonCode.UNHEALTHY_AGAIN]
    counted = {rid: known.get(rid, 0) + 1 for rid in to_recover}
    return known | counted | {rid: max(known.get(rid, 0), UNHEALTHY_MAX) for rid in for_good}


def _retire(step: ReplicaStep, context: ReconcileContext) -> ReplicaStep:
    """Return the way out of a replica whose lane the profile no longer has; a person's order, so not held back."""
    reason = f"lane {step.replica.record.lane} is no longer in the profile"
    if not step.state.counts_as_capacity or step.state is ReplicaState.PENDING:
        return replace(step, origin=Origin.OPERATOR)
    if step.replica.record.state is ReplicaState.READY:
        return replace(drain(step.replica, context, ReasonCode.LANE_REMOVED, reason), origin=Origin.OPERATOR)
    return replace(stop(step.replica, ReasonCode.LANE_REMOVED, reason), origin=Origin.OPERATOR)


def _as_done(step: ReplicaStep, desired: Desired) -> ReplicaStep:
    """Return the step as it will really be: in shadow mode the controller's own steps are not taken."""
    if desired.profile.control.mode is Mode.SHADOW and step.origin is Origin.CONTROLLER:
        return replace(step, state=step.replica.record.state)
    return step


def _lanes(
    rolled: Rolled,
    observation: Observation,
    context: ReconcileContext,
    steps: list[ReplicaStep],
    headroom: Headroom,
    scaling: Scaling,
) -> dict[str, _LaneResult]:
    """Return every lane's answer; lanes people wait on come first where the caps leave little."""
    desired = rolled.desired
    specs = desired.profile.lanes
    of_lane = _by_lane(steps, [spec.name for spec in specs])
    late = {spec.name: _late(spec.name, of_lane[spec.name], desired, observation, context) for spec in specs}
    counts = {name: _counts(of_lane[name], late[name]) for name in of_lane}
    views = with_borrowed_need(lane_views(desired, observation, context.memory, context.now, counts))
    gateway_age_s = observation.gateway.age_s(context.now) if observation.gateway else 0.0
    aims = {
        spec.name: _aim(views[spec.name], scaling, desired.overrides.freeze_of(spec.name), observation, gateway_age_s)
        for spec in specs
    }
    states = {
        name: replace(
            _lane_state(views[name], aims[name], context, observation, headroom.capacity, desired.overrides),
            steps=of_lane[name],
            late=late[name],
            rolling=rolled.lane_rolling(name, wanted=aims[name].target.wanted),
        )
        for name in aims
    }
    if rolled.rollout.is_over or rolled.rollout.stable is None:
        # Meanwhile a replica of one revision would be moved to a lane of another.
        states = reassign(states, desired, context)
    results: dict[str, _LaneResult] = {}
    for spec in sorted(specs, key=lambda lane: lane.interruptible):
        decided = balance(states[spec.name], context, headroom)
        headroom = decided.headroom
        results[spec.name] = _LaneResult(
            view=views[spec.name], aim=aims[spec.name], state=states[spec.name], decided=decided
        )
    return {spec.name: results[spec.name] for spec in specs}


def _late(
    lane: str, steps: tuple[ReplicaStep, ...], desired: Desired, observation: Observation, context: ReconcileContext
) -> frozenset[str]:
    memory = context.memory.lanes.get(lane, LaneMemory())
    return late_ids(desired.plan.lane(lane), memory, steps, boot_s=observation.boot_s, now=context.now)


def _aim(
    view: LaneView, scaling: Scaling, frozen: Terms | None, observation: Observation, gateway_age_s: float
) -> _LaneAim:
    ladder = decide_step(view)
    view = changed(view, memory=ladder.memory)
    aim = held_still(view, scaling(view), frozen)
    report = report_lane(view, aim.memory, observation, gateway_age_s=gateway_age_s)
    return _LaneAim(ladder=ladder, target=aim, report=report)


def _lane_state(  # a lane's decision, from what each of them says
    view: LaneView,
    aim: _LaneAim,
    context: ReconcileContext,
    observation: Observation,
    capacity: CapacitySpec,
    overrides: Overrides,
) -> LaneState:
    is_scaled, shadow = view.override is not None, view.control.mode is Mode.SHADOW
    requested = aim.target.wanted if is_scaled else view.bounded(view.plan.replicas)
    return LaneState(
        spec=view.spec,
        plan=view.plan,
        memory=with_order(aim.report.memory, requested=requested, is_scaled=is_scaled, shadow=shadow),
        target=aim.target,
        requested=requested,
        shadow=shadow,
        steps=(),
        frozen=overrides.freeze_of(view.spec.name) if view.override is None else None,
        refused=observation.refused.get(view.spec.name, ""),
        blocked=launches_blocked(observation, context.now),
        boot_s=view.boot_s,
        market=MarketView(
            offerings=tuple(possible_offerings(view.plan, observation.offerings, capacity)),
            refused=frozenset(observation.refused_offerings),
            hazards=Hazards(now=context.now, records=context.memory.offerings),
            standing=tuple(r.record for r in observation.replicas),
            capacity=capacity,
            cordoned=cordoned_zones(overrides),
        ),
    )


def _by_lane(steps: Iterable[ReplicaStep], names: Iterable[str]) -> dict[str, tuple[ReplicaStep, ...]]:
    found: dict[str, list[ReplicaStep]] = {name: [] for name in names}
    for step in steps:
        if step.replica.record.lane in found:
            found[step.replica.record.lane].append(step)
    return {name: tuple(each) for name, each in found.items()}


def _counts(steps: tuple[ReplicaStep, ...], late: frozenset[str]) -> Counts:
    ready = sum(o.state is ReplicaState.READY for o in steps)
    behind = sum(o.id in late and o.state.counts_as_capacity for o in steps)
    return Counts(ready=ready, pending=sum(o.state.counts_as_capacity for o in steps) - ready - behind, late=behind)


def _actions(desired: Desired, steps: Iterable[ReplicaStep]) -> list[AnyAction]:
    """Return the steps' actions; in shadow mode the controller's own are marked as such."""
    shadow = desired.profile.control.mode is Mode.SHADOW
    return [
        msgspec.structs.replace(o.action, shadow=True) if shadow and o.origin is Origin.CONTROLLER else o.action
        for o in steps
        if o.action is not None
    ]


def _with_rejected(
    actions: list[AnyAction], lane: str, results: dict[str, _LaneResult], context: ReconcileContext
) -> list[AnyAction]:
    """Return a lane's actions with what else was considered: the same of all that are alike, and only where any is."""
    if not actions:
        return actions
    views = {name: result.view for name, result in results.items()}
    states = {name: result.state for name, result in results.items()}
    ladder, known = results[lane].aim.ladder, {}
    for number, action in enumerate(actions):
        alike = (action.name, action.code)
        if alike not in known:
            known[alike] = rejected_options(action, lane, views, states, ladder, context)
        if known[alike]:
            actions[number] = msgspec.structs.replace(action, rejected=known[alike])
    return actions


def _step(desired: Desired, lane: str, ladder: StepDecision) -> list[AnyAction]:
    if not ladder.changed:
        return []
    shadow = desired.profile.control.mode is Mode.SHADOW and not ladder.pinned
    return [
        SetStep(
            lane=lane,
            step=ladder.memory.step,
            code=_ladder_code(ladder),
            reason=ladder.reason,
            shadow=shadow,
        )
    ]


def _look_again(observation: Observation, context: ReconcileContext) -> datetime:
    """Return the next tick, or the next instant something falls due before it."""
    due = [r.record.drain_deadline for r in observation.replicas if r.record.state is ReplicaState.DRAINING]
    tick = later(context.now, context.control.tick_s)
    noticed = [r for r in observation.replicas if notice_of(r) is not None]
    due += [leaves_rotation_at(r, context) for r in noticed if r.record.state is ReplicaState.READY]
    return min([at for at in due if at is not None and at > context.now] + [tick])


def _reasons(desired: Desired, result: _LaneResult) -> tuple[Reason, ...]:
    target, ladder = result.aim.target, result.aim.ladder
    reasons = [target.code.because(target.reason), *result.state.notes]
    if ladder.reason:
        reasons.append(_ladder_code(ladder).because(ladder.reason))
    if result.view.spot_spare.reason:
        reasons.append(ReasonCode.SPOT_SPARE.because(result.view.spot_spare.reason))
    reasons += (*result.decided.notes, *result.aim.report.reasons)
    if desired.profile.control.mode is Mode.SHADOW:
        reasons.append(ReasonCode.SHADOW.because("shadow: not acted on"))
    return tuple(reasons)


def _ladder_code(ladder: StepDecision) -> ReasonCode:
    return ReasonCode.OPERATOR if ladder.pinned else ladder.code


def _inputs(result: _LaneResult) -> dict[str, float | str]:
    pressure, counts = result.view.pressure, result.view.counts
    figures: dict[str, float | str] = {
        "wanted": result.state.target.wanted,
        "ready": counts.ready,
        "pending": counts.pending,
        "validity": pressure.validity.value,
        "offered_rps": round(pressure.offered_rps, 4),
        "queued": pressure.queued,
        "in_flight": pressure.in_flight,
        "unmet": round(pressure.unmet, 4),
        "step": result.aim.ladder.memory.step.value,
    }
    if counts.late:
        figures["late"] = counts.late
    if result.view.spot_spare.short_share:
        figures["spot_short_share"] = round(result.view.spot_spare.short_share, 6)
    if pressure.level is not None:
        figures["pressure"] = round(pressure.level, 4)
    if pressure.latency is not None:
        figures["latency"] = pressure.latency.message
    if pressure.burn is not None:
        figures["burn_5m"] = round(pressure.burn, 3)
    firing = [alert.name.value for alert in result.decided.memory.alerts if alert.fired_at is not None]
    if firing:
        figures["alerts"] = ",".join(firing)
    return figures
