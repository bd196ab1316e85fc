"""Brings one lane's replicas to its target: launches what lacks, drains what is too many or asked to leave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.core.disruption import notice_of
from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.core.reconcile.disruption_limit import paced
from fleetctl.core.reconcile.excess import (
    drain_noticed,
    drain_slow,
    excess,
    fallback_note,
    held_by_surge,
    serves_under_notice,
    way_out,
    why_slow,
)
from fleetctl.core.reconcile.final_fault import forget_earlier, is_final, note_fault, why_final
from fleetctl.core.reconcile.headroom import need_of
from fleetctl.core.reconcile.lane_state import (
    LaneDecision,
    LaneState,
    capacity_if_shadow,
    capacity_of,
    over_requested,
    unsettled_of,
    with_memory,
    with_steps,
)
from fleetctl.core.reconcile.late import late_note
from fleetctl.core.reconcile.launch_backoff import launch_backoff, start_backoff
from fleetctl.core.reconcile.limits import has_proven_itself
from fleetctl.core.reconcile.markets import (
    MarketChoice,
    next_market,
    substitutes,
)
from fleetctl.core.reconcile.replica_step import Origin, ReconcileContext, ReplicaStep, altered
from fleetctl.core.reconcile.restart import returning
from fleetctl.core.reconcile.rolling import canary_launches, drain_superseded, supersede
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import AdmitReplica, DrainReplica, LaneMemory, LaunchReplica, MarkGone, StopReplica
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.core.reconcile.headroom import Headroom, ReplicaNeed

_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)
_STOPPABLE = (ReplicaState.BOOTING, ReplicaState.WARMING)
_DRAINABLE = (*_STOPPABLE, ReplicaState.READY)
# A drain that waits for its replacement gives up waiting after this many failed starts in a row.
_FAILURES_BEFORE_DRAINING_ANYWAY = 3


def balance(lane: LaneState, context: ReconcileContext, headroom: Headroom) -> LaneDecision:
    """Return what brings the lane to its target, inside the fleet's caps."""
    lane = with_memory(lane, _count_failures(lane, context))
    lane = with_memory(lane, _count_early_deaths(lane, context))
    lane, notes = _drain_requested(lane, context, headroom)
    lane, rolling = supersede(lane, headroom, need_of=_next_need)
    undecided = lane
    lane = lane if lane.frozen else _drainexcess(lane, context)
    lane, waiting = drain_noticed(lane, context)
    lane, slow = (lane, ()) if lane.frozen else drain_slow(lane, context)
    lane, held = paced(undecided, lane, context)
    lane = drain_superseded(lane, context)
    notes += rolling + waiting + slow + held + late_note(lane, context.now)
    decided = _launch_lacking(lane, context, headroom, notes)
    if rolling and not _room_comes(lane, headroom):
        decided = replace(decided, lacks_room=True)
    return _with_canaries(lane, context, decided)


def _room_comes(lane: LaneState, headroom: Headroom) -> bool:
    return headroom.frees(_next_need(lane))


def _next_need(lane: LaneState, *, preempts: bool = False) -> ReplicaNeed:
    return need_of(lane.plan, next_market(lane, _on_demand(capacity_of(lane))).market, preempts=preempts)


def _with_canaries(lane: LaneState, context: ReconcileContext, decided: LaneDecision) -> LaneDecision:
    if lane.rolling is None or not lane.rolling.canaries_wanted:
        return decided
    # They stay when what serves now has left: the lane's on-demand baseline begins with them.
    canaries = (o for o in lane.steps if o.id in lane.rolling.canaries)
    market = next_market(lane, _on_demand(canaries)).market
    need = need_of(lane.plan, market)
    launches, headroom, notes = canary_launches(lane, decided.headroom, market=market, need=need)
    # A refused order is the lane's failure, whoever was to be ordered: its next launch of any kind waits. That replicas of
    # the revision before die early says nothing of this one.
    own = lane.rolling.canary_wait_s, f"{lane.rolling.canary_failures} failed canaries in a row"
    wait_s, what = max(own, start_backoff(lane.memory, context))
    if launches and wait_s > 0:
        # The headroom stays claimed meanwhile, as for the lane's own launches.
        text = f"{what}: the next in {format_duration(wait_s)}"
        return replace(decided, headroom=headroom, notes=(*decided.notes, ReasonCode.START_BACKOFF.because(text)))
    return replace(
        decided,
        launches=(*decided.launches, *launches),
        headroom=headroom,
        notes=decided.notes + notes,
        lacks_room=decided.lacks_room or (bool(notes) and not headroom.frees(need)),
    )


