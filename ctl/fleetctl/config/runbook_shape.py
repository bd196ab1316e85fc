"""The runbook's YAML, key by key: what may be written, its default, and what it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, create_model

from fleetctl.config.fields import Duration, Name, Usd, checked, choice, choice_schema
from fleetctl.config.forms import PARAMETER_NAME_FORM, STEP_NAME_FORM
from fleetctl.config.notification_shape import NotificationShape
from fleetctl.config.runbook_step_shapes import ARGUMENTS
from fleetctl.config.section import ProfileSection
from fleetctl.model.runbook import MissedRun, ParameterType, Period, StepRetry
from fleetctl.schedules.cron import check_cron
from fleetctl.schedules.time_zones import zone_of

STEPS_MAX = 100
RECEIVERS_MAX = 10
_RETRY = StepRetry()

_Type = Annotated[
    ParameterType, BeforeValidator(choice(ParameterType, "a type")), WithJsonSchema(choice_schema(ParameterType))
]
_Period = Annotated[Period, BeforeValidator(choice(Period, "a period")), WithJsonSchema(choice_schema(Period))]
_Missed = Annotated[
    MissedRun, BeforeValidator(choice(MissedRun, "a way with missed runs")), WithJsonSchema(choice_schema(MissedRun))
]
_Cron = Annotated[str, AfterValidator(checked(check_cron))]
_TimeZone = Annotated[str, AfterValidator(checked(zone_of))]
_Scalar = Annotated[Any, WithJsonSchema({"type": ["string", "number", "boolean"]})]
_ParameterName = Annotated[str, Field(pattern=PARAMETER_NAME_FORM)]


class ParameterShape(ProfileSection):
    """A value that the runbook takes from whoever runs it: `--param NAME=VALUE`."""

    type: _Type = Field(default=ParameterType.STRING, description="string, int, number or bool.")
    description: str = Field(default="", description="What it is for.")
    default: _Scalar = Field(default=None, description="Its value where none is given.")
    required: bool = Field(default=False, description="Whether it must be given; it then has no default.")
    choices: list[_Scalar] = Field(default_factory=list, description="The values it may have. Unset: any of its type.")


class RetryShape(ProfileSection):
    """How often a step is tried."""

    attempts: Annotated[int, Field(ge=1, le=20)] = Field(default=_RETRY.attempts, description="How often in all.")
    backoff_s: Duration = Field(
        default=_RETRY.backoff_s,
        description="The first wait; each next one is twice as long, drawn by chance below it.",
    )
    backoff_s_max: Duration = Field(
        alias="backoff_max", default=_RETRY.backoff_s_max, description="The longest wait between two tries."
    )


class StepSection(ProfileSection):
    """The keys that every step may have beside its action."""

    name: Annotated[str, Field(pattern=STEP_NAME_FORM)] | None = Field(
        default=None, description="Its name, for steps.NAME in conditions. Unset: its action and number, scale-2."
    )
    condition: Annotated[str, Field(min_length=1, max_length=4000)] = Field(
        alias="if", default="true", description="A condition (CEL); the step is skipped where it does not hold."
    )
    timeout_s: Duration | None = Field(default=None, description="The longest it may take. Unset: 15m.")
    retry: RetryShape = Field(default_factory=RetryShape, description="How often it is tried. Unset: once.")
    continue_on_error: bool = Field(default=False, description="Whether the run goes on when it fails.")


StepShape = create_model(
    "StepShape",
    __base__=StepSection,
    __doc__="One step: the keys every step may have, and one action with its arguments.",
    **{
        action: (shape | None, Field(default=None, description=(shape.__doc__ or "").splitlines()[0]))
        for action, (shape, _) in ARGUMENTS.items()
    },
)  # type: ignore[call-overload]  # pydantic's stub wants literal fields
COMMON_KEYS = tuple(entry.alias or name for name, entry in StepSection.model_fields.items())


class RunbookShape(ProfileSection):
    """Steps on one fleet, with their conditions, limits and rollback."""

    api_version: Literal["fleetctl/v1"] = Field(alias="apiVersion", description="The language: fleetctl/v1.")
    kind: Literal["Runbook"] = Field(description="Runbook.")
    name: Name = Field(description="The runbook's name.")
    description: str = Field(default="", description="What it does, for `runbook list` and `show`.")
    fleet: Name | None = Field(
        default=None, description="The fleet it is for. Unset: the one named on the command line, or the only one."
    )
    params: dict[_ParameterName, ParameterShape] = Field(
        default_factory=dict, description="What it takes from whoever runs it; params.NAME in expressions."
    )
    schedule: _Cron | None = Field(
        default=None,
        description="When it runs by itself once `runbook install-cron` has installed it: five fields as cron(8) takes "
        "them, or @hourly, @daily, @weekly. Unset: when somebody runs it.",
    )
    time_zone: _TimeZone = Field(
        default="", description="Of the schedule and of times of day, such as Europe/Berlin. Unset: the machine's."
    )
    missed: _Missed = Field(
        default=MissedRun.SKIP,
        description="What becomes of a scheduled run whose time passed while the machine was off: skip; run-once: one "
        "run makes up for all that were missed.",
    )
    missed_within_s: Duration = Field(
        default=6 * 3600.0, description="How late a missed run is still made up for, with run-once."
    )
    notify: Annotated[list[NotificationShape], Field(max_length=RECEIVERS_MAX)] = Field(
        default_factory=list,
        description="Who is told elsewhere, and of what. A notification that fails never fails the run.",
    )
    period: _Period = Field(
        default=Period.SCHEDULE,
        description="What one run stands for; a second run of the same period has nothing to do. schedule: from one "
        "scheduled instant to the next, without a schedule the hour; none: every run stands for itself.",
    )
    timeout_s: Duration = Field(default=3600.0, description="The longest a run may take, approvals not counted.")
    max_cost_usd_per_hour: Usd | None = Field(
        default=None,
        alias="max_cost",
        description="What the fleet may cost an hour after a step; the run fails before a step that would pass it.",
    )
    steps: Annotated[list[StepShape], Field(min_length=1, max_length=STEPS_MAX)] = Field(  # type: ignore[valid-type]
        description="What is done, in this order."
    )
    on_failure: Annotated[list[StepShape], Field(max_length=STEPS_MAX)] = Field(  # type: ignore[valid-type]
        default_factory=list, description="What is done once a step has failed for good: the rollback."
    )
