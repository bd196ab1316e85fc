"""Gives lanes that lack replicas warm ones of lanes that need fewer than they have: seconds where a boot takes minutes.

The owner keeps what its measured load needs and what the lane's bounds and on-demand baseline ask for. A move is no
cheaper than the boot that would undo it, so a lane that took a replica gives none up for as long as two boots take, or as
scaling down waits if that is longer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.assignment import kind_of, reassignment_refusal
from fleetctl.core.bursts import note_lowered
from fleetctl.core.disruption import is_node_ready
from fleetctl.core.reconcile.lane_state import LaneState, capacity_of, over_requested, unsettled_of, with_steps
from fleetctl.core.reconcile.limits import since_s
from fleetctl.core.reconcile.markets import may_use_spot
from fleetctl.core.reconcile.replica_step import Origin, altered, unsettled
from fleetctl.core.transitions import transition
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import AssignReplica
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fleetctl.core.reconcile.replica_step import ReconcileContext, ReplicaStep
    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.desired import Desired
    from fleetctl.model.reason import Reason

_STAYS_BOOTS = 2.0
# A replica on its way that has this share of its boot behind it is waited for.
_NEARLY_THERE = 0.5


def reassign(lanes: Mapping[str, LaneState], desired: Desired, context: ReconcileContext) -> dict[str, LaneState]:
    """Return the lanes with what each is given by others and gives; those that people wait on are served first."""
    found = dict(lanes)
    for name in sorted(found, key=lambda each: (found[each].spec.interruptible, list(found).index(each))):
        for _ in range(_lacking(found[name], context)):
            owner, step, refusal = _choose(found, name, desired, context)
            if step is None:
                found[name] = replace(found[name], notes=(*found[name].notes, *refusal))
                break
            found[owner], found[name] = _moved(found[owner], found[name], step, context.now)
    return found


def _takes_part(lane: LaneState) -> bool:
    """Whether its count is measured need: not an operator's, and not of a lane that waits for replicas it has lost."""
    return lane.target.need is not None and (lane.memory.lost_since is None or not lane.memory.had_ready)


def _lacking(lane: LaneState, context: ReconcileContext) -> int:
    """Return how many a lane may be given: what it wants beyond what serves, is nearly there, or cannot be called back."""
    if not _takes_part(lane):
        return 0
    others = unsettled_of(lane)
    serving = sum(o.state is ReplicaState.READY for o in others if not o.replica.record.drain_requested)
    there = len(lane.steps) - len(others) + serving
    return lane.target.wanted - there - sum(_will_come(o, lane, context) for o in unsettled(capacity_of(lane)))


def _will_come(step: ReplicaStep, lane: LaneState, context: ReconcileContext) -> bool:
    if step.state in (ReplicaState.PENDING, ReplicaState.READY):
        return step.state is ReplicaState.PENDING
    return since_s(step.replica.record.requested_at, context.now) >= _NEARLY_THERE * lane.boot_s


def _choose(
    lanes: Mapping[str, LaneState], taker: str, desired: Desired, context: ReconcileContext
) -> tuple[str, ReplicaStep | None, tuple[Reason, ...]]:
    """Return the owner with most to spare and the replica it gives; or none, and what kept the last one from being given."""
    refusal: tuple[Reason, ...] = ()
    spares = {name: _spare(lane, context) for name, lane in lanes.items() if name != taker}
    for owner in sorted(spares, key=lambda name: (-spares[name], name)):
        if spares[owner] <= 0:
            break
        refused: set[tuple[object, ...]] = set()
        fitting = _in_order(lanes[owner], lanes[taker])
        for step in fitting:
            kind = kind_of(step.replica.record)
            if kind in refused:
                continue
            if not reassignment_refusal(step.replica.record, taker, desired):
                return owner, step, ()
            refused.add(kind)
        if fitting:
            why = reassignment_refusal(fitting[-1].replica.record, taker, desired)
            refusal = (ReasonCode.ASSIGNMENT_REFUSED.because(f"{owner} has one to spare, but {why}"),)
    return "", None, refusal


def _spare(lane: LaneState, context: ReconcileContext) -> int:
    """Return how many of its replicas in rotation a lane does not need."""
    if not (_takes_part(lane) and lane.spec.lends) or lane.target.need is None or _took_lately(lane, context):
        return 0
    if over_requested(lane):
        return 0  # a person made them too many, and they really go
    return len(_in_rotation(lane)) - max(lane.target.need, lane.spec.replicas.min)


def spare_of(lane: LaneState) -> int:
    """Return how many of its replicas in rotation a lane's measured need leaves; below zero: so many it lacks."""
    need = lane.target.wanted if lane.target.need is None else lane.target.need
    return len(_in_rotation(lane)) - max(need, lane.spec.replicas.min)