def _count_failures(lane: LaneState, context: ReconcileContext) -> LaneMemory:
    """Count a failed start where it says something new: where it was ordered after the last one had failed.

    Replicas that were on their way together and fail together have one cause, and are one failure in a row. What an
    earlier record of the fleet had ordered says nothing of this one.
    """
    before = forget_earlier(lane.memory, generation=context.generation)
    since = [instant for instant in (before.last_failure, context.changed_at) if instant is not None]
    own = [o for o in unsettled_of(lane) if lane.rolling is None or o.id not in lane.rolling.canaries]
    failed = [o for o in own if o.failed_start and all(o.replica.record.requested_at >= at for at in since)]
    if failed or lane.refused:
        memory = replace(
            before,
            failures=before.failures + 1,
            last_failure=context.now,
            failed_generation=context.generation,
            refused=lane.refused,
        )
        return note_fault(
            memory,
            failed,
            generation=context.generation,
            has_served=memory.served_as == launch_digest(lane.spec, lane.plan),
        )
    if any(isinstance(o.action, AdmitReplica) for o in own):
        return replace(
            before,
            failures=0,
            last_failure=None,
            refused="",
            engine_fault=None,
            served_as=launch_digest(lane.spec, lane.plan),
        )
    return before


def _count_early_deaths(lane: LaneState, context: ReconcileContext) -> LaneMemory:
    """Count early deaths in a row: each of a replica that was ordered after the one before; many at once are one.

    It ends with a replica ordered since that proves itself; becoming ready is not enough.
    """
    since = lane.memory.last_early_death
    if any(_is_early_death(o, context) for o in _requested_since(unsettled_of(lane), since)):
        return replace(lane.memory, early_deaths=lane.memory.early_deaths + 1, last_early_death=context.now)
    if lane.memory.early_deaths and any(
        o.state is ReplicaState.READY and has_proven_itself(o.replica.record, context.now)
        for o in _requested_since(lane.steps, since)
    ):
        return replace(lane.memory, early_deaths=0, last_early_death=None)
    return lane.memory


def _requested_since(steps: Iterable[ReplicaStep], since: datetime | None) -> list[ReplicaStep]:
    return [o for o in steps if since is None or o.replica.record.requested_at >= since]


def _is_early_death(step: ReplicaStep, context: ReconcileContext) -> bool:
    """Whether a replica has died, or ceased to work, soon after it was ready, and nobody had announced its end."""
    replica = step.replica
    died = isinstance(step.action, MarkGone) and replica.record.state not in _LEAVING
    is_death = died or step.is_convicted
    was_ready = replica.record.ready_at is not None
    return is_death and was_ready and notice_of(replica) is None and not has_proven_itself(replica.record, context.now)


def _drain_requested(
    lane: LaneState, context: ReconcileContext, headroom: Headroom
) -> tuple[LaneState, tuple[Reason, ...]]:
    """Drain what a person asked to drain; the lane's last one in rotation waits for its replacement."""
    awaiting = [o for o in unsettled_of(lane) if _awaits_drain(o)]
    if not awaiting:
        return lane, ()
    leaving = [o for o in awaiting if o.state is o.replica.record.state is ReplicaState.READY]
    serving = [o for o in leaving if o.id not in context.surging]
    held, held_notes = held_by_surge(lane, [o for o in leaving if o.id in context.surging])
    others = sum(o.state is ReplicaState.READY and not _awaits_drain(o) for o in lane.steps)
    waits = serving[:1] if serving and not others and _replacement_may_come(lane, headroom) else []
    changed = [
        way_out(o, context, ReasonCode.OPERATOR, "drain asked for by a person")
        for o in awaiting
        if o not in waits and o not in held
    ]
    notes = tuple(
        ReasonCode.LAST_IN_ROTATION.because(
            f"{o.id} drains once its replacement is ready: it is the lane's last in rotation"
        )
        for o in waits
    )
    return with_steps(lane, [altered(o, origin=Origin.OPERATOR) for o in changed]), notes + held_notes


def _awaits_drain(step: ReplicaStep) -> bool:
    """Whether a person asked this one to leave and it has not begun to."""
    return step.replica.record.drain_requested and step.state in _DRAINABLE


