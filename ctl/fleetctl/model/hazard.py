"""What an offering has shown of how long its nodes last: kept across restarts, weighed down as it ages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingRecord:
    """The time held on one offering and what was lost there, as of an instant; both decay from then on."""

    as_of: datetime
    held_h: float = 0.0  # node-hours
    losses: float = 0.0  # nodes that were taken, announced or not
    unannounced: float = 0.0  # of these, without a notice that left time to act
    refusals: float = 0.0  # orders for which it had no stock
    lost_at: datetime | None = None  # the last of its nodes was taken, or its notice came
    refused_at: datetime | None = None
