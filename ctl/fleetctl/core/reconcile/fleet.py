"""The whole decision, composed of small ones."""

from __future__ import annotations

from dataclasses import replace
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
from fleetctl.core.reconcile.decided_lane import DecidedLane, LaneAim, inputs_of, ladder_code, reasons_of
from fleetctl.core.reconcile.disruption_limit import hold_doubtful
from fleetctl.core.reconcile.down import take_down
from fleetctl.core.reconcile.freeze import held_still
from fleetctl.core.reconcile.gateways import keep_gateways
from fleetctl.core.reconcile.headroom import Headroom, headroom_left
from fleetctl.core.reconcile.health import probe_reasons
from fleetctl.core.reconcile.lane_report import report_lane
from fleetctl.core.reconcile.lane_state import LaneRolling, LaneState, MarketView, with_order
from fleetctl.core.reconcile.late import late_ids
from fleetctl.core.reconcile.lifecycle import drain, next_step, stop
from fleetctl.core.reconcile.limits import UNHEALTHY_MAX, later
from fleetctl.core.reconcile.notices import leaves_rotation_at
from fleetctl.core.reconcile.orphaned_nodes import stop_orphaned_nodes
from fleetctl.core.reconcile.out_of_stock import given_up
from fleetctl.core.reconcile.provider import launches_blocked, provider_reasons, store_reasons
from fleetctl.core.reconcile.reassign import reassign
from fleetctl.core.reconcile.rejected import rejected_options
from fleetctl.core.reconcile.replica_step import Origin, ReconcileContext, ReplicaStep, altered, unsettled
from fleetctl.core.reconcile.rollout import Rolled, roll
from fleetctl.core.reconcile.shared import prepare_shared
from fleetctl.core.reconcile.update_memory import update_memory
from fleetctl.core.scaling import Scaling, target
from fleetctl.model.decision import (
    AnyAction,
    Decision,
    MarkBooting,
    Memory,
    SetStep,
)
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ENDED_STATES, ReplicaState
from fleetctl.model.subject import FLEET, GATEWAY, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.desired import Desired, Terms
    from fleetctl.model.observation import Observation, ObservedReplica


def reconcile(
    desired: Desired, observation: Observation, memory: Memory, now: datetime, *, scaling: Scaling = target
) -> Decision:
    """Return what should be done now, what to remember, when to look again, and why.

    Pure: the same arguments give the same answer, whatever the order of the replicas. Idempotent: asked about the state its own
    actions lead to, it returns none. With another `scaling` it is another policy, whose every other part stays.
    """
    seen = _by_age(with_drains(observation.replicas, desired.overrides))
    observation = changed(observation, replicas=seen)
    memory = learned(update_memory(observation, memory, now), observation, now)
    context = ReconcileContext(
        now=now,
        generation=desired.generation,
        changed_at=desired.changed_at if desired.changed_at <= now else None,
        control=desired.profile.control,
        memory=memory,
        listing_ok=observation.listing_ok,
        is_going_down=desired.phase is DesiredPhase.DOWN,
        restarts=desired.overrides.restarts,
        surging=surging(observation.replicas, desired.overrides),
        offerings_grown_at=observation.offerings_grown_at,
        stop_deadline_s=observation.stop_deadline_s,
        stall_limits_s=stall_limits_s(desired.profile) if observation.gateway is not None else {},
        e2e_s_p99=e2e_s_p99(desired.plan, observation),
    )
    if desired.phase is DesiredPhase.DOWN:
        return take_down(desired, observation, context)
    return _keep_up(desired, observation, context, scaling)


def _by_age(replicas: tuple[ObservedReplica, ...]) -> tuple[ObservedReplica, ...]:
    records = [replica.record for replica in replicas]
    ages = [(record.created_at, len(record.id), record.id) for record in records]
    return tuple([replicas[place] for _, place in sorted(zip(ages, range(len(ages)), strict=True))])