def _replacement_may_come(lane: LaneState, headroom: Headroom) -> bool:
    if lane.target.wanted == 0 or lane.memory.failures >= _FAILURES_BEFORE_DRAINING_ANYWAY:
        return False
    coming = bool(capacity_of(lane))
    return coming or not headroom.refusal(_next_need(lane, preempts=lane.rolling is None))


def _drainexcess(lane: LaneState, context: ReconcileContext) -> LaneState:
    """Give up what is over the target; in shadow mode only what an operator has made too many is really given up."""
    over = over_requested(lane)
    order = excess(lane, at_least=over)
    if not order:
        return lane
    over = over if lane.shadow else len(order)
    changed = [
        way_out(o, context, ReasonCode.REPLICA_EXCESS, f"one too many: {lane.target.reason}{fallback_note(lane, o)}")
        for o in order
    ]
    requested = [altered(o, origin=Origin.OPERATOR) for o in changed[:over]]
    memory = replace(lane.memory, requested=max(0, lane.memory.requested - len(requested)))
    return with_steps(replace(lane, memory=memory), [*requested, *changed[len(requested) :]])


def _launch_lacking(
    lane: LaneState, context: ReconcileContext, headroom: Headroom, notes: tuple[Reason, ...]
) -> LaneDecision:
    acted, shadowed = _lacking(lane, context.now)
    launches, headroom, refusals = _plan_launches(lane, headroom, acted, shadowed)
    if not launches and not refusals:
        lane, launches, headroom = _give_back(lane, context, headroom)
    if launches and lane.blocked:
        return _decided(
            lane,
            [],
            headroom,
            (*notes, ReasonCode.LAUNCH_BLOCKED.because(f"{len(launches)} more wanted, but {lane.blocked}")),
        )
    if launches and is_final(lane.memory, generation=context.generation):
        return _decided(lane, [], headroom, (*notes, ReasonCode.START_IMPOSSIBLE.because(why_final(lane.memory))))
    wait_s, what = launch_backoff(lane, context)
    if launches and wait_s > 0:
        # The headroom stays claimed while this lane waits: another lane's launch must not take its place.
        text = f"{what}: the next in {format_duration(wait_s)}"
        text += f"; {lane.memory.engine_fault.line}" if lane.memory.engine_fault else ""
        refused = lane.memory.refused
        why = (ReasonCode.OFFERING_UNOBTAINABLE.because(refused),) if refused else ()
        return _decided(lane, [], headroom, (*notes, ReasonCode.START_BACKOFF.because(text), *why))
    is_refused = any(reason.code is ReasonCode.LAUNCH_BLOCKED for reason in refusals)
    is_capped = is_refused and not _room_comes(lane, headroom)
    decided = _decided(lane, launches, headroom, notes + refusals)
    return replace(decided, is_capped=True) if is_capped else decided


def _give_back(
    lane: LaneState, context: ReconcileContext, headroom: Headroom
) -> tuple[LaneState, list[LaunchReplica], Headroom]:
    """Return the spot replicas ordered in place of on-demand fallbacks, as far as the caps leave room for both."""
    is_held_back = bool(lane.blocked or lane.frozen) or is_final(lane.memory, generation=context.generation)
    if is_held_back or launch_backoff(lane, context)[0] > 0:
        return lane, [], headroom
    after, launches = substitutes(lane, capacity_of(lane), context)
    need = need_of(lane.plan, Market.SPOT)
    fitting: list[LaunchReplica] = []
    for launch in launches:
        if headroom.refusal(need) or headroom.is_coming(need):
            break
        fitting.append(launch)
        headroom = headroom.without(need)
    return (after if fitting else lane), fitting, headroom


