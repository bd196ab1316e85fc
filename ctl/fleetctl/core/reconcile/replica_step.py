"""What a decision knows of one replica, and the step it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.model.decision import (
    AnyAction,
    AssignReplica,
    MarkBooting,
    Memory,
    StopReplica,
)
from fleetctl.model.observation import ObservedReplica
from fleetctl.model.profile import ControlSpec
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable


class Origin(StrEnum):
    """Origin of a step. Shadow mode journals the controller's own steps and carries out the others."""

    FACT = "fact"  # records what has already happened
    OPERATOR = "operator"  # a person asked for it, or it follows from what a person asked for
    CONTROLLER = "controller"


class ReplicaStep(msgspec.Struct, frozen=True, kw_only=True):
    """A replica's next step: its state once the actions are done, and what its lane should know. One is made for each at every tick.

    Nearly all replicas are *settled* at nearly every tick: they serve, and nothing is known, asked or decided that could
    end that. Whoever looks for something else looks at the others alone (`unsettled`).
    """

    replica: ObservedReplica
    state: ReplicaState
    action: AnyAction | None = None
    failed_start: bool = False  # backs off the lane's next launch
    origin: Origin = Origin.FACT
    is_settled: bool = False  # READY and to stay so: no action, notice, order of a person, fault, slowness or doubt

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
        action = self.action
        is_ended = isinstance(action, StopReplica) and action.code is ReasonCode.CRASH_LOOP
        is_taken = (isinstance(action, MarkBooting) or is_ended) and self.origin is Origin.CONTROLLER
        return is_taken and self.replica.record.state is ReplicaState.READY


def altered(step: ReplicaStep, **values: Any) -> ReplicaStep:  # noqa: ANN401  # as the step has them
    """Return the step with other values of these fields; something is decided for its replica then."""
    return msgspec.structs.replace(step, is_settled=False, **values)


def unsettled(steps: Iterable[ReplicaStep]) -> tuple[ReplicaStep, ...]:
    """Return the few of which there is more to say than that they serve, in their order."""
    return tuple([o for o in steps if not o.is_settled])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileContext:
    """What deciding a replica's step needs besides the replica."""

    now: datetime
    control: ControlSpec
    memory: Memory
    listing_ok: bool
    is_going_down: bool = False  # the whole fleet
    generation: int = 0  # of the fleet's record that is decided by
    changed_at: datetime | None = None  # when that was written; None: not known
    offerings_grown_at: datetime | None = None  # there is more to be had of something since; None: not known
    stop_deadline_s: float = 0.0  # the provider's, to take an order to end
    stall_limits_s: Mapping[str, float] = field(default_factory=dict)  # lane -> how long its engines may stand still
    restarts: Mapping[str, int] = field(default_factory=dict)  # replica -> how often people have ordered its restart
    surging: frozenset[str] = frozenset()  # replicas asked to leave that serve on until others do in their stead
    e2e_s_p99: Mapping[str, float] = field(default_factory=dict)  # lane -> of its requests lately, else planned
