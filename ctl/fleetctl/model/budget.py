"""What a lane's error budget is counted from, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTotals:
    """A lane's requests since its gateway started, by whether they spend the error budget."""

    good: int = 0
    bad: int = 0  # breached, or refused


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetBucket:
    """The requests of one stretch of the objective's window."""

    start: datetime
    good: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLedger:
    """What is kept of one lane's requests over the objective's window, through restarts of controller and gateway."""

    since: datetime  # counting began
    gateway_started_at: datetime | None = None  # of the gateway `counted` is of; None: none was read yet
    counted: RequestTotals = RequestTotals()  # of that gateway, in the buckets already
    buckets: tuple[BudgetBucket, ...] = ()  # oldest first, those without a request left out


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget:
    """How much of a lane's error budget is left over the objective's window."""

    window_s: float
    since: datetime  # what is counted begins here: later than the window's own start while the fleet is younger
    good: int
    bad: int
    left: float | None  # share: 1 all of it, 0 none, below 0 overspent; None: no request yet
