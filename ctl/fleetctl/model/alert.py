"""Alerts on a lane: what they are called, whom they concern, and since when they are so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class AlertName(StrEnum):
    """Every alert there is."""

    FAST_BURN = "fast-burn"  # 14.4 times the error budget's rate over 1 h and 5 m
    MEDIUM_BURN = "medium-burn"  # 6 times over 6 h and 30 m
    SLOW_BURN = "slow-burn"  # more than its rate over 3 d and 6 h
    QUEUE_DEPTH = "queue-depth"  # more than 24 requests wait


class AlertSeverity(StrEnum):
    """What somebody does about an alert, the most urgent first."""

    PAGE = "page"  # at once
    TICKET = "ticket"  # within days
    WARNING = "warning"  # nothing yet: trouble may be coming


class AlertState(StrEnum):
    """How far an alert has come."""

    PENDING = "pending"  # what it is about is the case, not for long enough yet
    FIRING = "firing"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """What is remembered of an alert from one decision to the next."""

    name: AlertName
    since: datetime  # what it is about is the case since
    fired_at: datetime | None = None  # None: it is pending
    clear_since: datetime | None = None  # it is not the case any more since; None: it is

    @property
    def state(self) -> AlertState:
        """Whether it fires."""
        return AlertState.PENDING if self.fired_at is None else AlertState.FIRING


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert as it is shown."""

    name: AlertName
    severity: AlertSeverity
    state: AlertState
    since: datetime  # what it is about is the case since
    message: str  # with its figures as they are now
