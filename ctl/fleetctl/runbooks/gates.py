"""Steps that change nothing: wait, check, approve, notify."""

from __future__ import annotations

import socket
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.codec import to_plain
from fleetctl.errors import (
    ApprovalPendingError,
    ConfigError,
    FleetctlError,
    NotFoundError,
    SloBreachError,
    UnavailableError,
)
from fleetctl.model.notification import Notification, RunEvent
from fleetctl.notifications.send import send
from fleetctl.operations import fleets
from fleetctl.operations.service_check import check_service
from fleetctl.runbooks.context import seen_status
from fleetctl.schedules.time_zones import zone_of
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl.model.runbook import Json
    from fleetctl.model.runbook_steps import ApproveStep, CheckStep, NotifyStep, WaitStep
    from fleetctl.model.status import LaneStatus
    from fleetctl.operations.site import Site
    from fleetctl.runbooks.context import StepContext
    from fleetctl.runbooks.expressions import Expressions


def wait(context: StepContext, wanted: WaitStep) -> dict[str, Json]:
    """Wait until all that is named is so. Raises UnavailableError at the deadline."""
    while lacking := "; ".join(_lacking(context, wanted)):
        context.company.tell(f"waiting: {lacking}")
        context.pause(wanted.every_s, awaited=lacking)
    return {"waited_s": round((context.site.clock.now() - context.record.started_at).total_seconds(), 3)}


def check(context: StepContext, wanted: CheckStep) -> dict[str, Json]:
    """Return if the fleet serves inside its SLO, or a condition holds. Raises SloBreachError, UnavailableError."""
    refuse_unmet(context.site, context.fleet, wanted, context.expressions, context.values())
    return {} if wanted.that is None else {"that": wanted.that}


def refuse_unmet(
    site: Site, fleet: str, wanted: CheckStep, expressions: Expressions, values: Mapping[str, Any]
) -> None:
    """Raise what a check of the fleet as it is now does: SloBreachError, UnavailableError, NotFoundError, ConfigError."""
    if wanted.that is None:
        check_service([fleets.status(site, fleet)])
    elif not expressions.holds(wanted.that, values):
        raise SloBreachError(wanted.message or f"{wanted.that!r} does not hold")


def approve(context: StepContext, wanted: ApproveStep) -> dict[str, Json]:
    """Return once somebody has said yes. Raises ApprovalPendingError where nobody is there to ask."""
    expires_at = context.record.started_at + timedelta(seconds=wanted.expires_s)
    if context.site.clock.now() >= expires_at:
        raise UnavailableError(f"nobody approved within {format_duration(wanted.expires_s)}: {wanted.message}")
    answer = context.company.approves(wanted.message)
    if answer is None:
        raise ApprovalPendingError(
            f"{context.run.id} waits for an approval until {expires_at:%Y-%m-%d %H:%M:%S} UTC: {wanted.message}",
            expires_at=expires_at,
            hint=f"fleetctl runbook resume {context.run.id} --approve; or --reject",
        )
    if not answer:
        raise FleetctlError(f"rejected: {wanted.message}")
    return {"approved_by": context.site.actor.name}


def notify(context: StepContext, wanted: NotifyStep) -> dict[str, Json]:
    """Tell the runbook's receivers; what fails is in the result and fails nothing."""
    run, site = context.run, context.site
    notification = Notification(
        event=RunEvent.MESSAGE,
        at=site.clock.now(),
        runbook=run.runbook.name,
        fleet=run.fleet,
        run=run.id,
        host=socket.gethostname(),
        summary=wanted.message,
        text=wanted.text,
        scheduled_at=run.stands_for,
    )
    environ = context.company.environ
    deliveries = [send(rule, notification, environ=environ, clock=site.clock) for rule in run.runbook.notify]
    return {"deliveries": to_plain(deliveries)}


def wait_timeout_s(wanted: WaitStep, default_s: float) -> float:
    """Return how long a wait may take where its step does not say: beyond what it names itself."""
    day_s = 25 * 3600.0 if wanted.until_time else 0.0
    return default_s + (wanted.for_s or 0.0) + day_s


def _lacking(context: StepContext, wanted: WaitStep) -> Iterator[str]:
    """Yield what is not so yet."""
    until = _until(context, wanted)
    now = context.site.clock.now()
    if now < until:
        yield f"{format_duration((until - now).total_seconds())} left"
        return  # the fleet is looked at once the time has come
    if wanted.until is not None and (why := _why_not(context, wanted.until)):
        yield why
    if wanted.verdict is not None or wanted.ready is not None:
        yield from _lacking_of_lanes(context, wanted)


def _why_not(context: StepContext, condition: str) -> str:
    """Return why a condition does not hold; one without an answer yet, as of a figure nobody measured, does not."""
    try:
        return "" if context.expressions.holds(condition, context.values()) else f"{condition!r} does not hold"
    except ConfigError as error:
        return error.message


def _lacking_of_lanes(context: StepContext, wanted: WaitStep) -> Iterator[str]:
    seen = seen_status(context.site, context.fleet)
    if seen is None:
        yield f"there is no fleet {context.fleet!r}"
        return
    if not seen.controller_alive:
        yield "the controller does not answer"
        return
    if wanted.lane is not None and all(lane.name != wanted.lane for lane in seen.lanes):
        names = ", ".join(lane.name for lane in seen.lanes)
        raise NotFoundError(f"fleet {context.fleet!r} has no lane {wanted.lane!r}", hint=f"lanes: {names}")
    lanes = [lane for lane in seen.lanes if wanted.lane in (None, lane.name)]
    if wanted.ready is not None and (ready := sum(lane.ready for lane in lanes)) < wanted.ready:
        yield f"{format_count(ready, 'replica')} ready of {wanted.ready}"
    if wanted.verdict is not None:
        yield from _lacking_verdicts(lanes, wanted.verdict)


def _lacking_verdicts(lanes: list[LaneStatus], verdict: str) -> Iterator[str]:
    for lane in lanes:
        if lane.verdict.compliance != verdict:
            yield f"{lane.name}: verdict {lane.verdict.compliance}, not {verdict}"


def _until(context: StepContext, wanted: WaitStep) -> datetime:
    """Return the instant before which a wait is not over; counted from when the step first began, not from its resumption."""
    begun = context.record.started_at
    until = begun + timedelta(seconds=wanted.for_s or 0.0)
    if wanted.until_time is None:
        return until
    local = begun.astimezone(zone_of(context.run.runbook.time_zone))
    hour, minute = map(int, wanted.until_time.split(":"))
    at = datetime.combine(local.date(), time(hour, minute), tzinfo=local.tzinfo)
    if at < local:
        at = datetime.combine(local.date() + timedelta(days=1), time(hour, minute), tzinfo=local.tzinfo)
    return max(until, at)
