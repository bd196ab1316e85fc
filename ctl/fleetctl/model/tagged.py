"""What lies at a provider under a state's tags, whether or not any record knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedResource:
    """Something that carries an owner's and a fleet's tags."""

    kind: str  # the provider's own word: "instance", "head", "volume"
    id: str
    owner: str
    fleet: str
    created_at: datetime | None = None  # None: the provider does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedListing:
    """One reading of them, in the order in which they can be removed."""

    resources: tuple[TaggedResource, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)  # kind -> why it could not be listed
