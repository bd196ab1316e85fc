"""What should be: the profile, its plan, and what people have asked for since."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from fleetctl.model.ladder import LadderStep
from fleetctl.model.plan import Plan
from fleetctl.model.profile import Profile
from fleetctl.model.rollout import Revision


class DesiredPhase(StrEnum):
    """Whether a fleet should exist."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms on which something is set by hand: by whom, when, why, and until when it holds."""

    by: str = ""  # empty: not recorded
    since: datetime | None = None  # None: not recorded
    until: datetime | None = None  # None: until somebody ends it
    reason: str = ""
    is_duration: bool = False  # its end moves along with a clock that is set; else it is what clocks then show

    def has_ended(self, now: datetime) -> bool:
        """Whether it holds no longer."""
        return self.until is not None and self.until <= now

    @property
    def end_text(self) -> str:
        """Until when it holds and why, as the end of a sentence: " until 2026-03-02 14:00:00 UTC: launch"."""
        until = f" until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until is not None else ""
        return until + (f": {self.reason}" if self.reason else "")

    @property
    def text(self) -> str:
        """The same with who set it: " by alice@web1 until ... UTC: launch"."""
        return (f" by {self.by}" if self.by else "") + self.end_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """A node or a zone that no replica is launched in, and that those there leave."""

    terms: Terms
    is_immediate: bool = False  # its replicas leave at once; else as far as others serve in their stead


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What operators set on a running fleet. `up` clears what is set on lanes; freezes and cordons outlast it."""

    replicas: dict[str, int] = field(default_factory=dict)  # lane -> wanted, from `scale`
    replicas_terms: dict[str, Terms] = field(default_factory=dict)  # lane -> on what terms
    step: dict[str, LadderStep] = field(default_factory=dict)  # lane -> pinned ladder step, from `shed`
    step_terms: dict[str, Terms] = field(default_factory=dict)  # lane -> on what terms
    freezes: dict[str, Terms] = field(default_factory=dict)  # lane, or WHOLE_FLEET -> why it is frozen
    cordons: dict[str, Cordon] = field(default_factory=dict)  # "node/ID" or "zone/NAME"
    undrained: tuple[str, ...] = ()  # replicas whose drain, asked for earlier, was taken back
    restarts: dict[str, int] = field(default_factory=dict)  # replica -> how often people have ordered its restart
    is_rollout_paused: bool = False  # from `rollout pause`
    rollout_resumed_at: datetime | None = None  # from `rollout resume`: what had failed before is tried again

    def freeze_of(self, lane: str) -> Terms | None:
        """Return the freeze that holds a lane still: the fleet's, else its own; None: it is not frozen."""
        return self.freezes.get(WHOLE_FLEET) or self.freezes.get(lane)

    @property
    def on_lanes(self) -> Overrides:
        """What a new `up` lets go of."""
        return replace(self, freezes={}, cordons={}, undrained=(), restarts={})

    @property
    def outlasting(self) -> Overrides:
        """What a new `up` leaves in force."""
        return Overrides(freezes=self.freezes, cordons=self.cordons, undrained=self.undrained, restarts=self.restarts)


WHOLE_FLEET = "*"  # stands for the fleet among the lanes that are frozen


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
    revision: int = 0  # grows with every change of profile or plan; 0: from before revisions were kept
    # The controller's reading, never stored: what a rollout comes from, and the revision that is asked for, where one begins.
    stable: Revision | None = None
    newest: Revision | None = None
