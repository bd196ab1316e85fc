"""A runbook: what somebody would type at three in the morning, written down, with its conditions and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from fleetctl.model.notification import NotificationRule

Json: TypeAlias = Any  # null, a boolean, a number, text, a list or an object of them: no annotation can say so


class ParameterType(StrEnum):
    """What a parameter's value is."""

    STRING = "string"
    INT = "int"
    NUMBER = "number"
    BOOL = "bool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value that a runbook takes from whoever runs it."""

    name: str
    type: ParameterType = ParameterType.STRING
    description: str = ""
    default: Json = None  # None: there is none, and the parameter must be given if it is required
    required: bool = False
    choices: tuple[Json, ...] = ()  # empty: any value of the type


class Period(StrEnum):
    """The span of time that one run of a runbook stands for: a second run of the same one has nothing to do."""

    SCHEDULE = "schedule"  # from one scheduled instant to the next; without a schedule the hour
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    NONE = "none"  # every run stands for itself


class MissedRun(StrEnum):
    """What becomes of a scheduled run whose time passed while nobody could start it."""

    SKIP = "skip"
    RUN_ONCE = "run-once"  # one run makes up for all that were missed, if the last is recent enough


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetry:
    """How often a step is tried, and the waits between, which double up to a bound and are drawn by chance below it."""

    attempts: int = 1
    backoff_s: float = 5.0
    backoff_s_max: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookStep:
    """One step: an operation of the step table and its arguments, in which ${{ EXPRESSION }} stands for a value."""

    name: str
    action: str  # a key of the step table: "scale"
    arguments: Mapping[str, Json] = field(default_factory=dict)  # as written
    condition: str = ""  # CEL; empty: always
    timeout_s: float | None = None  # None: the action's own
    retry: StepRetry = field(default_factory=StepRetry)
    continue_on_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """A sequence of steps on one fleet."""

    name: str
    description: str = ""
    fleet: str = ""  # empty: named on the command line, or the only one there is
    parameters: tuple[Parameter, ...] = ()
    schedule: str = ""  # a cron expression; empty: it has none
    time_zone: str = ""  # IANA name, of the schedule and of times of day; empty: the machine's
    missed: MissedRun = MissedRun.SKIP
    missed_within_s: float = 6 * 3600.0  # how late a missed run is still made up for
    period: Period = Period.SCHEDULE
    timeout_s: float = 3600.0
    max_cost_usd_per_hour: float | None = None  # a step that would have the fleet cost more is not taken
    notify: tuple[NotificationRule, ...] = ()  # who is told how runs end
    steps: tuple[RunbookStep, ...]
    on_failure: tuple[RunbookStep, ...] = ()  # the rollback: run once a step has failed for good

    def parameter(self, name: str) -> Parameter:
        """Return the parameter called `name`. Raises KeyError."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)
