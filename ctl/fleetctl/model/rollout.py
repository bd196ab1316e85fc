"""A rollout: how a fleet gets from one revision of its profile and plan to the next, lane by lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from fleetctl.model.plan import Plan
from fleetctl.model.profile import OnFailure, Profile


class RolloutPhase(StrEnum):
    """How far a rollout is."""

    CANARY = "canary"  # the first new replicas of a lane serve beside the old ones, and are judged
    ROLLING = "rolling"
    PAUSED = "paused"
    ROLLING_BACK = "rolling-back"  # an earlier revision is put back in place of one that failed
    COMPLETE = "complete"
    FAILED = "failed"


class LanePhase(StrEnum):
    """How far a rollout is in one lane, in the order in which a lane passes them."""

    WAITING = "waiting"  # as it was; another lane's turn
    CANARY = "canary"
    ROLLING = "rolling"  # old replicas are replaced, as far as max_surge and max_unavailable let
    STARTING = "starting"  # a new lane: nothing is replaced
    RETIRING = "retiring"  # the profile no longer has it
    COMPLETE = "complete"


# Of a revision that was kept before it said so itself: its reason does.
NOT_RECORDED: Final = -1
_IN_PLACE: Final = " takes its place: "


def rollback_reason(revision: int, to: int, failure: str) -> str:
    """Return why a revision comes into force in place of one that failed."""
    return f"revision {revision} failed, {to}{_IN_PLACE}{failure}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What an `up`, an `undo` or a rollback put in force: a profile and its plan, numbered in a fleet from 1."""

    number: int
    profile: Profile
    plan: Plan
    at: datetime
    by: str = ""  # who asked for it; empty: the controller
    why: str = ""  # empty: an `up`
    undoes: int | None = NOT_RECORDED  # the revision that failed, in whose place the controller put this one

    @property
    def failed(self) -> int | None:
        """The revision that failed and that the controller put this one in the place of. None: it did not."""
        if self.undoes != NOT_RECORDED:
            return self.undoes
        before = self.number - 1
        return before if not self.by and self.why.startswith(f"revision {before} failed") else None

    @property
    def failure(self) -> str:
        """Why the one that it took the place of had failed; empty: none had."""
        return self.why.partition(_IN_PLACE)[2] if self.failed is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """What became of the requests of some replicas."""

    good: int = 0
    breached: dict[str, int] = field(default_factory=dict)  # by BreachKind
    failures: int = 0  # requests that they failed; the gateway may have sent them elsewhere

    @property
    def missed(self) -> int:
        """Requests outside the SLO, and those that were failed."""
        return sum(self.breached.values()) + self.failures

    @property
    def judged(self) -> int:
        """All that says something."""
        return self.good + self.missed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRollout:
    """A rollout in one lane."""

    phase: LanePhase
    digest: str = ""  # launch digest of its new replicas; empty: the profile no longer has it
    was: str = ""  # that of the revision before; empty: a new lane
    ready_max: int = 0  # new replicas ready at once so far
    baked_since: datetime | None = None  # all canaries are ready since
    before: dict[str, RequestCounts] = field(default_factory=dict)  # replica id -> at the gateway then, of the old ones
    failures: int = 0  # new replicas that failed to start or died
    failures_in_row: int = 0  # since one became ready; those that were ordered before the last one are part of it
    last_failure: datetime | None = None  # of those in a row
    is_bad: bool = False  # what its new replicas served says so
    is_in_place: bool = False  # the caps left no room for canaries: the first replacement is judged in their stead
    keeps: int = 0  # old replicas that serve on until it is judged; of a lane that is gone: of those, for new lanes to have room; 0: all
    note: str = ""  # what it waits for, or what the judge says

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase is LanePhase.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The newest rollout of a fleet; over or not."""

    revision: int  # to
    stable: int | None = None  # from: the last one that was complete; None: there is none
    lanes: dict[str, LaneRollout] = field(default_factory=dict)
    started_at: datetime
    progressed_at: datetime
    ended_at: datetime | None = None
    undoes: int | None = None  # the revision that failed, where this one takes its place by itself
    reason: str = ""  # why it failed, or why the one before did
    failed_at: datetime | None = None
    lacks_room: bool = False  # the caps leave no room for a surge, and nothing is leaving that would make some
    lacks_start_room: bool = False  # the same, for a new lane to have all that it wants
    waits: dict[str, str] = field(default_factory=dict)  # lane -> what keeps it from being replaced or started now
    rolled_back_at: datetime | None = None  # failed, and the earlier revision was asked for then

    @property
    def is_failed(self) -> bool:
        """Whether it goes no further by itself."""
        return self.failed_at is not None

    @property
    def is_over(self) -> bool:
        """Whether every lane has what the revision asks for."""
        return self.ended_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRolloutStatus:
    """A rollout in one lane, as shown."""

    lane: str
    phase: LanePhase
    updated: int  # live replicas of the new revision
    updated_ready: int
    outdated: int  # live replicas of another
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStatus:
    """A fleet's newest rollout, as shown."""

    phase: RolloutPhase
    revision: int
    stable: int | None
    lanes: tuple[LaneRolloutStatus, ...]
    started_at: datetime
    ended_at: datetime | None
    undoes: int | None = None
    reason: str = ""
    is_paused: bool = False
    held_by: tuple[str, ...] = ()  # what people hold it still by, a clause each
    on_failure: OnFailure = OnFailure.ROLLBACK

    @property
    def phase_text(self) -> str:
        """Its phase, and why where people hold it: "paused, as the fleet is frozen by alice@web1: launch"."""
        is_held = self.phase is RolloutPhase.PAUSED and self.held_by
        return f"{self.phase}, as {' and '.join(self.held_by)}" if is_held else self.phase.value
