"""Tells a runbook's receivers how its run ended, or that it waits for somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.notification import Delivery, Notification, RunEvent
from fleetctl.model.runbook_run import RunStatus
from fleetctl.notifications.send import is_wanted, send

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.runbook_run import RunbookRun
    from fleetctl.operations.site import Site

_EVENTS = {
    RunStatus.SUCCEEDED: RunEvent.SUCCEEDED,
    RunStatus.FAILED: RunEvent.FAILED,
    RunStatus.WAITING: RunEvent.AWAITS_APPROVAL,
}


def tell_receivers(site: Site, run: RunbookRun, *, environ: Mapping[str, str]) -> tuple[Delivery, ...]:
    """Tell everybody who is to know how a run stands, and return what became of it; nothing that fails is raised."""
    event = _EVENTS[run.status]
    notification = Notification(
        event=event,
        at=site.clock.now(),
        runbook=run.runbook.name,
        fleet=run.fleet,
        run=run.id,
        host=run.actor.host,
        summary=f"{run.label}: {run.status}" + (f": {run.reason}" if run.reason else ""),
        text="\n".join(f"{each.name}: {each.status} {each.reason}".rstrip() for each in run.steps),
        scheduled_at=run.stands_for,
    )
    wanted = [rule for rule in run.runbook.notify if is_wanted(rule, event)]
    return tuple(send(rule, notification, environ=environ, clock=site.clock) for rule in wanted)