def _keep_up(desired: Desired, observation: Observation, context: ReconcileContext, scaling: Scaling) -> Decision:
    taken = [next_step(r, context) for r in observation.replicas if r.record.state not in ENDED_STATES]
    steps, held = hold_doubtful(taken, context)
    steps = given_up(desired, observation, steps, cordoned=cordoned_zones(desired.overrides))
    rolled = roll(desired, observation, context, steps)
    desired = rolled.desired
    names = {spec.name for spec in desired.profile.lanes}
    retired = [_retire(o, context) for o in steps if o.replica.record.lane not in names]
    # The caps count what is really there: in shadow mode nothing leaves because the controller wants it to.
    headroom = headroom_left(
        desired.profile.capacity,
        steps if desired.profile.control.mode is not Mode.SHADOW else [_as_shadowed(o) for o in steps],
        lanes=desired.plan.lanes,
        specs=desired.profile.lanes,
        orphaned=orphaned_cost(observation.orphaned_nodes, desired.plan),
        offerings=observation.offerings,
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
        requeue_at=_look_again(unsettled(steps), context),
        reasons={
            **{
                Subject.lane(name): (*reasons_of(result, desired.profile.control.mode), *held.get(name, ()))
                for name, result in results.items()
            },
            GATEWAY: gateway_reasons,
            FLEET: (
                *store_reasons(observation),
                *provider_reasons(observation),
                *probe_reasons(observation),
                *shared.reasons,
                *rolled.reasons,
            ),
        },
        inputs={name: inputs_of(result) for name, result in results.items()},
    )


def _unhealthy_count(memory: Memory, steps: list[ReplicaStep], desired: Desired) -> dict[str, int]:
    """Count those that are taken out of rotation now, to recover or for good; in shadow mode nobody is."""
    if desired.profile.control.mode is Mode.SHADOW:
        return memory.unhealthy_count
    known = memory.unhealthy_count
    acting = [o for o in steps if o.action is not None]
    to_recover = [o.id for o in acting if isinstance(o.action, MarkBooting) and o.origin is Origin.CONTROLLER]
    for_good = [o.id for o in acting if o.action is not None and o.action.code is ReasonCode.UNHEALTHY_AGAIN]
    counted = {rid: known.get(rid, 0) + 1 for rid in to_recover}
    return known | counted | {rid: max(known.get(rid, 0), UNHEALTHY_MAX) for rid in for_good}


def _retire(step: ReplicaStep, context: ReconcileContext) -> ReplicaStep:
    """Return the way out of a replica whose lane the profile no longer has; a person's order, so not held back."""
    reason = f"lane {step.replica.record.lane} is no longer in the profile"
    if not step.state.counts_as_capacity or step.state is ReplicaState.PENDING:
        return altered(step, origin=Origin.OPERATOR)
    if step.replica.record.state is ReplicaState.READY:
        return altered(drain(step.replica, context, ReasonCode.LANE_REMOVED, reason), origin=Origin.OPERATOR)
    return altered(stop(step.replica, ReasonCode.LANE_REMOVED, reason), origin=Origin.OPERATOR)


def _as_shadowed(step: ReplicaStep) -> ReplicaStep:
    """Return the step as it will really be in shadow mode: the controller's own are not taken."""
    return altered(step, state=step.replica.record.state) if step.origin is Origin.CONTROLLER else step


def _lanes(
    rolled: Rolled,
    observation: Observation,
    context: ReconcileContext,
    steps: list[ReplicaStep],
    headroom: Headroom,
    scaling: Scaling,
) -> dict[str, DecidedLane]:
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
    market, blocked = _market(observation, context, headroom, desired), launches_blocked(observation, context.now)
    states = {
        name: _lane_state(
            view,
            aims[name],
            desired,
            replace(market, offerings=tuple(possible_offerings(view.plan, market.offerings, headroom.capacity))),
            steps=of_lane[name],
            late=late[name],
            rolling=rolled.lane_rolling(name, wanted=aims[name].target.wanted),
            refused=observation.refused.get(name, ""),
            blocked=blocked,
        )
        for name, view in views.items()
    }
    if rolled.rollout.is_over or rolled.rollout.stable is None:
        # Meanwhile a replica of one revision would be moved to a lane of another.
        states = reassign(states, desired, context)
    results: dict[str, DecidedLane] = {}
    for spec in sorted(specs, key=lambda lane: lane.interruptible):
        decided = balance(states[spec.name], context, headroom)
        headroom = decided.headroom
        results[spec.name] = DecidedLane(
            view=views[spec.name], aim=aims[spec.name], state=states[spec.name], decided=decided
        )
    return {spec.name: results[spec.name] for spec in specs}


