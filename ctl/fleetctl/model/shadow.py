"""What a policy in shadow would have done, beside what the active one did."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStance:
    """Where one policy has a lane: how many replicas, on which step of the ladder, and why."""

    wanted: int
    step: LadderStep
    code: ReasonCode
    reason: str
    actions: dict[str, int] = field(default_factory=dict)  # of this decision, by name: {"launch": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowComparison:
    """Both at one instant: written down when either changes or acts."""

    at: datetime
    lane: str
    active: LaneStance
    shadow: LaneStance

    @property
    def agrees(self) -> bool:
        """Whether both want as many replicas, on the same step."""
        return (self.active.wanted, self.active.step) == (self.shadow.wanted, self.shadow.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTotals:
    """One lane's comparison summed up, decision by decision, since these two policies stand beside each other."""

    lane: str
    active_policy: str  # empty: nobody's, the fleet's mode is shadow
    shadow_policy: str
    since: datetime
    at: datetime  # of the last decision counted
    compared_s: float = 0.0
    agreed_s: float = 0.0  # of these, both wanted the same
    decisions: int = 0  # written down: either had changed, or acted
    agreed: int = 0  # of these
    active_replica_hours: float = 0.0  # wanted
    shadow_replica_hours: float = 0.0
    active_usd: float = 0.0  # of those, at the plan's prices
    shadow_usd: float = 0.0

    @property
    def agreed_share(self) -> float | None:
        """Of the time compared; None: none was."""
        return self.agreed_s / self.compared_s if self.compared_s else None
