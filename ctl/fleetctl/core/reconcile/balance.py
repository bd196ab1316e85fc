"""Brings one lane's replicas to its target: launches what lacks, drains what is too many or asked to leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.disruption import leave_first
from fleetctl.core.reconcile.lifecycle import Outcome, Scene, drain, stop
from fleetctl.core.reconcile.limits import backoff_s, since_s
from fleetctl.core.reconcile.room import Room
from fleetctl.core.scaling import Target
from fleetctl.model.catalogue import Market
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, MarkGone, StopReplica
from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import LaneSpec, SpotPolicy
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

_STOPPABLE = (ReplicaState.BOOTING, ReplicaState.WARMING)
# A drain that waits for its replacement gives up waiting after this many failed starts in a row.
_FAILURES_BEFORE_DRAINING_ANYWAY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A lane's replicas beside what it should have. In shadow mode only what a person ordered is done."""

    spec: LaneSpec
    plan: LanePlan
    memory: LaneMemory
    target: Target
    ordered: int  # the replicas a person ordered: by `scale`, else by the plan's `up`
    shadow: bool
    outcomes: tuple[Outcome, ...]
    refused: str = ""  # why the last launch could not even be ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """A lane's answer."""

    outcomes: tuple[Outcome, ...]
    launches: tuple[LaunchReplica, ...]
    memory: LaneMemory
    room: Room
    notes: tuple[str, ...] = ()


def balance(lane: Lane, scene: Scene, room: Room) -> Balanced:
    """Return what brings the lane to its target, inside the fleet's caps."""
    lane = replace(lane, memory=_count_failures(lane, scene))
    lane, notes = _let_go(lane, scene, room)
    lane = _shed_excess(lane, scene)
    return _launch_lacking(lane, scene, room, notes)


def _count_failures(lane: Lane, scene: Scene) -> LaneMemory:
    failed = sum(outcome.failed_start for outcome in lane.outcomes) + bool(lane.refused)
    if failed:
        return replace(lane.memory, failures=lane.memory.failures + failed, last_failure=scene.now)
    if any(o.state is ReplicaState.READY and o.action is not None for o in lane.outcomes):
        return replace(lane.memory, failures=0, last_failure=None)
    return lane.memory


def _let_go(lane: Lane, scene: Scene, room: Room) -> tuple[Lane, tuple[str, ...]]:
    """Drain what a person asked to drain; the lane's last one in rotation waits for its replacement."""
    serving = [o for o in lane.outcomes if _is_asked(o) and o.state is o.replica.record.state is ReplicaState.READY]
    others = sum(o.state is ReplicaState.READY and not _is_asked(o) for o in lane.outcomes)
    waits = serving[:1] if serving and not others and _replacement_may_come(lane, room) else []
    changed = [
        _leave(o, scene, "drain asked for by a person") for o in lane.outcomes if _is_asked(o) and o not in waits
    ]
    notes = tuple(f"{o.id} drains once its replacement is ready: it is the lane's last in rotation" for o in waits)
    return _with(lane, [replace(o, own_idea=False) for o in changed]), notes


def _is_asked(outcome: Outcome) -> bool:
    """Whether a person asked this one to leave and it has not begun to."""
    return outcome.replica.record.drain_requested and outcome.state in (*_STOPPABLE, ReplicaState.READY)


def _replacement_may_come(lane: Lane, room: Room) -> bool:
    if lane.target.wanted == 0 or lane.memory.failures >= _FAILURES_BEFORE_DRAINING_ANYWAY:
        return False
    coming = bool(_capacity(lane))
    return coming or not room.refusal(price_of(lane.plan, _next_market(lane, ())))


def _shed_excess(lane: Lane, scene: Scene) -> Lane:
    """Give up what is over the target; in shadow mode only what is over the order is really given up."""
    capacity = _capacity(lane)
    over_target = len(capacity) - lane.target.wanted
    over_order = (len(_standing(lane)) - lane.ordered) if lane.shadow else over_target
    by_id = {o.id: o for o in capacity if o.state is not ReplicaState.PENDING}
    gladly = leave_first(o.replica for o in by_id.values())[: max(0, over_target, over_order)]
    changed = [_leave(by_id[r.record.id], scene, f"one too many: {lane.target.reason}") for r in gladly]
    ordered = [replace(o, own_idea=False) for o in changed[: max(0, over_order)]]
    memory = replace(lane.memory, ordered=max(0, lane.memory.ordered - len(ordered)))
    return _with(replace(lane, memory=memory), [*ordered, *changed[len(ordered) :]])


def _leave(outcome: Outcome, scene: Scene, why: str) -> Outcome:
    """Return the way out: a drain for what has served, the end for what has not."""
    replica = outcome.replica
    if replica.record.state is ReplicaState.READY:
        return drain(replica, scene, f"{why}; {replica.in_flight} in flight")
    return stop(replica, f"{why}; it serves nobody")


