"""The arguments of each action of a runbook's step, key by key.

Every field here is a key of a step; what it becomes is the noun of `model/runbook_steps` beside it in ARGUMENTS.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.fields import DURATION_PATTERN, Duration, Name, choice, choice_schema, shown
from fleetctl.config.section import ProfileSection
from fleetctl.errors import ConfigError
from fleetctl.model import runbook_steps
from fleetctl.model.ladder import LadderStep
from fleetctl.model.runbook_steps import RolloutChoice
from fleetctl.model.verdict import Compliance
from fleetctl.spelling import suggest
from fleetctl.units import parse_duration_s

_TIME_OF_DAY = re.compile(r"^([01][0-9]|2[0-3]):[0-5][0-9]$")
_STEPS = tuple(step.value for step in LadderStep)
_VERDICTS = (Compliance.KEPT.value, Compliance.MISSED.value, Compliance.UNDECIDED.value)
_AUTO, _OFF, _NONE = "auto", "off", "none"
EXPIRES_S = 12 * 3600.0  # a night: somebody looks in the morning


def _replicas(value: object) -> int | None:
    if value == _AUTO:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
        return value
    raise ValueError(f"{shown(value)} is not a number of replicas; write 4, or auto")


def _ladder_step(value: object) -> LadderStep | None:
    # PyYAML's `off` is text here: scalars are read by YAML 1.2.
    if value == _OFF:
        return None
    if isinstance(value, str) and value in _STEPS:
        return LadderStep(value)
    near = suggest(value, _STEPS) if isinstance(value, str) else ""
    raise ValueError(f"{shown(value)} is not a ladder step{near}; one of: {_OFF}, {', '.join(_STEPS)}")


def _notice(value: object) -> float:
    if value == _NONE:
        return 0.0
    if isinstance(value, str):
        try:
            return parse_duration_s(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"{shown(value)} is not a notice; write 120s, 30s or none")


def _time_of_day(value: object) -> str:
    if isinstance(value, str) and _TIME_OF_DAY.match(value):
        return value
    raise ValueError(f"{shown(value)} is not a time of day; write it with two digits each and in quotes: '07:30'")


def _verdict(value: object) -> str:
    if isinstance(value, str) and value in _VERDICTS:
        return value
    raise ValueError(f"{shown(value)} is not a verdict; one of: {', '.join(_VERDICTS)}")


def _one_of(*names: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(names)})


_Replicas = Annotated[
    int | None,
    BeforeValidator(_replicas),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 10_000}, {"const": _AUTO}]}),
]
_LadderStep = Annotated[LadderStep | None, BeforeValidator(_ladder_step), _one_of(_OFF, *_STEPS)]
_Notice = Annotated[
    float,
    BeforeValidator(_notice),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": _NONE}]}),
]
_TimeOfDay = Annotated[
    str,
    BeforeValidator(_time_of_day),
    WithJsonSchema({"type": "string", "pattern": _TIME_OF_DAY.pattern, "examples": ["07:30"]}),
]
_Verdict = Annotated[str, BeforeValidator(_verdict), _one_of(*_VERDICTS)]
_RolloutChoice = Annotated[
    RolloutChoice,
    BeforeValidator(choice(RolloutChoice, "something to do")),
    WithJsonSchema(choice_schema(RolloutChoice)),
]
_Text = Annotated[str, Field(min_length=1, max_length=2000)]
_Expression = Annotated[str, Field(min_length=1, max_length=4000)]


class UpStepShape(ProfileSection):
    """Bring the fleet up, or change it to match a profile."""

    profile: _Text = Field(description="A profile's file, relative to the runbook's, or a packaged name.")
    changes: dict[str, Any] = Field(
        default_factory=dict,
        alias="set",
        description='Keys of the profile to change, by their path: "lanes.short.replicas.max": 8.',
    )
    wait: bool = Field(default=True, description="Whether to wait until it is ready.")
    override_freeze: bool = Field(default=False, description="Whether to do it though the fleet or a lane is frozen.")
    drop_lanes: bool = Field(
        default=False, description="Whether lanes of the running fleet that the profile has not are taken down."
    )
    refresh_images: bool = Field(
        default=False,
        description="Whether images are looked up anew, as by `up --refresh-images`; what has moved is rolled out.",
    )


class DownStepShape(ProfileSection):
    """Take the fleet down and leave nothing behind."""

    wait: bool = Field(default=True, description="Whether to wait until nothing is left.")
    override_freeze: bool = Field(default=False, description="Whether to do it though the fleet or a lane is frozen.")


class RolloutStepShape(ProfileSection):
    """Hold a rollout, let it go on, put an earlier revision in force again, or wait for its end, as exit 17 where it failed.

    `up` starts a rollout, and waits for it unless it has `wait: false`.
    """

    choice: _RolloutChoice = Field(alias="do", description="pause, resume, undo or wait.")
    to: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The revision that `undo` goes back to, unset: the one before; that `wait` waits for, unset: the last asked for.",
    )
    override_freeze: bool = Field(default=False, description="Whether to undo though the fleet is frozen.")
    wait: bool = Field(default=True, description="Whether `undo` waits until it is in force and ready.")


class ScaleStepShape(ProfileSection):
    """Set a lane's replicas by hand, within the profile's bounds and caps."""

    lane: Name = Field(description="The lane.")
    replicas: _Replicas = Field(description="How many; auto: as the controller sees fit.")
    for_s: Duration | None = Field(default=None, description="Until so long after; unset: until the next up or scale.")
    override_freeze: bool = Field(default=False, description="Whether to do it though the lane is frozen.")
    force: bool = Field(default=False, description="Whether more may go at once than half of the lane, or three.")


class ShedStepShape(ProfileSection):
    """Pin a lane on a step of the degradation ladder, or let it go."""

    lane: Name = Field(description="The lane.")
    step: _LadderStep = Field(description="The ladder step; off: the controller chooses again.")
    for_s: Duration | None = Field(default=None, description="Until so long after; unset: until the next up or shed.")
    override_freeze: bool = Field(default=False, description="Whether to do it though the lane is frozen.")


class FreezeStepShape(ProfileSection):
    """Hold the fleet or a lane still: no change of the controller's own choice."""

    reason: _Text = Field(description="Why: shown to whoever is refused by it.")
    lane: Name | None = Field(default=None, description="The lane. Unset: the whole fleet.")
    for_s: Duration | None = Field(default=None, description="Until so long after; unset: until it is thawed.")


