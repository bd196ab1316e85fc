"""The order to start a replica's engine anew on the node that it has."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # msgspec reads it at run time
from typing import ClassVar

from fleetctl.model.action import EntryKind, OneReplicaAction


class RestartReplica(OneReplicaAction, frozen=True, kw_only=True, tag="restart"):
    """Have a replica's engine started anew on the node that it has; it is warmed and admitted again as a new one is."""

    kind: ClassVar[EntryKind] = EntryKind.DECISION
    order: ClassVar[int] = 55

    by_operator: bool  # a person asked for it
    orders: int = 0  # of people's orders to restart this replica, so many are followed then
    started_before: datetime  # an engine that was started later is left at it
