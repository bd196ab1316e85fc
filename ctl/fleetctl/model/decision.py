"""What reconcile answers: actions, memory, when to look again, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from fleetctl.model.catalogue import Market
from fleetctl.model.ladder import LadderStep


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """Base of the closed union below; every action carries its own reason.

    `shadow` marks an action the controller decided by itself while the fleet is in shadow mode: it is journalled, not applied.
    """

    reason: str
    shadow: bool = False


class LaunchReplica(Action, frozen=True, kw_only=True, tag="launch"):
    """Write an intent, then create a node for a new replica of `lane`."""

    lane: str
    market: Market
    replaces: str = ""  # a replica id, when this stands in for one that is leaving


class WarmReplica(Action, frozen=True, kw_only=True, tag="warm"):
    """Send a real completion; cold replicas get no traffic."""

    replica_id: str


class AdmitReplica(Action, frozen=True, kw_only=True, tag="admit"):
    """Put a warmed replica into rotation."""

    replica_id: str


class DrainReplica(Action, frozen=True, kw_only=True, tag="drain"):
    """Take a replica out of rotation; its in-flight requests finish, until the deadline."""

    replica_id: str
    deadline: datetime


class StopReplica(Action, frozen=True, kw_only=True, tag="stop"):
    """End a replica's node. `fault` says what was wrong with it; empty when it did nothing wrong."""

    replica_id: str
    grace_s: float
    fault: str = ""


class MarkGone(Action, frozen=True, kw_only=True, tag="mark-gone"):
    """Record that a replica's node was seen gone. `failed` says it was not asked to go."""

    replica_id: str
    failed: bool


class MarkBooting(Action, frozen=True, kw_only=True, tag="mark-booting"):
    """Record that a replica was healthy no longer or came back; it is out of rotation until warmed again."""

    replica_id: str


class StopOrphanedNode(Action, frozen=True, kw_only=True, tag="stop-orphaned-node"):
    """End a node that carries our tags and belongs to no living replica."""

    node_id: str
    grace_s: float


class SetStep(Action, frozen=True, kw_only=True, tag="set-step"):
    """Move a lane on the degradation ladder."""

    lane: str
    step: LadderStep


class StartGateway(Action, frozen=True, kw_only=True, tag="start-gateway"):
    """Start the gateway process; it is not answering or not there."""


class StopGateway(Action, frozen=True, kw_only=True, tag="stop-gateway"):
    """Stop the gateway: the fleet is down and no replica is left, or it lives and does not answer."""


ReplicaAction = WarmReplica | AdmitReplica | DrainReplica | StopReplica | MarkGone | MarkBooting
AnyAction = LaunchReplica | ReplicaAction | StopOrphanedNode | SetStep | StartGateway | StopGateway


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """What a lane's next decision must remember; instants, never tick counts."""

    wanted: int = 0  # replicas the lane should have
    planned: int = -1  # the plan's count when `wanted` was last set from it; -1: not yet
    requested: int = 0  # launches made towards what an operator requested; shadow mode makes no others
    replaced: tuple[str, ...] = ()  # drained by hand, and their replacement launched
    up_since: datetime | None = None  # pressure above the scale-up line since
    down_since: datetime | None = None
    step: LadderStep = LadderStep.NORMAL
    step_since: datetime | None = None
    overloaded_since: datetime | None = None  # P99 over 2x its SLO since
    calm_since: datetime | None = None
    failures: int = 0  # failed starts in a row: backs off the next launch
    last_failure: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Frozen; passed in and out of reconcile, kept in the store."""

    lanes: dict[str, LaneMemory] = field(default_factory=dict)
    missing_since: dict[str, datetime] = field(default_factory=dict)  # replica id -> no longer listed since
    unhealthy_since: dict[str, datetime] = field(default_factory=dict)  # replica id -> /health fails since
    unhealthy_count: dict[str, int] = field(
        default_factory=dict
    )  # replica id -> times it was taken out of rotation as unhealthy
    orphaned_since: dict[str, datetime] = field(default_factory=dict)  # node id -> listed without a replica since
    gateway_missing_since: datetime | None = None  # it does not answer since
    gateway_started_at: datetime | None = None
    gateway_starts: int = 0  # in a row without an answer between them: backs off the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One answer. `reasons` says why per lane, also when nothing is done; `inputs` are the figures it stood on."""

    actions: tuple[AnyAction, ...]
    memory: Memory
    requeue_at: datetime
    reasons: dict[str, str] = field(default_factory=dict)  # by lane, and "fleet", "gateway"
    inputs: dict[str, dict[str, float | str]] = field(default_factory=dict)  # by lane
    is_down: bool = False  # phase DOWN, and nothing is left


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line of the decision journal: what was done (or would be, in shadow), and on what grounds."""

    seq: int
    at: datetime
    fleet: str
    kind: str  # "decision", "notice", "lifecycle", "operator", "gateway", "error"
    subject: str  # a lane, a replica, "fleet", "gateway"
    action: str  # "launch", "drain", "set-step", ...
    reason: str
    shadow: bool = False
    ok: bool = True  # the action succeeded
    inputs: dict[str, float | str] = field(default_factory=dict)
