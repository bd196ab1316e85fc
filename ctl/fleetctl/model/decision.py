"""What reconcile answers: actions, memory, when to look again, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeVar, get_args

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.model.action import (
    Action,
    EntryKind,
    FleetAction,
    LaneAction,
    OneReplicaAction,
    SharedResourceAction,
)
from fleetctl.model.alert import AlertRecord
from fleetctl.model.arrivals import ArrivalHistory
from fleetctl.model.bursts import BurstMemory
from fleetctl.model.engine_fault import EngineFault
from fleetctl.model.eviction_report import EvictionMemory, ReportEviction, SetEvictionGuard
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.gateway_process import GatewayMemory
from fleetctl.model.hazard import OfferingRecord
from fleetctl.model.ladder import LadderStep
from fleetctl.model.loop_report import ReportLoops
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.restart_action import RestartReplica
from fleetctl.model.rollout import Rollout
from fleetctl.model.stream import StreamUnit
from fleetctl.model.stream_report import ReportStreamUnit
from fleetctl.model.subject import FLEET, Subject
from fleetctl.model.verdict import BreachRecord, ReportedBreach

if TYPE_CHECKING:
    from fleetctl.model.boot import BootStep
    from fleetctl.model.catalogue import Market

T = TypeVar("T")


class PrepareShared(SharedResourceAction, frozen=True, kw_only=True, tag="prepare-shared"):
    """Write an intent, then have the provider make a shared resource; no node is ordered before."""

    order: ClassVar[int] = 25


class TeardownShared(SharedResourceAction, frozen=True, kw_only=True, tag="teardown-shared"):
    """Write an intent, then have the provider remove a shared resource; no node is left."""

    order: ClassVar[int] = 95


class AbandonShared(SharedResourceAction, frozen=True, kw_only=True, tag="abandon-shared"):
    """Leave a tombstone for a shared resource that could not be torn down for long."""

    order: ClassVar[int] = 96


class LaunchReplica(LaneAction, frozen=True, kw_only=True, tag="launch"):
    """Write an intent, then create a node for a new replica of `lane`."""

    order: ClassVar[int] = 30

    market: Market
    replaces: str = ""  # a replica id, when this stands in for one that is leaving
    may_fall_back: bool = True  # on demand where spot has none; else nothing is ordered then
    is_canary: bool = False  # by the revision that is rolled out, where the lane still has the one before
    late: tuple[str, ...] = ()  # Offering.keys where an order of the lane is late: taken only where no other is left

    @property
    def figures(self) -> dict[str, float | str]:
        """The market, and whom it replaces."""
        return {"market": self.market.value, "replaces": self.replaces}


class WarmReplica(OneReplicaAction, frozen=True, kw_only=True, tag="warm"):
    """Send a real completion; cold replicas get no traffic."""

    order: ClassVar[int] = 70
    recoveries: int = 0  # how often it was taken out of rotation: the more, the longer a completion proves it well
    version: str = ""  # that its engine says it is


class AdmitReplica(OneReplicaAction, frozen=True, kw_only=True, tag="admit"):
    """Put a warmed replica into rotation."""

    boot_steps: tuple[BootStep, ...] = ()  # of its start; empty: it has started before
    # Before the drains that it allows: a controller that is killed in between leaves one too many, and none too few.
    order: ClassVar[int] = 35


class DrainReplica(OneReplicaAction, frozen=True, kw_only=True, tag="drain"):
    """Take a replica out of rotation; its in-flight requests finish, until the deadline."""

    kind: ClassVar[EntryKind] = EntryKind.DECISION
    order: ClassVar[int] = 40

    deadline: datetime

    @property
    def entry_kind(self) -> EntryKind:
        """A notice where the provider takes the node, else a decision."""
        is_notice = self.code in (ReasonCode.SPOT_NOTICE, ReasonCode.NODE_NOTICE)
        return EntryKind.NOTICE if is_notice else EntryKind.DECISION

    @property
    def figures(self) -> dict[str, float | str]:
        """The deadline, to the second."""
        return {"deadline": self.deadline.isoformat(timespec="seconds")}


class StopReplica(OneReplicaAction, frozen=True, kw_only=True, tag="stop"):
    """End a replica's node. `fault` says what was wrong with it; empty when it did nothing wrong."""

    order: ClassVar[int] = 60

    grace_s: float
    fault: str = ""

    @property
    def figures(self) -> dict[str, float | str]:
        """The grace before it is made to end."""
        return {"grace_s": self.grace_s}


class MarkGone(OneReplicaAction, frozen=True, kw_only=True, tag="mark-gone"):
    """Record that a replica's node was seen gone. `failed` says it was not asked to go."""

    order: ClassVar[int] = 10

    failed: bool


