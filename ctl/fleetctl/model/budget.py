"""What a lane's error budget is counted from, how fast it burns, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTotals:
    """A lane's requests since its gateway started, by whether they spend the error budget."""

    good: int = 0
    bad: int = 0  # breached, or refused
    kinds: dict[str, int] = field(default_factory=dict)  # the bad ones by BreachKind


class BudgetBucket(msgspec.Struct, frozen=True, array_like=True):
    """The requests of one stretch of time, as long as its tier's buckets are; on disk an array of six."""

    start_s: int  # since the Unix epoch, UTC, as the clock shows it
    good: int
    bad: int
    allowed: float  # requests that the objective in force let be bad
    kinds: dict[str, int]  # the bad ones by BreachKind
    shed_allowed: float = 0.0  # refusals that the shed allowance in force lets be; they are among the bad here


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTier:
    """Everything that was counted, in buckets of one width for as long back as they are kept."""

    width_s: int
    buckets: tuple[BudgetBucket, ...] = ()  # oldest first, those without a request left out


@dataclass(frozen=True, slots=True, kw_only=True)
class HourOfRequests:
    """The requests of an hour, as they are shown; ledgers kept them so before there were tiers."""

    start: datetime
    good: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCount:
    """What one of several gateways had counted when it was last read."""

    started_at: datetime
    counted: RequestTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLedger:
    """What is kept of one lane's requests over the objective's window, through restarts of controller and gateway."""

    since: datetime  # counting began
    gateway_started_at: datetime | None = None  # of the gateway `counted` is of; None: none was read yet
    counted: RequestTotals = RequestTotals()  # of that gateway, in the buckets already
    others_counted: dict[str, GatewayCount] = field(default_factory=dict)  # of gateways beyond the first, by number
    tiers: tuple[BudgetTier, ...] = ()  # the finest first; each holds all requests, the coarser the longer
    buckets: tuple[HourOfRequests, ...] = ()  # of a ledger without tiers, oldest first


class RequestCount(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's requests over a window."""

    window_s: float
    good: int = 0  # covered refusals among them
    bad: int = 0
    allowed: float = 0.0  # requests that the objective lets be bad
    covered: int = 0  # refusals that are good, as the shed allowance covers them
    refused: int = 0  # of the bad: refusals beyond it
    shed_allowed: float = 0.0  # refusals that it lets be

    @property
    def total(self) -> int:
        """Requests that count against the objective."""
        return self.good + self.bad

    @property
    def burn(self) -> float | None:
        """Return the burn rate: bad requests over those allowed; 1.0 spends just the budget. None: no request."""
        return self.bad / self.allowed if self.allowed > 0.0 else None

    @property
    def attainment(self) -> float | None:
        """Return the share of good requests. None: no request."""
        return self.good / self.total if self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget:
    """How much of a lane's error budget is left over the objective's window."""

    window_s: float
    since: datetime  # what is counted begins here: later than the window's own start while the fleet is younger
    good: int
    bad: int
    left: float | None  # share: 1 all of it, 0 none, below 0 overspent; None: no request yet


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBudget:
    """One reading of a lane's ledger, which every face, alert and decision goes by."""

    objective: float  # the share of good requests promised now
    budget: ErrorBudget
    windows: tuple[RequestCount, ...]  # those of the burn-rate rules, shortest first
    counted_s: float = 0.0  # for so long requests have been counted

    def over(self, seconds: float) -> RequestCount:
        """Return the count over the window of this length, or an empty one."""
        for window in self.windows:
            if window.window_s == seconds:
                return window
        return RequestCount(window_s=seconds)
