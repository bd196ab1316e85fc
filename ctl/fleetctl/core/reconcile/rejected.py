"""What else was considered beside an action, and the figure that spoke against it; put into words for what is done alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.need import needed_now, needed_surely
from fleetctl.core.overload import OVERLOAD_RATIO
from fleetctl.core.reconcile.reassign import spare_of, spare_refusal
from fleetctl.model.decision import AssignReplica, DrainReplica, LaunchReplica, SetStep
from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.core.lane_view import LaneView
    from fleetctl.core.overload import StepDecision
    from fleetctl.core.reconcile.lane_state import LaneState
    from fleetctl.core.reconcile.replica_step import ReconcileContext
    from fleetctl.model.decision import AnyAction

_SCALING = (ReasonCode.REPLICA_LACKING, ReasonCode.REPLICA_REPLACED)


def rejected_options(
    action: AnyAction,
    lane: str,
    views: Mapping[str, LaneView],
    states: Mapping[str, LaneState],
    ladder: StepDecision,
    context: ReconcileContext,
) -> tuple[str, ...]:
    """Return the other options of an action on a lane, with what spoke against each; none where there was no choice."""
    view, state = views[lane], states[lane]
    match action:
        case LaunchReplica(code=code) if code in _SCALING:
            return (*_fewer(view, state), *_more(view, state), *_borrowed(lane, states, context), *_ladder(view))
        case DrainReplica(code=ReasonCode.REPLICA_EXCESS):
            return (*_kept(view, state), *_fewer(view, state), *_given(lane, states))
        case AssignReplica(lane=taker, from_lane=owner):
            return (*_booted(states[taker]), *_borrowed(taker, states, context, but=owner))
        case SetStep(step=step) if not ladder.pinned:
            return tuple(_other_steps(view, step))
        case _:
            return ()


def _fewer(view: LaneView, state: LaneState) -> Iterator[str]:
    """Yield why one replica less would not do."""
    count = state.target.wanted - 1
    if state.target.wanted <= view.spec.replicas.min:
        yield f"{_replicas(count)}: the lane's minimum is {view.spec.replicas.min}"
        return
    most = max(needed_surely(view), needed_now(view), key=lambda need: need.replicas)
    if most.replicas > count:
        yield f"{_replicas(count)}: {most.why.removesuffix(',')} needs {most.replicas}"
    elif (worst := view.pressure.worst) is not None and worst.ratio > 1.0:
        yield f"{_replicas(count)}: {worst.message} with {view.counts.ready} ready"
    else:
        yield f"{_replicas(count)}: {state.target.reason}"


def _more(view: LaneView, state: LaneState) -> Iterator[str]:
    """Yield why one replica more is not wanted."""
    count = state.target.wanted + 1
    if count > view.spec.replicas.max:
        yield f"{_replicas(count)}: the lane's maximum is {view.spec.replicas.max}"
        return
    most = max(needed_surely(view), needed_now(view), key=lambda need: need.replicas)
    if most.replicas < count and most.why:
        yield f"{_replicas(count)}: {most.why.removesuffix(',')} needs {most.replicas}"


def _kept(view: LaneView, state: LaneState) -> Iterator[str]:
    """Yield why the count that was there is not kept."""
    need = needed_now(view)
    standing = view.counts.ready + view.counts.pending
    if standing > state.target.wanted:
        yield f"{_replicas(standing)}: {need.why.removesuffix(',') or 'the load'} needs {need.replicas}"


def _borrowed(lane: str, states: Mapping[str, LaneState], context: ReconcileContext, *, but: str = "") -> Iterator[str]:
    """Yield why each other lane gives no warm replica instead."""
    for name, owner in states.items():
        if name not in (lane, but):
            refusal = spare_refusal(owner, states[lane], context)
            if refusal:
                yield f"borrow from {name}: {refusal}"


def _given(lane: str, states: Mapping[str, LaneState]) -> Iterator[str]:
    """Yield why no other lane is given what a lane does not need."""
    lacking = [name for name, other in states.items() if name != lane and spare_of(other) < 0]
    if not lacking:
        yield "give it to another lane: none lacks a replica"


def _booted(taker: LaneState) -> Iterator[str]:
    price = taker.plan.offering.price_usd_per_hour
    yield f"order one: {format_duration(taker.boot_s)} from order to ready, ${price:.2f} an hour more"


def _ladder(view: LaneView) -> Iterator[str]:
    """Yield why what requests ask for is not cut instead."""
    latency = view.pressure.latency
    if view.memory.step is LadderStep.NORMAL and latency is not None and latency.ratio <= OVERLOAD_RATIO:
        yield f"a step of the ladder: {latency.message}, not over {OVERLOAD_RATIO:g}x the SLO"


def _other_steps(view: LaneView, step: LadderStep) -> Iterator[str]:
    latency, was = view.pressure.latency, view.memory.step
    if latency is not None:
        yield f"stay at {was.value}: {latency.message}"
    if step > was and step < LadderStep.BREAKER and not view.spec.interruptible:
        since = view.memory.overloaded_since
        overloaded_s = 0.0 if since is None else (view.now - since).total_seconds()
        after_s = view.control.breaker_after_s
        yield f"breaker: overloaded for {format_duration(overloaded_s)}, it comes after {format_duration(after_s)}"
    counts = view.counts
    if step > was and not view.spec.interruptible:
        boot = f"{format_duration(view.boot_s)} from order to ready"
        yield f"wait for replicas: {counts.ready} ready, {counts.pending} pending, {boot}"


def _replicas(count: int) -> str:
    return format_count(count, "replica")
