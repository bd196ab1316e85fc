"""What a lane remembers of the requests that came lately."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalHistory:
    """Counts of requests, one after the other without a gap, each over the shortest window that the gateway keeps."""

    counts: tuple[int, ...] = ()  # oldest first
    until: datetime | None = None  # when the last one was taken; None: none has been
