"""What is told to people elsewhere about a run of a runbook: to whom, when, and what became of telling them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class NotificationKind(StrEnum):
    """The shape of a notification, by whose it is."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"


class NotifyOn(StrEnum):
    """What a notification is sent on."""

    SUCCESS = "success"
    FAILURE = "failure"
    APPROVAL = "approval"
    ALWAYS = "always"


class RunEvent(StrEnum):
    """What happened to a run."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    AWAITS_APPROVAL = "awaits-approval"
    RESUMED = "resumed"
    MESSAGE = "message"  # of a step that tells something


class Severity(StrEnum):
    """PagerDuty's four."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRule:
    """One receiver of a runbook, and what it is told of. Secrets are references: env:NAME, file:PATH."""

    kind: NotificationKind
    reference: str  # to the URL; PagerDuty's to the routing key
    on: tuple[NotifyOn, ...] = (NotifyOn.FAILURE,)
    headers: Mapping[str, str] = field(default_factory=dict)  # a webhook's own; values are references
    severity: Severity = Severity.ERROR  # PagerDuty's, of a failure
    endpoint: str = ""  # PagerDuty's, where the account is served elsewhere (eu)

    @property
    def label(self) -> str:
        """The receiver as it is shown and recorded: no secret in it."""
        return f"{self.kind} {self.reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What is told, in no receiver's shape yet."""

    event: RunEvent
    at: datetime
    runbook: str
    fleet: str
    run: str  # the run's id
    host: str
    summary: str  # one line
    text: str = ""  # what went on, several lines; a report
    scheduled_at: datetime | None = None
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def alert_key(self) -> str:
        """What all notifications on the same trouble share, so that a later success closes what a failure opened."""
        return f"fleetctl/{self.fleet}/{self.runbook}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of telling one receiver."""

    receiver: str
    is_delivered: bool
    attempts: int = 0
    fault: str = ""  # why it was not
    is_uncertain: bool = False  # not confirmed, and yet it may have arrived
