"""What the nodes of a fleet share at the provider, and how far each of it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class SharedState(StrEnum):
    """How far a shared resource has come; in the two open states the provider may or may not have acted."""

    NEEDED = "needed"  # nothing was asked of the provider yet
    PREPARING = "preparing"
    PREPARED = "prepared"
    TEARING_DOWN = "tearing-down"

    @property
    def is_open(self) -> bool:
        """Whether an intent was committed and its outcome is not known."""
        return self in (SharedState.PREPARING, SharedState.TEARING_DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResource:
    """Something the nodes of a fleet share: a security group, a queue, a namespace. `token` makes it idempotent."""

    token: str
    owner: str
    fleet: str
    kind: str  # the provider's own word
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedShared:
    """A shared resource as one decision sees it."""

    resource: SharedResource
    state: SharedState
    is_needed: bool = True  # False: it was prepared once, and the provider names it no longer
    under_way: bool = False  # the provider has been asked and has not answered
    began_at: datetime | None = None  # when its open intent was first committed
    failures: int = 0  # attempts at this intent in a row, by this controller
    failed_at: datetime | None = None
    fault: str = ""  # of the last attempt
    settles_at: datetime | None = None  # an attempt that was cut off has had its effect by then, or never
