"""What every action of a decision has, and what those on a lane, a replica, the gateway and the fleet have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from fleetctl.model.reason import ReasonCode
from fleetctl.model.shared import SharedResource
from fleetctl.model.subject import FLEET, GATEWAY, Subject


class EntryKind(StrEnum):
    """The kind of a journal entry."""

    DECISION = "decision"
    NOTICE = "notice"  # the provider takes a node away, or warns that it may
    LIFECYCLE = "lifecycle"  # a replica or a node came a step further
    OPERATOR = "operator"
    GATEWAY = "gateway"
    BREACH = "breach"  # a lane is outside its SLO, or inside it again
    ALERT = "alert"  # one has begun to fire, or is over
    STREAM = "stream"  # its tokens leave in other chunks
    EVICTION = "eviction"  # a conversation lost its cached prefix, or streams were preempted
    ERROR = "error"


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """Base of the closed union below; every action says why, what it is about, and how the journal files it.

    `shadow` marks an action the controller decided by itself while the fleet is in shadow mode: it is journalled, not applied.
    """

    kind: ClassVar[EntryKind]
    # Among the actions of one decision: facts are recorded first, a replacement is launched before anything leaves rotation.
    order: ClassVar[int]

    code: ReasonCode
    reason: str  # the code in words, with its figures
    shadow: bool = False
    rejected: tuple[str, ...] = ()  # what else was considered, each with the figure that spoke against it

    @property
    def entry_kind(self) -> EntryKind:
        """How the journal files it."""
        return type(self).kind

    @property
    def name(self) -> str:
        """The action's name in the journal."""
        return str(type(self).__struct_config__.tag)

    @property
    def figures(self) -> dict[str, float | str]:
        """What the journal notes beside the reason."""
        return {}


class LaneAction(Action, frozen=True, kw_only=True):
    """An action on a lane."""

    kind: ClassVar[EntryKind] = EntryKind.DECISION

    lane: str

    @property
    def subject(self) -> Subject:
        """The lane."""
        return Subject.lane(self.lane)


class OneReplicaAction(Action, frozen=True, kw_only=True):
    """An action on one replica."""

    kind: ClassVar[EntryKind] = EntryKind.LIFECYCLE

    replica_id: str

    @property
    def subject(self) -> Subject:
        """The replica."""
        return Subject.replica(self.replica_id)


class GatewayAction(Action, frozen=True, kw_only=True):
    """An action on the gateway's process."""

    kind: ClassVar[EntryKind] = EntryKind.GATEWAY

    @property
    def subject(self) -> Subject:
        """The gateway."""
        return GATEWAY


class SharedResourceAction(Action, frozen=True, kw_only=True):
    """An action on something the fleet's nodes share."""

    kind: ClassVar[EntryKind] = EntryKind.LIFECYCLE

    resource: SharedResource

    @property
    def subject(self) -> Subject:
        """The fleet."""
        return FLEET

    @property
    def figures(self) -> dict[str, float | str]:
        """What it is, by the provider's word and by its token."""
        return {"resource": self.resource.kind, "token": self.resource.token}


class FleetAction(Action, frozen=True, kw_only=True):
    """An action on the whole fleet."""

    kind: ClassVar[EntryKind] = EntryKind.DECISION

    @property
    def subject(self) -> Subject:
        """The fleet."""
        return FLEET