class ThawStepShape(ProfileSection):
    """End a freeze; nothing follows where there is none."""

    lane: Name | None = Field(default=None, description="The lane. Unset: the whole fleet.")


class InterruptStepShape(ProfileSection):
    """Interrupt a spot node on purpose: a drill."""

    replica: _Text = Field(description="A replica on a spot node, or the node.")
    notice_s: _Notice = Field(default=120.0, description="The warning: 120s, 30s or none.")


class DrainStepShape(ProfileSection):
    """Have a replica leave, or all on a node or in a zone, as far as others serve in their stead; no new ones start there."""

    replica: _Text | None = Field(default=None, description="A replica, or the node it lives on.")
    node: _Text | None = Field(default=None, description="A node or a machine: all on it leave, and it is cordoned.")
    zone: _Text | None = Field(default=None, description="A zone: all in it leave, and it is cordoned.")
    reason: str = Field(default="", description="Why, for a node or a zone. Unset: the run's id.")
    for_s: Duration | None = Field(
        default=None, description="How long a node or a zone stays cordoned. Unset: until it is undrained."
    )
    wait: bool = Field(default=True, description="Whether to wait until they are gone.")

    @model_validator(mode="after")
    def _names_one(self) -> DrainStepShape:
        _check_one(replica=self.replica, node=self.node, zone=self.zone)
        return self


