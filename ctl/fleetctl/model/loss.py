"""What a fleet would lose with some of its replicas, and how it would get that back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLoss:
    """One lane with and without the replicas that go."""

    lane: str
    replicas: tuple[str, ...]  # that go
    ready: int  # now
    ready_left: int  # of these, that stay
    wanted: int
    needed: int  # by the load of the last minute and the plan's throughput; 0: there is none, or no figures
    keeps_slo: bool | None  # whether those left carry that load inside the SLO, as planned; None: no figures
    in_flight: int  # requests on those that go
    in_flight_lost: (
        int  # of these, cut with no other replica to go on with them, unless they end first; 0 where those leave last
    )
    replace_s: float  # from order to ready, as measured lately, else as planned
    offerings: tuple[str, ...]  # that would carry the replacements, one each, in order
    lacking: int  # replacements that nothing would carry now
    reason: str  # why not, where some would not be carried; else where the last one would be, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLoss:
    """What goes, by lane, and what the replacements cost."""

    fleet: str
    at: datetime
    target: str  # what is to be lost: "zone/a", "node/n-1", "replica/r1", "type/l4", "market/spot"
    surges: bool  # replacements start while those that go still serve
    lanes: tuple[LaneLoss, ...]
    cost_usd_per_hour: float  # now
    surge_usd_per_hour: float  # on top of that, until those that go have ended; 0 where they end first
    after_usd_per_hour: float  # once they are replaced

    @property
    def replicas(self) -> tuple[str, ...]:
        """All that go."""
        return tuple(each for lane in self.lanes for each in lane.replicas)

    @property
    def suffices(self) -> bool:
        """Whether everything that goes can be replaced now."""
        return all(lane.lacking == 0 for lane in self.lanes)
