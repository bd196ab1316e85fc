"""What reconcile answers: actions, memory, when to look again, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from fleetctl.model.catalogue import Market
from fleetctl.model.overload import LadderStep


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """Is the base of the closed union below; every action carries its own reason."""

    reason: str


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
    """End a replica's node."""

    replica_id: str
    grace_s: float


class MarkGone(Action, frozen=True, kw_only=True, tag="mark-gone"):
    """Record that a replica's node was seen gone. `failed` says it was not asked to go."""

    replica_id: str
    failed: bool


class MarkBooting(Action, frozen=True, kw_only=True, tag="mark-booting"):
    """Record that a replica was healthy no longer or came back; it is out of rotation until warmed again."""

    replica_id: str


class SetStep(Action, frozen=True, kw_only=True, tag="set-step"):
    """Move a lane on the degradation ladder."""

    lane: str
    step: LadderStep


class StartGateway(Action, frozen=True, kw_only=True, tag="start-gateway"):
    """Start the gateway process; it is not answering or not there."""


class StopGateway(Action, frozen=True, kw_only=True, tag="stop-gateway"):
    """Stop the gateway: the fleet is going down and no replica is left in rotation."""


AnyAction = (
    LaunchReplica | WarmReplica | AdmitReplica | DrainReplica | StopReplica | MarkGone | MarkBooting
    | SetStep | StartGateway | StopGateway
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory:
    """What a lane's next decision must remember; instants, never tick counts."""

    wanted: int = 0
    up_since: datetime | None = None  # pressure above the scale-up line since
    down_since: datetime | None = None
    step: LadderStep = LadderStep.NORMAL
    step_since: datetime | None = None
    hot_since: datetime | None = None  # P99 over 2x its SLO since
    calm_since: datetime | None = None
    failures: int = 0  # failed starts in a row: backs off the next launch
    last_failure: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Frozen; passed in and out of reconcile, kept in the store."""

    lanes: dict[str, LaneMemory] = field(default_factory=dict)
    gateway_missing_since: datetime | None = None
    gateway_started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One answer. `reasons` says why per lane, also when nothing is done."""

    actions: tuple[AnyAction, ...]
    memory: Memory
    requeue_at: datetime
    reasons: dict[str, str] = field(default_factory=dict)


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