class UndrainStepShape(ProfileSection):
    """Take the drain of a node or a zone back: what has not been stopped yet serves again, and new ones may start."""

    node: _Text | None = Field(default=None, description="The node or machine.")
    zone: _Text | None = Field(default=None, description="The zone.")

    @model_validator(mode="after")
    def _names_one(self) -> UndrainStepShape:
        _check_one(node=self.node, zone=self.zone)
        return self


def _check_one(**named: str | None) -> None:
    given = [key for key, value in named.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"names {' and '.join(given) or 'nothing'}; one of: {', '.join(named)}")


class WaitStepShape(ProfileSection):
    """Wait until all that is named is so: a duration over, a time of day, a verdict, a count, a condition."""

    for_s: Duration | None = Field(default=None, description="So long after the step began.")
    until: _Expression | None = Field(default=None, description="A condition (CEL): lanes.short.ready >= 4.")
    until_time: _TimeOfDay | None = Field(
        default=None, description="The next such time of day after the step began, in the runbook's time_zone."
    )
    verdict: _Verdict | None = Field(
        default=None, description="The verdict on a lane's SLO: kept, missed or undecided."
    )
    ready: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        default=None, description="So many replicas of the lane are ready; without a lane, of the fleet."
    )
    lane: Name | None = Field(default=None, description="The lane of `verdict` and `ready`. Unset: every lane.")
    every_s: Duration = Field(default=1.0, description="Time between two looks.")

    @model_validator(mode="after")
    def _waits_for_something(self) -> WaitStepShape:
        if all(v is None for v in (self.for_s, self.until, self.until_time, self.verdict, self.ready)):
            raise ValueError("says not what for: name for, until, until_time, verdict or ready")
        return self


class CheckStepShape(ProfileSection):
    """Fail unless the fleet serves its users inside its SLO, as `status --check` has it; or unless a condition holds."""

    that: _Expression | None = Field(
        default=None, description="A condition (CEL) to check instead; exit 5 where it does not hold."
    )
    message: str = Field(default="", description="What to say where it does not hold.")


class ApproveStepShape(ProfileSection):
    """Go on only once somebody has said yes: asked on a terminal, else by `fleetctl runbook resume RUN --approve`."""

    message: _Text = Field(description="What somebody says yes to.")
    expires_s: Duration = Field(default=EXPIRES_S, description="So long after which it counts as no.")


class ReportStepShape(ProfileSection):
    """Report how the fleet kept its SLO, as `fleetctl slo` does; `steps.NAME.result.text` is the page, in Markdown."""

    since_s: Duration | None = Field(default=None, description="Over so long. Unset: the objective's window.")
    file: str = Field(default="", description="A file to write the page to. Empty: none.")


class NotifyStepShape(ProfileSection):
    """Tell the runbook's receivers something; a notification that fails fails no run."""

    message: _Text = Field(description="What to tell them, in a line.")
    text: Annotated[str, Field(max_length=20_000)] = Field(default="", description="More of it, on several lines.")


ARGUMENTS: dict[str, tuple[type[ProfileSection], type[Any]]] = {
    "up": (UpStepShape, runbook_steps.UpStep),
    "down": (DownStepShape, runbook_steps.DownStep),
    "rollout": (RolloutStepShape, runbook_steps.RolloutStep),
    "scale": (ScaleStepShape, runbook_steps.ScaleStep),
    "shed": (ShedStepShape, runbook_steps.ShedStep),
    "freeze": (FreezeStepShape, runbook_steps.FreezeStep),
    "thaw": (ThawStepShape, runbook_steps.ThawStep),
    "drain": (DrainStepShape, runbook_steps.DrainStep),
    "undrain": (UndrainStepShape, runbook_steps.UndrainStep),
    "interrupt": (InterruptStepShape, runbook_steps.InterruptStep),
    "wait": (WaitStepShape, runbook_steps.WaitStep),
    "check": (CheckStepShape, runbook_steps.CheckStep),
    "report": (ReportStepShape, runbook_steps.ReportStep),
    "notify": (NotifyStepShape, runbook_steps.NotifyStep),
    "approve": (ApproveStepShape, runbook_steps.ApproveStep),
}
