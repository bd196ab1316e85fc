"""Moves remembered instants along when the wall clock is stepped, so that what lasted a minute has lasted a minute."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from fleetctl.model.replica import Replica

T = TypeVar("T")

# Less is adjusted gradually by time daemons, or lies in the reading of two clocks one after the other.
STEP_S_MIN = 2.0


def is_step(by: timedelta) -> bool:
    """Whether the wall clock has left the steady one by so much that it was set."""
    return abs(by.total_seconds()) >= STEP_S_MIN


def shifted(value: T, by: timedelta) -> T:
    """Return a value with every instant in it moved; dataclasses, dicts and tuples are walked through."""
    if isinstance(value, datetime):
        return cast("T", value + by)
    if isinstance(value, dict):
        return cast("T", {key: shifted(each, by) for key, each in value.items()})
    if isinstance(value, tuple):
        return cast("T", tuple(shifted(each, by) for each in value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **{name: shifted(each, by) for name, each in fields.items()})
    return value


def shifted_replica(record: Replica, by: timedelta) -> Replica:
    """Return a living replica's record on the stepped clock. `created_at` names its order, and stays."""
    requested_at = record.requested_at + by
    return dataclasses.replace(shifted(record, by), created_at=record.created_at, order_instant=requested_at)