class AssignReplica(OneReplicaAction, frozen=True, kw_only=True, tag="assign"):
    """Have a replica serve `lane` from now on: its engine runs on, what it carries finishes where it was."""

    kind: ClassVar[EntryKind] = EntryKind.DECISION
    order: ClassVar[int] = 45

    lane: str
    from_lane: str = ""  # that gives it; empty: a policy did not say

    @property
    def figures(self) -> dict[str, float | str]:
        """The lane it goes to, and the one it comes from where that was said."""
        found: dict[str, float | str] = {"to_lane": self.lane}
        return found | {"from_lane": self.from_lane} if self.from_lane else found


class UndrainReplica(OneReplicaAction, frozen=True, kw_only=True, tag="undrain"):
    """Put a replica that drains back into rotation: whoever asked for the drain has taken that back."""

    order: ClassVar[int] = 36


class MarkBooting(OneReplicaAction, frozen=True, kw_only=True, tag="mark-booting"):
    """Record that a replica was healthy no longer or came back; it is out of rotation until warmed again."""

    order: ClassVar[int] = 50


class StopOrphanedNode(Action, frozen=True, kw_only=True, tag="stop-orphaned-node"):
    """End a node that carries our tags and belongs to no living replica."""

    kind: ClassVar[EntryKind] = EntryKind.LIFECYCLE
    order: ClassVar[int] = 20

    node_id: str
    grace_s: float

    @property
    def subject(self) -> Subject:
        """The node."""
        return Subject.node(self.node_id)


class LeaveUnverified(FleetAction, frozen=True, kw_only=True, tag="leave-unverified"):
    """Leave a tombstone for a fleet that is down as far as is known: no complete listing shows that nothing is left."""

    kind: ClassVar[EntryKind] = EntryKind.LIFECYCLE
    order: ClassVar[int] = 97


class RollBack(FleetAction, frozen=True, kw_only=True, tag="roll-back"):
    """Put the stable revision back in force, in place of one whose rollout failed."""

    order: ClassVar[int] = 5

    revision: int  # that failed
    to: int

    @property
    def figures(self) -> dict[str, float | str]:
        """Both revisions."""
        return {"revision": self.revision, "to": self.to}


class ReportRollout(Action, frozen=True, kw_only=True, tag="rollout"):
    """Write how far a rollout has come."""

    kind: ClassVar[EntryKind] = EntryKind.DECISION
    order: ClassVar[int] = 6

    lane: str = ""  # empty: the whole fleet

    @property
    def subject(self) -> Subject:
        """The lane, or the fleet."""
        return Subject.lane(self.lane) if self.lane else FLEET


class SetStep(LaneAction, frozen=True, kw_only=True, tag="set-step"):
    """Move a lane on the degradation ladder."""

    order: ClassVar[int] = 90

    step: LadderStep

    @property
    def figures(self) -> dict[str, float | str]:
        """The step."""
        return {"step": self.step.value}


class ReportBreach(LaneAction, frozen=True, kw_only=True, tag="breach"):
    """Write that a lane is surely outside its SLO, or inside it again; its figures are those of what is missed by most."""

    kind: ClassVar[EntryKind] = EntryKind.BREACH
    order: ClassVar[int] = 95

    noted: dict[str, float | str]
    has_ended: bool = False

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return "breach-ended" if self.has_ended else "breach"

    @property
    def figures(self) -> dict[str, float | str]:
        """Since when, which promise, over which window and by what factor; at its end how long it lasted."""
        return self.noted


class ReportAlert(LaneAction, frozen=True, kw_only=True, tag="alert"):
    """Write that an alert on a lane has begun to fire, or that it is over."""

    kind: ClassVar[EntryKind] = EntryKind.ALERT
    order: ClassVar[int] = 96

    noted: dict[str, float | str]
    has_ended: bool = False

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return "alert-ended" if self.has_ended else "alert"

    @property
    def figures(self) -> dict[str, float | str]:
        """Which alert, how urgent, since when; at its end how long it lasted."""
        return self.noted


