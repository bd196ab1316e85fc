"""What a decision knows of one replica, and the step it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fleetctl.model.decision import (
    AnyAction,
    AssignReplica,
    MarkBooting,
    Memory,
)
from fleetctl.model.observation import ObservedReplica
from fleetctl.model.profile import ControlSpec
from fleetctl.model.replica import ReplicaState


class Origin(StrEnum):
    """Origin of a step. Shadow mode journals the controller's own steps and carries out the others."""

    FACT = "fact"  # records what has already happened
    OPERATOR = "operator"  # a person asked for it, or it follows from what a person asked for
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStep:
    """A replica's next step: its state once the actions are done, and what its lane should know."""

    replica: ObservedReplica
    state: ReplicaState
    action: AnyAction | None = None
    failed_start: bool = False  # backs off the lane's next launch
    origin: Origin = Origin.FACT

    @property
    def id(self) -> str:
        """The replica's id."""
        return self.replica.record.id

    @property
    def lane(self) -> str:
        """The lane it serves once the action is done."""
        return self.action.lane if isinstance(self.action, AssignReplica) else self.replica.record.lane

    @property
    def is_convicted(self) -> bool:
        """Whether this decision takes a serving replica out of rotation because it does not work."""
        is_taken = isinstance(self.action, MarkBooting) and self.origin is Origin.CONTROLLER
        return is_taken and self.replica.record.state is ReplicaState.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileContext:
    """What deciding a replica's step needs besides the replica."""

    now: datetime
    control: ControlSpec
    memory: Memory
    listing_ok: bool
    generation: int = 0  # of the fleet's record that is decided by
    changed_at: datetime | None = None  # when that was written; None: not known
    stop_deadline_s: float = 0.0  # the provider's, to take an order to end
    stall_limits_s: Mapping[str, float] = field(default_factory=dict)  # lane -> how long its engines may stand still
    surging: frozenset[str] = frozenset()  # replicas asked to leave that serve on until others do in their stead
    e2e_s_p99: Mapping[str, float] = field(default_factory=dict)  # lane -> of its requests lately, else planned