def _launch_lacking(lane: Lane, scene: Scene, room: Room, notes: tuple[str, ...]) -> Balanced:
    real, ideas = _lacking(lane)
    launches, room, refusals = _order(lane, room, real, ideas)
    wait_s = backoff_s(lane.memory.failures) - since_s(lane.memory.last_failure, scene.now)
    if launches and lane.memory.failures and wait_s > 0:
        # The room stays claimed while this lane waits: another lane's launch must not take its place.
        note = f"{lane.memory.failures} failed starts in a row: the next in {format_duration(wait_s)}"
        why = f"; {lane.refused}" if lane.refused else ""
        return _balanced(lane, [], room, (*notes, note + why))
    return _balanced(lane, launches, room, notes + refusals)


def _order(lane: Lane, room: Room, real: int, ideas: int) -> tuple[list[LaunchReplica], Room, tuple[str, ...]]:
    """Return the launches that fit, what room they leave, and why there are no more."""
    launches: list[LaunchReplica] = []
    leaving = [o.id for o in lane.outcomes if _is_leaving(o)]
    left = room
    for number in range(real + ideas):
        market = _next_market(lane, launches)
        price = price_of(lane.plan, market)
        refusal = left.refusal(price)
        if refusal:
            return launches, room, (f"{real + ideas - number} more wanted, but {refusal}",)
        launches.append(_launch(lane, market, leaving, shadow=number >= real))
        left = left.without(price)
        # What shadow mode only thinks of takes no room from what a person ordered for another lane.
        room = left if number < real else room
    return launches, room, ()


def _lacking(lane: Lane) -> tuple[int, int]:
    """Return how many to launch, and how many more shadow mode would only think of."""
    lacking = max(0, lane.target.wanted - len(_capacity(lane)))
    if not lane.shadow:
        return lacking, 0
    # A person's drain orders its replacement too.
    owed = max(0, lane.ordered - lane.memory.ordered) + len(_unreplaced(lane))
    real = max(0, min(lane.ordered - len(_standing(lane)), owed))
    return real, max(0, lacking - real)


def _drained_by_hand(lane: Lane) -> list[Outcome]:
    return [o for o in lane.outcomes if o.replica.record.drain_requested and o.state.is_live]


def _unreplaced(lane: Lane) -> list[Outcome]:
    return [o for o in _drained_by_hand(lane) if o.id not in lane.memory.replaced]


def _launch(lane: Lane, market: Market, leaving: list[str], *, shadow: bool) -> LaunchReplica:
    replaces = leaving.pop(0) if leaving else ""
    have = f"{len(_capacity(lane))} of {lane.target.wanted} there or coming"
    reason = f"replaces {replaces}; {have}" if replaces else f"{have}: {lane.target.reason}"
    return LaunchReplica(
        lane=lane.spec.name,
        market=market,
        replaces=replaces,
        reason=reason,
        shadow=shadow,
    )


def _balanced(lane: Lane, launches: list[LaunchReplica], room: Room, notes: tuple[str, ...]) -> Balanced:
    really = sum(not launch.shadow for launch in launches)
    # While active every launch follows the order or goes beyond it, so a later switch to shadow owes none.
    made = lane.memory.ordered + really if lane.shadow else lane.ordered
    unreplaced = _unreplaced(lane)
    replaced = [o.id for o in _drained_by_hand(lane) if o not in unreplaced]
    replaced += [o.id for o in unreplaced[: really if lane.shadow else None]]
    memory = replace(lane.memory, ordered=min(lane.ordered, made), replaced=tuple(replaced))
    return Balanced(outcomes=lane.outcomes, launches=tuple(launches), memory=memory, room=room, notes=notes)


def _next_market(lane: Lane, launches: Iterable[LaunchReplica]) -> Market:
    """Return the on-demand baseline first, then spot as the profile allows and the provider sells it."""
    have = [o.replica.record.market for o in _capacity(lane)] + [launch.market for launch in launches]
    if lane.plan.spot_offering is None or lane.spec.spot is SpotPolicy.NONE:
        return Market.ON_DEMAND
    return Market.ON_DEMAND if have.count(Market.ON_DEMAND) < lane.plan.on_demand else Market.SPOT


def price_of(plan: LanePlan, market: Market) -> float:
    """Return what the plan reckons with for one node of this market."""
    offering = plan.spot_offering if market is Market.SPOT and plan.spot_offering else plan.offering
    return offering.price_usd_per_hour


def _capacity(lane: Lane) -> list[Outcome]:
    """Return what serves or will, once everything decided is done."""
    return [o for o in lane.outcomes if o.state.counts_as_capacity and not o.replica.record.drain_requested]


def _standing(lane: Lane) -> list[Outcome]:
    """Return what serves or will when, as in shadow mode, the controller's own ideas are not done."""
    states = [(o, o.replica.record.state if o.own_idea else o.state) for o in lane.outcomes]
    return [o for o, state in states if state.counts_as_capacity and not o.replica.record.drain_requested]


def _is_leaving(outcome: Outcome) -> bool:
    """Whether this decision makes the replica leave, so that a launch stands in for it."""
    if _is_asked(outcome):
        return True
    return isinstance(outcome.action, DrainReplica | StopReplica | MarkGone) and (
        outcome.replica.record.state.counts_as_capacity
    )


def _with(lane: Lane, changed: list[Outcome]) -> Lane:
    by_id = {outcome.id: outcome for outcome in changed}
    return replace(lane, outcomes=tuple(by_id.get(o.id, o) for o in lane.outcomes))