ReplicaAction = (
    WarmReplica
    | AdmitReplica
    | DrainReplica
    | StopReplica
    | MarkGone
    | MarkBooting
    | AssignReplica
    | UndrainReplica
    | RestartReplica
)
SharedAction = PrepareShared | TeardownShared | AbandonShared
AnyAction = (
    LaunchReplica
    | ReplicaAction
    | StopOrphanedNode
    | LeaveUnverified
    | SetStep
    | ReportBreach
    | ReportAlert
    | ReportStreamUnit
    | ReportLoops
    | ReportEviction
    | SetEvictionGuard
    | ReportRollout
    | RollBack
    | StartGateway
    | StopGateway
    | SharedAction
)
# As the journal calls them.
ACTION_NAMES = frozenset(
    (*(str(each.__struct_config__.tag) for each in get_args(AnyAction)), "breach-ended", "alert-ended")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """The state a lane's next decision needs from this one; instants, never tick counts."""

    wanted: int = 0  # replicas the lane should have
    planned: int = -1  # the plan's count when `wanted` was last set from it; -1: not yet
    requested: int = 0  # launches made towards what an operator requested; shadow mode makes no others
    is_shadow: bool = False  # the last decision was made in shadow mode
    is_lowered: bool = False  # in shadow mode since then: an operator has set the count, or requested fewer than before
    replaced: tuple[str, ...] = ()  # drained by hand, and their replacement launched
    up_since: datetime | None = None  # pressure above the scale-up line since
    bursts: BurstMemory = field(default_factory=BurstMemory)
    arrivals: ArrivalHistory = field(default_factory=ArrivalHistory)
    step: LadderStep = LadderStep.NORMAL
    stepped_at: datetime | None = None  # when `step` last changed
    pauses: int = 0  # in a row, each soon after the one before
    overloaded_since: datetime | None = None  # P99 over 2x its SLO since
    calm_since: datetime | None = None
    had_ready: int = 0  # replicas that serve when none is missing
    joined_at: datetime | None = None  # when one more than ever before last began to serve
    lost_since: datetime | None = None  # fewer serve than had, or none at all, since
    recovered_at: datetime | None = None  # when that last ended
    caught_up_at: datetime | None = None  # when nobody waited any more who had come before that
    failures: int = 0  # failed starts in a row: backs off the next launch
    last_failure: datetime | None = None
    refused: str = ""  # why the last of them was placed nowhere; empty: it was, and did not start
    failed_generation: int = 0  # of the fleet's record by which they failed; 0: none has
    early_deaths: int = 0  # in a row, soon after they were ready: from the second on they back off the next launch
    last_early_death: datetime | None = None
    engine_fault: EngineFault | None = None  # the last failed start's, until a replica becomes ready
    final_generation: int = 0  # of the fleet's record by which its replicas cannot start; 0: of none
    served_as: str = ""  # launch digest of the replica that last became ready
    breach: BreachRecord | None = None  # of its SLO, while it goes on and for a minute after
    reported: ReportedBreach | None = None  # what the journal last said of one
    alerts: tuple[AlertRecord, ...] = ()  # that are pending or fire
    looped_at: datetime | None = None  # the journal last said that answers repeat themselves
    substitute_at: datetime | None = None  # spot was last ordered in place of an on-demand fallback
    left_at: tuple[datetime, ...] = ()  # when replicas left rotation by choice, within the last minute
    unit: StreamUnit | None = None  # the tokens of a chunk, as the journal has it; None: not measured yet
    other_unit: StreamUnit | None = None  # what is measured instead, since its instant
    evictions: EvictionMemory = field(default_factory=EvictionMemory)
    is_pinned: bool = False  # `step` is an operator's
    released_at: datetime | None = None  # when an operator last let go of it


_NOTHING = LaneMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Frozen; passed in and out of reconcile, kept in the store."""

    lanes: dict[str, LaneMemory] = field(default_factory=dict)
    missing_since: dict[str, datetime] = field(default_factory=dict)  # replica id -> no longer listed since
    unhealthy_since: dict[str, datetime] = field(default_factory=dict)  # replica id -> /health fails since
    unhealthy_count: dict[str, int] = field(default_factory=dict)  # replica id -> times it was found so, and taken out
    orphaned_since: dict[str, datetime] = field(default_factory=dict)  # node id -> listed without a replica since
    offerings: dict[str, OfferingRecord] = field(default_factory=dict)  # Offering.key -> how long its nodes last
    taken: tuple[str, ...] = ()  # living replicas whose loss `offerings` counts already
    settled_since: datetime | None = None  # going down: nothing is known to be left, and no listing shows it, since
    gateway_missing_since: datetime | None = None  # no answer since; later by the time in which none could come
    gateway_started_at: datetime | None = None
    gateway_starts: int = 0  # in a row without an answer between them: backs off the next
    other_gateways: dict[str, GatewayMemory] = field(default_factory=dict)  # by number, of those beyond the first
    rollout: Rollout | None = None  # the newest; None: of a fleet from before there were any
    extra: dict[str, msgspec.Raw] = field(default_factory=dict)  # policy name -> what it keeps of its own, as JSON

    def lane(self, name: str) -> LaneMemory:
        """Return what is remembered of a lane; of one that is new nothing."""
        return self.lanes.get(name, _NOTHING)

    def kept_by(self, policy: str, kind: type[T]) -> T | None:
        """Return what a policy kept, or None the first time. Raises msgspec.ValidationError on another shape."""
        raw = self.extra.get(policy)
        return None if raw is None else decode(kind, bytes(raw))

    def keeping(self, policy: str, value: object) -> Memory:
        """Return this memory with what a policy wants to know next time; others' is untouched."""
        return replace(self, extra={**self.extra, policy: msgspec.Raw(encode(value))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One answer. `reasons` says why per lane, also when nothing is done; `inputs` are the figures it stood on."""

    actions: tuple[AnyAction, ...]
    memory: Memory
    requeue_at: datetime
    reasons: dict[Subject, tuple[Reason, ...]] = field(default_factory=dict)
    inputs: dict[str, dict[str, float | str]] = field(default_factory=dict)  # by lane
    is_down: bool = False  # phase DOWN, and nothing is left