def spare_refusal(owner: LaneState, taker: LaneState, context: ReconcileContext) -> str:
    """Return why a lane gives none of its replicas to another, with the figures; empty: it could."""
    spare, there = spare_of(owner), len(_in_rotation(owner))
    if not (_takes_part(owner) and owner.spec.lends):
        return "it lends none" if not owner.spec.lends else "its count is not by measured need"
    if spare <= 0:
        return f"it needs {there - spare} and has {there}"
    if _took_lately(owner, context):
        return "it was given one itself lately"
    if not _takes_part(taker):
        return f"{taker.spec.name} has lost replicas, or its count is an operator's"
    return "" if _in_order(owner, taker) else "none of its replicas is of the market and state to be moved"


def _took_lately(lane: LaneState, context: ReconcileContext) -> bool:
    stays_s = max(_STAYS_BOOTS * lane.boot_s, context.control.scale_down_after_s)
    moved = (o.replica.record.assigned_at for o in lane.steps if o.state.is_live)
    return lane.arriving > 0 or any(at is not None and since_s(at, context.now) < stays_s for at in moved)


def _in_rotation(lane: LaneState) -> list[ReplicaStep]:
    ready = ReplicaState.READY  # an enum's members are slow to look up
    return [o for o in capacity_of(lane) if o.is_settled or o.state is o.replica.record.state is ready]


def _in_order(owner: LaneState, taker: LaneState) -> list[ReplicaStep]:
    """Return the replicas that the owner's baseline and the taker's market let go: of the taker's market first, the newest.

    The owner's oldest are those that the gateway keeps clear for it; the newest carry what it lends already.
    """
    serving = capacity_of(owner)
    on_demand = sum(o.replica.record.market is Market.ON_DEMAND for o in serving)
    may_leave = on_demand > min(owner.plan.on_demand, len(serving) - 1)
    fits_spot = may_use_spot(taker) and _baseline_holds(taker)
    fitting = [
        o
        for o in _in_rotation(owner)
        if _is_sound(o) and (fits_spot if o.replica.record.market is Market.SPOT else may_leave)
    ]
    newest = sorted(fitting, key=lambda o: (o.replica.record.created_at, o.id), reverse=True)
    return sorted(newest, key=lambda o: (o.replica.record.market is Market.SPOT) is not fits_spot)


def _baseline_holds(lane: LaneState) -> bool:
    """Whether a lane that may use spot has its on-demand baseline."""
    return sum(o.replica.record.market is Market.ON_DEMAND for o in capacity_of(lane)) >= lane.plan.on_demand


def _is_sound(step: ReplicaStep) -> bool:
    """Whether nothing at all speaks against a replica, and nothing is decided for it."""
    seen = step.replica
    is_well = seen.healthy is not False and seen.slowness is None and not seen.consecutive_failures
    return step.action is None and is_well and seen.notice is None and is_node_ready(seen.record)


def _moved(owner: LaneState, taker: LaneState, step: ReplicaStep, now: datetime) -> tuple[LaneState, LaneState]:
    """Return both lanes after the move; shadow mode leaves the replica where it is."""
    why = (
        f"{taker.spec.name} lacks {taker.target.wanted - len(_in_rotation(taker))}, "
        f"{owner.spec.name} needs {max(owner.target.need or 0, owner.spec.replicas.min)} of its {len(_in_rotation(owner))}"
    )
    action = AssignReplica(
        replica_id=step.id,
        lane=taker.spec.name,
        from_lane=owner.spec.name,
        code=ReasonCode.LANE_REASSIGNED,
        reason=f"{why}; {step.replica.in_flight} in flight",
    )
    given = altered(step, action=action, origin=Origin.CONTROLLER)
    note = ReasonCode.LANE_REASSIGNED.because(f"{step.id} moves from {owner.spec.name} to {taker.spec.name}: {why}")
    if owner.shadow:
        owner = _wanting_less(with_steps(owner, [given]))
        taker = replace(taker, arriving=taker.arriving + 1)
    else:
        left = _wanting_less(replace(owner, steps=tuple(o for o in owner.steps if o.id != step.id)))
        owner = replace(left, memory=_memory_after(left, owner, now))
        # The rest of the decision takes it for what it will be: one that was not bought in place of spot, for one.
        record = transition(step.replica.record, action, now=now)
        given = altered(given, replica=msgspec.structs.replace(step.replica, record=record))
        taker = replace(taker, steps=(*taker.steps, given))
    return replace(owner, notes=(*owner.notes, note)), replace(taker, notes=(*taker.notes, note))


def _wanting_less(owner: LaneState) -> LaneState:
    """Return the owner, which does not want back what it has given."""
    wanted = min(owner.target.wanted, len(capacity_of(owner)))
    return replace(owner, target=replace(owner.target, wanted=wanted))


def _memory_after(left: LaneState, owner: LaneState, now: datetime) -> LaneMemory:
    """Return what the owner remembers: what it gives while it might have kept it, it may come to regret."""
    memory, wanted = owner.memory, left.target.wanted
    if wanted == owner.target.wanted:
        return memory
    return replace(memory, wanted=wanted, bursts=note_lowered(memory.bursts, now))