def _late(
    lane: str, steps: tuple[ReplicaStep, ...], desired: Desired, observation: Observation, context: ReconcileContext
) -> frozenset[str]:
    memory = context.memory.lane(lane)
    return late_ids(desired.plan.lane(lane), memory, steps, boot_s=observation.boot_s, now=context.now)


def _aim(
    view: LaneView, scaling: Scaling, frozen: Terms | None, observation: Observation, gateway_age_s: float
) -> LaneAim:
    ladder = decide_step(view)
    view = changed(view, memory=ladder.memory)
    aim = held_still(view, scaling(view), frozen)
    report = report_lane(view, aim.memory, observation, gateway_age_s=gateway_age_s)
    return LaneAim(ladder=ladder, target=aim, report=report)


def _lane_state(  # noqa: PLR0913  # a lane's decision, from what each of them says
    view: LaneView,
    aim: LaneAim,
    desired: Desired,
    market: MarketView,
    *,
    steps: tuple[ReplicaStep, ...],
    late: frozenset[str],
    rolling: LaneRolling | None,
    refused: str,
    blocked: str,
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
        steps=steps,
        frozen=None if is_scaled else desired.overrides.freeze_of(view.spec.name),
        refused=refused,
        blocked=blocked,
        boot_s=view.boot_s,
        market=market,
        late=late,
        rolling=rolling,
    )


def _market(observation: Observation, context: ReconcileContext, headroom: Headroom, desired: Desired) -> MarketView:
    """Return what is the same for all lanes of what may be bought."""
    return MarketView(
        offerings=observation.offerings,
        refused=frozenset(observation.refused_offerings),
        hazards=Hazards(now=context.now, records=context.memory.offerings),
        standing=tuple([r.record for r in observation.replicas]),
        capacity=headroom.capacity,
        cordoned=cordoned_zones(desired.overrides),
    )


def _by_lane(steps: Iterable[ReplicaStep], names: Iterable[str]) -> dict[str, tuple[ReplicaStep, ...]]:
    found: dict[str, list[ReplicaStep]] = {name: [] for name in names}
    for step in steps:
        if step.replica.record.lane in found:
            found[step.replica.record.lane].append(step)
    return {name: tuple(each) for name, each in found.items()}


def _counts(steps: tuple[ReplicaStep, ...], late: frozenset[str]) -> Counts:
    others = unsettled(steps)
    settled = len(steps) - len(others)
    ready = settled + sum(o.state is ReplicaState.READY for o in others)
    behind = sum(o.id in late and o.state.counts_as_capacity for o in others)
    there = settled + sum(o.state.counts_as_capacity for o in others)
    return Counts(ready=ready, pending=there - ready - behind, late=behind)


def _actions(desired: Desired, steps: Iterable[ReplicaStep]) -> list[AnyAction]:
    """Return the steps' actions; in shadow mode the controller's own are marked as such."""
    shadow = desired.profile.control.mode is Mode.SHADOW
    return [
        msgspec.structs.replace(o.action, shadow=True) if shadow and o.origin is Origin.CONTROLLER else o.action
        for o in steps
        if o.action is not None
    ]


def _with_rejected(
    actions: list[AnyAction], lane: str, results: dict[str, DecidedLane], context: ReconcileContext
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
            code=ladder_code(ladder),
            reason=ladder.reason,
            shadow=shadow,
        )
    ]


def _look_again(others: Iterable[ReplicaStep], context: ReconcileContext) -> datetime:
    """Return the next tick, or the next instant something falls due before it, by the replicas that are not settled."""
    replicas = [o.replica for o in others]
    due = [r.record.drain_deadline for r in replicas if r.record.state is ReplicaState.DRAINING]
    tick = later(context.now, context.control.tick_s)
    noticed = [r for r in replicas if notice_of(r) is not None]
    due += [leaves_rotation_at(r, context) for r in noticed if r.record.state is ReplicaState.READY]
    return min([at for at in due if at is not None and at > context.now] + [tick])