def _plan_launches(
    lane: LaneState, headroom: Headroom, acted: int, shadowed: int
) -> tuple[list[LaunchReplica], Headroom, tuple[Reason, ...]]:
    """Return the launches that fit, the headroom they leave, and why there are no more."""
    launches: list[LaunchReplica] = []
    if not acted and not shadowed:
        return launches, headroom, ()
    leaving = [o.id for o in lane.steps if _is_leaving(o, is_frozen=lane.frozen is not None) or o.is_convicted]
    late = [o for o in lane.steps if o.id in lane.late and o.state.counts_as_capacity]
    left, held = headroom, 0
    have = capacity_of(lane)
    on_demand = _on_demand(have)
    # Nothing of a lane changes from one of its launches to the next, but whether its on-demand baseline is reached.
    choices: dict[bool, MarketChoice] = {}
    for number in range(acted + shadowed):
        is_below = on_demand < lane.plan.on_demand
        choice = choices.get(is_below) or choices.setdefault(is_below, next_market(lane, on_demand))
        market = choice.market
        # Nobody is preempted for a rollout: it replaces one by one where there is no room for one more.
        need = need_of(lane.plan, market, preempts=lane.rolling is None)
        refusal = left.refusal(need)
        if refusal:
            return (
                launches,
                headroom,
                (ReasonCode.LAUNCH_BLOCKED.because(f"{acted + shadowed - number} more wanted, but {refusal}"),),
            )
        if left.is_coming(need):
            held += 1
        else:
            if preemption := left.preemption_note(need):
                choice = replace(choice, reason="; ".join(filter(None, (choice.reason, preemption))))
            launches.append(_launch(lane, choice, leaving, late, have=len(have), shadow=number >= acted))
        on_demand += market is Market.ON_DEMAND
        left = left.without(need)
        # A launch that shadow mode only journals takes no headroom from one requested for another lane.
        headroom = left if number < acted else headroom
    text = f"{held} more go to the machine that is ordered, once it has a name"
    return launches, headroom, (ReasonCode.MACHINE_AWAITED.because(text),) if held else ()


def _lacking(lane: LaneState, now: datetime) -> tuple[int, int]:
    """Return how many to launch, and how many more shadow mode would only journal."""
    lacking = max(0, lane.target.wanted - len(capacity_of(lane)) - returning(lane, now))
    if not lane.shadow:
        return lacking, 0
    # A person's drain orders its replacement too.
    due = max(0, lane.requested - lane.memory.requested) + len(_unreplaced(lane))
    acted = max(0, min(lane.requested - len(capacity_if_shadow(lane)), due))
    return acted, max(0, lacking - acted - lane.arriving)


def _drained_by_operator(lane: LaneState) -> list[ReplicaStep]:
    return [o for o in unsettled_of(lane) if o.replica.record.drain_requested and o.state.is_live]


def _unreplaced(lane: LaneState) -> list[ReplicaStep]:
    return [o for o in _drained_by_operator(lane) if o.id not in lane.memory.replaced]


def _launch(
    lane: LaneState, choice: MarketChoice, leaving: list[str], late: list[ReplicaStep], *, have: int, shadow: bool
) -> LaunchReplica:
    replaces = leaving.pop(0) if leaving else ""
    there = f"{have} of {lane.target.wanted} there or coming"
    there += f", {', '.join(o.id for o in late)} late" if late else ""
    reason = f"replaces {replaces}; {there}" if replaces else f"{there}: {lane.target.reason}"
    reason += f"; {choice.reason}" if choice.reason else ""
    return LaunchReplica(
        lane=lane.spec.name,
        market=choice.market,
        replaces=replaces,
        late=tuple(sorted({o.replica.record.offering for o in late})),
        code=ReasonCode.REPLICA_REPLACED if replaces else ReasonCode.REPLICA_LACKING,
        reason=reason,
        shadow=shadow,
    )


def _decided(
    lane: LaneState, launches: list[LaunchReplica], headroom: Headroom, notes: tuple[Reason, ...]
) -> LaneDecision:
    really = sum(not launch.shadow for launch in launches)
    # While active every launch follows the order or goes beyond it, so a later switch to shadow owes none.
    made = lane.memory.requested + really if lane.shadow else lane.requested
    unreplaced = _unreplaced(lane)
    replaced = [o.id for o in _drained_by_operator(lane) if o not in unreplaced]
    replaced += [o.id for o in unreplaced[: really if lane.shadow else None]]
    memory = changed(lane.memory, requested=min(lane.requested, made), replaced=tuple(replaced))
    return LaneDecision(steps=lane.steps, launches=tuple(launches), memory=memory, headroom=headroom, notes=notes)


def _on_demand(steps: Iterable[ReplicaStep]) -> int:
    return sum([o.replica.record.market is Market.ON_DEMAND for o in steps])


def _is_leaving(step: ReplicaStep, *, is_frozen: bool) -> bool:
    """Whether this decision makes the replica leave, or its node is taken, so that a launch stands in for it."""
    if (
        _awaits_drain(step)
        or (why_slow(step) is not None and not is_frozen)
        or (serves_under_notice(step) and step.replica.record.notice_deadline is None)
    ):
        return True
    return isinstance(step.action, DrainReplica | StopReplica | MarkGone) and (
        step.replica.record.state.counts_as_capacity
    )
