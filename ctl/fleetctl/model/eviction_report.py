"""The actions about evictions, and what a lane's next decision has to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fleetctl.model.action import EntryKind, LaneAction


class ReportEviction(LaneAction, frozen=True, kw_only=True, tag="eviction"):
    """Write that a conversation has lost its cached prefix, or that an engine has preempted streams; or how many more there were."""

    kind: ClassVar[EntryKind] = EntryKind.EVICTION
    order: ClassVar[int] = 98

    noted: dict[str, float | str]

    @property
    def figures(self) -> dict[str, float | str]:
        """What was lost, where, why, and who had filled the cache."""
        return self.noted


class SetEvictionGuard(LaneAction, frozen=True, kw_only=True, tag="eviction-guard"):
    """Leave more of a lane's KV caches free, or less again, by how often it loses what was in them."""

    order: ClassVar[int] = 91

    level: int  # of `core/eviction_guard`; 0: as planned

    @property
    def figures(self) -> dict[str, float | str]:
        """The level."""
        return {"level": self.level}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionMemory:
    """What a lane's next decision has to know of its evictions."""

    level: int = 0  # of the guard
    changed_at: datetime | None = None  # when it last changed
    calm_since: datetime | None = None  # the rate has been well below the limit since
    raised: int = 0  # times in a row, each soon after it was let go: the next calm is to last longer
    gateway_started_at: datetime | None = None  # whose `seq` the next one is
    seen: int = 0  # the last that was journalled or counted
    minute_at: datetime | None = None  # the minute that is bounded began
    named: int = 0  # journalled one by one in that minute
    unnamed: dict[str, int] | None = None  # the others of it, by cause
