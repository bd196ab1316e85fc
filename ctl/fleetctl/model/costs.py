"""What a fleet has cost, hour by hour; kept when the fleet is gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCost:
    """What one lane has cost, and the tokens it has served for that."""

    usd: float = 0.0
    replica_hours: float = 0.0  # from order to end
    prompt_tokens: int = 0  # of requests that are over
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedTokens:
    """What one gateway had summed up for each lane when it was last read."""

    started_at: datetime
    lanes: dict[str, tuple[int, int]] = field(default_factory=dict)  # prompt and output tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CostHour:
    """What a fleet has cost in one hour of the clock, UTC, as far as it is counted."""

    start: datetime
    counted_from: datetime  # later than the start in the hour that counting began in
    counted_until: datetime
    lanes: dict[str, LaneCost] = field(default_factory=dict)
    head_usd: float = 0.0
    counted: dict[str, CountedTokens] = field(default_factory=dict)  # by the gateway's number

    @property
    def usd(self) -> float:
        """Return what lanes and head have cost together."""
        return self.head_usd + sum(each.usd for each in self.lanes.values())

    @property
    def key(self) -> str:
        """Return its key in Collection.COSTS; keys sort as the hours do."""
        return self.start.strftime("%Y-%m-%dT%H")
