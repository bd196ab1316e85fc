"""What happened when a runbook was run: the record that a run is resumed from, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fleetctl.model.audit import Actor
from fleetctl.model.notification import Delivery
from fleetctl.model.runbook import Json, Runbook, RunbookStep


class RunStatus(StrEnum):
    """How far a run came."""

    RUNNING = "running"  # or cut: its process is gone where nobody holds the fleet's runbook lock
    WAITING = "waiting"  # for somebody's approval
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"  # cut, and its period is over
    SKIPPED = "skipped"  # never begun: missed, and its runbook makes up for none so late

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self not in (RunStatus.RUNNING, RunStatus.WAITING)


class StepStatus(StrEnum):
    """How far a step of a run came."""

    STARTED = "started"  # the intent: on record before anything is done
    OK = "ok"
    SKIPPED = "skipped"  # its condition did not hold
    FAILED = "failed"
    WAITING = "waiting"
    UNCERTAIN = "uncertain"  # cut, and not done twice: it may or may not have happened


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A step of a run: its intent, and its result once there is one."""

    name: str
    action: str
    status: StepStatus
    started_at: datetime
    ended_at: datetime | None = None
    arguments: Mapping[str, Json] = field(default_factory=dict)  # every expression replaced by its value
    attempts: int = 0
    result: Mapping[str, Json] = field(default_factory=dict)
    reason: str = ""  # why it failed, was skipped, or waits
    hint: str = ""  # what to do about it
    exit_code: int = 0
    cuts: int = 0  # how often its process was gone in the middle of it
    is_rollback: bool = False  # a step of on_failure

    @property
    def is_over(self) -> bool:
        """Whether it is not taken again when its run is resumed."""
        return self.status not in (StepStatus.STARTED, StepStatus.WAITING)

    @property
    def duration_s(self) -> float:
        """Seconds from its beginning to its end; 0 before it ended."""
        return 0.0 if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunbookRun:
    """One run of a runbook on a fleet. Holds the runbook as it was: a file changed meanwhile changes no run."""

    id: str
    runbook: Runbook
    fleet: str
    parameters: Mapping[str, Json]
    stands_for: datetime  # the beginning of its period
    actor: Actor  # who began it
    status: RunStatus
    created_at: datetime
    ended_at: datetime | None = None
    steps: tuple[StepRecord, ...] = ()
    reason: str = ""
    exit_code: int = 0
    source: str = ""  # the file it was read from
    max_cost_usd_per_hour: float | None = None  # --max-cost
    expires_at: datetime | None = None  # of the approval it waits for
    approved_by: str = ""
    lives: int = 1  # processes that have worked on it
    deliveries: tuple[Delivery, ...] = ()  # of the notifications on its end, or on the approval it waits for

    @property
    def label(self) -> str:
        """Of which runbook it is, and on which fleet, where one is known: "runbook nightly on chat"."""
        return f"runbook {self.runbook.name}" + (f" on {self.fleet}" if self.fleet else "")

    @property
    def failed_step(self) -> RunbookStep | None:
        """The step whose failure ended it, or None."""
        failed = {record.name for record in self.steps if record.status is StepStatus.FAILED}
        return next((s for s in self.runbook.steps if s.name in failed and not s.continue_on_error), None)

    def step(self, name: str) -> StepRecord | None:
        """Return the record of the step called `name`, or None before it began."""
        return next((each for each in self.steps if each.name == name), None)
