"""What the runbook commands print for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime

from fleetctl.config.faults import PlacedFault
from fleetctl.model.audit import Actor
from fleetctl.model.notification import Delivery
from fleetctl.model.runbook import Json, Runbook
from fleetctl.model.runbook_run import RunbookRun, RunStatus, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswer:
    """A step of a run, once it is over or waits: one line each."""

    run: str  # the run's id
    runbook: str
    fleet: str
    step: StepRecord
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """One run of a runbook on a fleet."""

    id: str
    runbook: str
    fleet: str
    parameters: Mapping[str, Json]
    stands_for: datetime  # the beginning of its period
    actor: Actor  # who began it
    status: RunStatus
    created_at: datetime
    ended_at: datetime | None
    steps: tuple[StepRecord, ...]  # in the order they were taken
    reason: str  # why it failed, or waits
    exit_code: int
    source: str  # the file it was read from
    max_cost_usd_per_hour: float | None  # --max-cost
    lives: int  # processes that have worked on it
    deliveries: tuple[Delivery, ...]  # of the notifications on its end, or on the approval it waits for

    @classmethod
    def of(cls, run: RunbookRun) -> RunAnswer:
        """Return a run with its runbook's name in the place of the runbook."""
        plain = {each.name: getattr(run, each.name) for each in fields(cls)}
        return cls(**{**plain, "runbook": run.runbook.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRunbook:
    """A runbook that can be run by its name."""

    name: str
    file: str
    description: str
    fault: str  # the first of its faults; empty: it has none
    next_run: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRunbook:
    """A runbook in full."""

    file: str
    next_run: datetime | None  # null: it has no schedule
    runbook: Runbook


@dataclass(frozen=True, slots=True, kw_only=True)
class LintAnswer:
    """What is wrong with a runbook."""

    file: str
    runbook: str  # its name; empty: it cannot be read as one
    faults: tuple[PlacedFault, ...]
