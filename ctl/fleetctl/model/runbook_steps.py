"""The arguments of each action that a runbook's step may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleetctl.model.ladder import LadderStep
from fleetctl.model.runbook import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class UpStep:
    """Bring the fleet up, or change it to match a profile."""

    profile: str  # a file or a packaged name
    changes: Mapping[str, Json] = field(default_factory=dict)  # "lanes.short.replicas.max" -> value
    wait: bool = True
    override_freeze: bool = False
    drop_lanes: bool = False  # though a lane of the running fleet is none of the profile's
    refresh_images: bool = False  # look them up anew; what has moved is rolled out


@dataclass(frozen=True, slots=True, kw_only=True)
class DownStep:
    """Take the fleet down."""

    wait: bool = True
    override_freeze: bool = False


class RolloutChoice(StrEnum):
    """What is done about a rollout; `up` starts one and waits for it, unless it is told not to."""

    PAUSE = "pause"
    RESUME = "resume"
    UNDO = "undo"
    WAIT = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep:
    """Hold a rollout, let it go on, put an earlier revision in force again, or wait until one is."""

    choice: RolloutChoice
    to: int | None = None  # the revision; None: of `undo` the one before, of `wait` the last that was asked for
    override_freeze: bool = False
    wait: bool = True  # of `undo`: until it is in force and ready


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleStep:
    """Set a lane's replicas by hand."""

    lane: str
    replicas: int | None  # None: auto
    for_s: float | None = None
    override_freeze: bool = False
    force: bool = False  # though more go at once than the limit on disruptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedStep:
    """Pin a lane on a ladder step."""

    lane: str
    step: LadderStep | None  # None: off
    for_s: float | None = None
    override_freeze: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeStep:
    """Hold the fleet or a lane still."""

    reason: str
    lane: str | None = None  # None: the whole fleet
    for_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThawStep:
    """End a freeze."""

    lane: str | None = None  # None: the whole fleet's


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStep:
    """Have a replica leave, or all on a node or in a zone; one of the three is named."""

    replica: str | None = None
    node: str | None = None
    zone: str | None = None
    reason: str = ""
    for_s: float | None = None  # of a node's or zone's cordon
    wait: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainStep:
    """Take the drain of a node or a zone back; one of the two is named."""

    node: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptStep:
    """Interrupt a spot node on purpose."""

    replica: str
    notice_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStep:
    """Wait: for a duration, until a time of day, a verdict, a count of ready replicas, or a condition."""

    for_s: float | None = None
    until: str | None = None  # CEL
    until_time: str | None = None  # "07:30"
    verdict: str | None = None  # "kept"
    lane: str | None = None  # of `verdict` and `ready`; None: every lane
    ready: int | None = None
    every_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """Fail unless the fleet serves its users inside the SLO, and a condition holds where one is given."""

    that: str | None = None  # CEL; None: as `status --check` has it
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportStep:
    """Report how the fleet kept its SLO."""

    since_s: float | None = None  # None: the objective's window
    file: str = ""  # empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveStep:
    """Go on only once somebody has said yes."""

    message: str
    expires_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyStep:
    """Tell the runbook's receivers something."""

    message: str
    text: str = ""
