"""What balancing a lane stands on, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fleetctl.core.changed import changed
from fleetctl.core.disruption import notice_of
from fleetctl.core.hazard import NOTHING_LEARNED, Hazards
from fleetctl.core.reconcile.headroom import Headroom
from fleetctl.core.reconcile.replica_step import Origin, ReplicaStep, unsettled
from fleetctl.core.reconcile.slow import slow_reason
from fleetctl.core.scaling import Target
from fleetctl.model.catalogue import Offering
from fleetctl.model.decision import LaneMemory, LaunchReplica
from fleetctl.model.desired import Terms
from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import CapacitySpec, LaneSpec
from fleetctl.model.reason import Reason
from fleetctl.model.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """What may be bought, and what is known of it."""

    offerings: tuple[Offering, ...] = ()  # empty: not known; then a plan's spot offering is taken at its word
    refused: frozenset[str] = frozenset()  # Offering.keys that had no stock lately
    hazards: Hazards = NOTHING_LEARNED
    standing: tuple[Replica, ...] = ()  # the fleet's living replicas
    capacity: CapacitySpec = field(default_factory=CapacitySpec)
    cordoned: frozenset[str] = frozenset()  # zones


@dataclass(slots=True)
class KnownSteps:
    """What `capacity_of` and `unsettled_of` have found of these steps: each is asked some six times for each lane in a decision."""

    capacity_of: tuple[ReplicaStep, ...] | None = None
    apart: frozenset[str] = frozenset()
    capacity: tuple[ReplicaStep, ...] = ()
    unsettled_of: tuple[ReplicaStep, ...] | None = None
    unsettled: tuple[ReplicaStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRolling:
    """What a rollout asks of a lane whose turn it is."""

    outdated: frozenset[str]  # its replicas of another revision
    canaries: frozenset[str] = frozenset()  # those that serve beside what the lane wants
    canaries_wanted: int = 0
    canary_failures: int = 0  # in a row
    canary_wait_s: float = 0.0  # until the next one is tried
    max_surge: int = 0
    max_unavailable: int = 0
    keeps: int = 0  # outdated ones that stay until the first replacement is judged
    is_replacing: bool = False  # what is outdated leaves
    is_held: bool = False  # it would be replacing, and people or a failure hold it: nobody leaves and nobody comes


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """A lane's replicas beside what it should have. In shadow mode only what an operator requested is done."""

    spec: LaneSpec
    plan: LanePlan
    memory: LaneMemory
    target: Target
    requested: int  # replicas an operator asked for: by `scale`, else by the plan's `up`
    shadow: bool
    steps: tuple[ReplicaStep, ...]
    refused: str = ""  # why the last launch was refused before it reached the provider
    blocked: str = ""  # why no node may be ordered now
    frozen: Terms | None = None  # nothing leaves by choice, and its count stays
    boot_s: float = 0.0  # from order to ready, as measured lately, else as planned
    market: MarketView = field(default_factory=MarketView)
    late: frozenset[str] = frozenset()  # replicas on their way for so long that others are ordered in their stead
    arriving: int = 0  # replicas that shadow mode would only have moved here from other lanes
    notes: tuple[Reason, ...] = ()  # what was moved, or why it was not
    rolling: LaneRolling | None = None  # None: every replica is as it should be, or waits for its lane's turn
    superseded: frozenset[str] = frozenset()  # outdated ones that are replaced now
    may_miss: int = 0  # replicas, while they are
    known: KnownSteps = field(default_factory=KnownSteps, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDecision:
    """A lane's answer."""

    steps: tuple[ReplicaStep, ...]
    launches: tuple[LaunchReplica, ...]
    memory: LaneMemory
    headroom: Headroom
    notes: tuple[Reason, ...] = ()
    is_capped: bool = False  # the caps refused what the lane itself wanted, and what is leaving makes no room for it
    lacks_room: bool = False  # the caps refused what a rollout wanted, and what is leaving makes no room for it


def apart_ids(lane: LaneState) -> frozenset[str]:
    """Return the replicas that a rollout counts by itself: canaries, and those that are replaced now."""
    rolling = lane.rolling
    return lane.superseded if rolling is None or not rolling.canaries else lane.superseded | rolling.canaries


def capacity_of(lane: LaneState) -> tuple[ReplicaStep, ...]:
    """Return what serves or will, once everything decided is done."""
    known, apart = lane.known, apart_ids(lane)
    if known.capacity_of is not lane.steps or known.apart != apart:
        known.capacity_of, known.apart = lane.steps, apart
        known.capacity = tuple(
            [o for o in lane.steps if (o.is_settled or _is_capacity(o, lane)) and (not apart or o.id not in apart)]
        )
    return known.capacity


def _is_capacity(step: ReplicaStep, lane: LaneState) -> bool:
    return (
        _counts(step, step.state)
        and step.id not in lane.late
        and step.lane == lane.spec.name
        and notice_of(step.replica) is None
        and (lane.frozen is not None or slow_reason(step.replica) is None)
    )


def unsettled_of(lane: LaneState) -> tuple[ReplicaStep, ...]:
    """Return the lane's replicas of which there is more to say than that they serve."""
    known = lane.known
    if known.unsettled_of is not lane.steps:
        known.unsettled_of, known.unsettled = lane.steps, unsettled(lane.steps)
    return known.unsettled


def ready_in(lane: LaneState) -> int:
    """Return how many of its capacity are in rotation once everything decided is done."""
    return sum([o.is_settled or o.state is ReplicaState.READY for o in capacity_of(lane)])


def capacity_if_shadow(lane: LaneState) -> list[ReplicaStep]:
    """Return what serves or will when, as in shadow mode, the controller's own steps are not taken."""
    states = [(o, o.replica.record.state if o.origin is Origin.CONTROLLER else o.state) for o in lane.steps]
    return [o for o, state in states if _counts(o, state)]


def with_order(memory: LaneMemory, *, requested: int, is_scaled: bool, shadow: bool) -> LaneMemory:
    """Return the memory with whether an operator has asked for fewer since the lane has been in shadow mode.

    A plan that comes with the mode asks for none: who serves then was wanted by load.
    """
    fewer = memory.is_shadow and (memory.is_lowered or requested < memory.requested)
    return changed(memory, is_shadow=shadow, is_lowered=shadow and (is_scaled or fewer))


def over_requested(lane: LaneState) -> int:
    """Return how many replicas shadow mode really gives up: none of those that the controller had added by itself."""
    if not (lane.shadow and lane.memory.is_lowered):
        return 0
    return max(0, len(capacity_if_shadow(lane)) - lane.requested)


def _counts(step: ReplicaStep, state: ReplicaState) -> bool:
    """Whether a replica in this state serves or will, for all that is known.

    One that has served and is out of rotation may come back, and may not: its substitute is ordered meanwhile.
    """
    record = step.replica.record
    return state.counts_as_capacity and not record.drain_requested and not record.is_recovering_in(state)


def with_memory(lane: LaneState, memory: LaneMemory) -> LaneState:
    """Return the lane with another memory."""
    return lane if memory is lane.memory else replace(lane, memory=memory)


def with_steps(lane: LaneState, changed: list[ReplicaStep]) -> LaneState:
    """Return the lane with these steps in place of those of the same replicas."""
    if not changed:
        return lane
    by_id = {step.id: step for step in changed}
    return replace(lane, steps=tuple(by_id.get(o.id, o) for o in lane.steps))
