"""What became of a node that was taken: kept for the history of zones and instance types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleetctl.model.catalogue import Market
from fleetctl.model.node import NoticeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRecord:
    """One node that was taken, announced or not."""

    at: datetime  # its notice came, or it was seen gone
    fleet: str
    replica_id: str
    lane: str
    node_id: str
    offering: str
    zone: str
    instance_type: str
    market: Market
    notice: NoticeKind | None = None  # None: it came without one
    was_hinted: bool = False  # an earlier hint had said that it was likely
    warning_s: float | None = None  # from the notice to the end that it named; None: it named none
    in_flight: int = 0  # requests on it when the notice came, or last seen before it was gone
    in_flight_at_end: int | None = None  # last seen before its end; None: it has not ended yet
    cut: int | None = None  # requests that broke off there, as the gateway has counted them; None: it has not
    lost: int | None = None  # of these, those that nobody answered in full
    continues_streams: bool = False  # what was cut goes on elsewhere
    ended_at: datetime | None = None
    replaced_at: datetime | None = None  # its lane had all the ready replicas it wanted again

    @property
    def replaced_s(self) -> float | None:
        """How long its lane was short, or had one less; None: it still is."""
        return None if self.replaced_at is None else (self.replaced_at - self.at).total_seconds()
