"""One notification, as a failed run sends it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fleetctl.model.notification import Notification, RunEvent

AT = datetime(2026, 11, 23, 7, 30, 4, tzinfo=UTC)


def notification(event: RunEvent = RunEvent.FAILED, **changes: Any) -> Notification:
    values: dict[str, Any] = {
        "event": event, "at": AT, "runbook": "pre-warm", "fleet": "chat", "run": "pre-warm-20261123-0730", "host": "ops-1",
        "summary": "step scale failed: no capacity in zone a", "text": "scale  failed  no capacity\nrollback  done",
        "scheduled_at": AT.replace(second=0), "details": {"step": "scale", "exit code": "11"},
    }  # fmt: skip
    return Notification(**(values | changes))
