"""Steps that have replicas leave: one of them, a node, a zone; and that take it back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.drains import NODE, ZONE, targets_of
from fleetctl.errors import NotFoundError
from fleetctl.operations import drains, replicas
from fleetctl.units import format_count

if TYPE_CHECKING:
    from fleetctl.model.runbook import Json
    from fleetctl.model.runbook_steps import DrainStep, UndrainStep
    from fleetctl.runbooks.context import StepContext

_LOOK_S = 1.0


def drain(context: StepContext, wanted: DrainStep) -> dict[str, Json]:
    """Drain a replica, or all on a node or in a zone, which is cordoned; and wait until they are gone."""
    if wanted.zone is not None:
        return _drain_place(context, wanted, f"{ZONE}/{wanted.zone}")
    if wanted.node is not None:
        return _drain_place(context, wanted, f"{NODE}/{wanted.node}")
    return _drain_replica(context, wanted, wanted.replica or "")


def undrain(context: StepContext, wanted: UndrainStep) -> dict[str, Json]:
    """Take the drain of a node or a zone back."""
    target = f"{ZONE}/{wanted.zone}" if wanted.zone is not None else f"{NODE}/{wanted.node}"
    found = drains.undrain(context.site, context.fleet, target)
    return {"target": target, "was_cordoned": found.was_cordoned, "back": [r.id for r in found.replicas if r.returns]}


def _drain_place(context: StepContext, wanted: DrainStep, target: str) -> dict[str, Json]:
    """Cordon a node or a zone; a step that was cut has cordoned it already, or does so now."""
    found = drains.drain_target(
        context.site,
        context.fleet,
        target,
        reason=wanted.reason or context.origin,
        until=None if wanted.for_s is None else timedelta(seconds=wanted.for_s),
    )
    while wanted.wait and (left := _left_on(context, target)):
        awaited = f"{format_count(len(left), 'replica')} on {target} left: {', '.join(left)}"
        context.company.tell(awaited)
        context.pause(_LOOK_S, awaited=awaited)
    return {"target": target, "replicas": list(found.replicas)}


def _left_on(context: StepContext, target: str) -> list[str]:
    live = (record for record in context.site.store.replicas(context.fleet) if record.state.is_live)
    return [record.id for record in live if target in targets_of(record)]


def _drain_replica(context: StepContext, wanted: DrainStep, named: str) -> dict[str, Json]:
    """Drain a replica; one that was begun on and is gone has been drained."""
    try:
        replica = replicas.drain(context.site, context.fleet, named)
    except NotFoundError:
        if not context.was_cut:
            raise
        return {"replica": named, "state": "gone"}
    if wanted.wait:
        for seen in replicas.follow_drain(context.site, context.fleet, replica.id, timeout_s=context.left_s):
            context.company.tell(f"{seen.id}: {seen.state}")
            replica = seen
    return {"replica": replica.id, "state": replica.state.value}
