"""One lane as scaling and the ladder see it: who it is, how it is pressed, what it remembers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleetctl.core.pressure import LanePressure
from fleetctl.model.decision import LaneMemory
from fleetctl.model.ladder import LadderStep
from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import ControlSpec, LaneSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A lane's replicas by how far they are."""

    ready: int
    pending: int  # pending, booting, warming


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """Everything a decision on one lane stands on."""

    spec: LaneSpec
    plan: LanePlan
    control: ControlSpec
    memory: LaneMemory
    pressure: LanePressure
    counts: Counts
    now: datetime
    override: int | None = None  # replicas set by a person
    pinned: LadderStep | None = None  # ladder step set by a person
    interactive_level: float | None = None  # the worst pressure of the lanes people wait on; None: unknown

    def bounded(self, replicas: int) -> int:
        """Return the count inside the lane's own bounds."""
        return max(self.spec.replicas.min, min(self.spec.replicas.max, replicas))
