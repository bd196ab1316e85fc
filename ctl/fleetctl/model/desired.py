"""What should be: the profile, its plan, and what people have asked for since."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fleetctl.model.ladder import LadderStep
from fleetctl.model.plan import Plan
from fleetctl.model.profile import Profile


class DesiredPhase(StrEnum):
    """Whether a fleet should exist."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Values an operator set; cleared by the next `up` unless kept."""

    replicas: dict[str, int] = field(default_factory=dict)  # lane -> wanted, from `scale`
    step: dict[str, LadderStep] = field(default_factory=dict)  # lane -> pinned ladder step, from `shed`


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """A fleet's record in the store. `generation` grows with every change."""

    fleet: str
    phase: DesiredPhase
    generation: int
    profile: Profile
    plan: Plan
    overrides: Overrides = field(default_factory=Overrides)
    created_at: datetime
    changed_at: datetime
