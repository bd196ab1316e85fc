"""Steps on lanes and replicas: scale, shed, freeze, thaw, interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.codec import to_plain
from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.model.subject import Subject
from fleetctl.operations import freezing, interrupting, overrides
from fleetctl.views.overrides import format_override

if TYPE_CHECKING:
    from fleetctl.model.runbook import Json
    from fleetctl.model.runbook_steps import FreezeStep, InterruptStep, ScaleStep, ShedStep, ThawStep
    from fleetctl.runbooks.context import StepContext


def scale(context: StepContext, wanted: ScaleStep) -> dict[str, Json]:
    """Set a lane's replicas by hand."""
    change = overrides.scale(
        context.site, context.fleet, wanted.lane, wanted.replicas,
        until=context.rest_of(wanted.for_s), reason=context.origin, override_freeze=wanted.override_freeze,
        force=wanted.force,
    )  # fmt: skip
    return _change(change)


def shed(context: StepContext, wanted: ShedStep) -> dict[str, Json]:
    """Pin a lane on a ladder step, or let it go."""
    change = overrides.shed(
        context.site, context.fleet, wanted.lane, wanted.step,
        until=context.rest_of(wanted.for_s), reason=context.origin, override_freeze=wanted.override_freeze,
    )  # fmt: skip
    return _change(change)


def freeze(context: StepContext, wanted: FreezeStep) -> dict[str, Json]:
    """Hold the fleet or a lane still: no change of the controller's own choice."""
    lane = wanted.lane or WHOLE_FLEET
    until = context.rest_of(wanted.for_s)
    change = freezing.freeze(context.site, context.fleet, reason=wanted.reason, until=until, lane=lane)
    return {"lane": change.lane, "until": to_plain(change.after.until if change.after else None)}


def thaw(context: StepContext, wanted: ThawStep) -> dict[str, Json]:
    """End a freeze."""
    change = freezing.thaw(context.site, context.fleet, lane=wanted.lane or WHOLE_FLEET)
    return {"lane": change.lane, "was_frozen": change.before is not None}


def interrupt(context: StepContext, wanted: InterruptStep) -> dict[str, Json]:
    """Interrupt a spot node, once: the journal says whether a step that was cut has done it."""
    if context.was_cut and _was_interrupted(context, wanted.replica):
        return {"replica": wanted.replica, "notice_s": wanted.notice_s}
    replica = interrupting.interrupt(context.site, context.fleet, wanted.replica, notice_s=wanted.notice_s)
    return {"replica": replica.id, "notice_s": wanted.notice_s}


def _was_interrupted(context: StepContext, target: str) -> bool:
    known = {r.id for r in context.site.store.replicas(context.fleet) if target in (r.id, r.node_id)} or {target}
    entries = context.site.store.journal(context.fleet, subjects=tuple(Subject.replica(name) for name in known))
    return any(entry.action == "interrupt" and entry.at >= context.record.started_at for entry in entries)


def _change(change: overrides.OverrideChange) -> dict[str, Json]:
    before, after = format_override(change.before), format_override(change.after)
    return {"lane": change.lane, "before": before, "after": after}
