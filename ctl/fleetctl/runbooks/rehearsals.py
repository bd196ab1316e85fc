"""What an operation would refuse of a step, asked before a run: a dry run says it rather than that all would go well."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.drains import NODE, ZONE
from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.operations import drains, freezing, interrupting, overrides, replicas
from fleetctl.operations.lookup import known_fleet, known_lane

if TYPE_CHECKING:
    from fleetctl.model.runbook_steps import (
        DrainStep,
        FreezeStep,
        InterruptStep,
        ScaleStep,
        ShedStep,
        ThawStep,
        UndrainStep,
        WaitStep,
    )
    from fleetctl.operations.site import Site


def scale(site: Site, fleet: str, wanted: ScaleStep) -> None:
    """Raise what `scale` would."""
    overrides.scale(
        site, fleet, wanted.lane, wanted.replicas,
        until=_until(wanted.for_s), override_freeze=wanted.override_freeze, force=wanted.force, dry_run=True,
    )  # fmt: skip


def shed(site: Site, fleet: str, wanted: ShedStep) -> None:
    """Raise what `shed` would."""
    overrides.shed(
        site, fleet, wanted.lane, wanted.step,
        until=_until(wanted.for_s), override_freeze=wanted.override_freeze, dry_run=True,
    )  # fmt: skip


def freeze(site: Site, fleet: str, wanted: FreezeStep) -> None:
    """Raise what `freeze` would."""
    lane = wanted.lane or WHOLE_FLEET
    freezing.freeze(site, fleet, reason=wanted.reason, until=_until(wanted.for_s), lane=lane, dry_run=True)


def thaw(site: Site, fleet: str, wanted: ThawStep) -> None:
    """Raise what `thaw` would."""
    freezing.thaw(site, fleet, lane=wanted.lane or WHOLE_FLEET, dry_run=True)


def drain(site: Site, fleet: str, wanted: DrainStep) -> None:
    """Raise what `drain` would."""
    if wanted.zone is not None:
        drains.drain_zone(site, fleet, wanted.zone, dry_run=True)
    elif wanted.node is not None:
        drains.drain_node(site, fleet, wanted.node, dry_run=True)
    else:
        replicas.drain(site, fleet, wanted.replica or "", dry_run=True)


def undrain(site: Site, fleet: str, wanted: UndrainStep) -> None:
    """Raise what `undrain` would."""
    target = f"{ZONE}/{wanted.zone}" if wanted.zone is not None else f"{NODE}/{wanted.node}"
    drains.undrain(site, fleet, target, dry_run=True)


def interrupt(site: Site, fleet: str, wanted: InterruptStep) -> None:
    """Raise what `interrupt` would."""
    interrupting.interrupt(site, fleet, wanted.replica, notice_s=wanted.notice_s, dry_run=True)


def wait(site: Site, fleet: str, wanted: WaitStep) -> None:
    """Raise NotFoundError for a lane that the fleet has not; how long it takes only the run will know."""
    if wanted.lane is not None:
        known_lane(known_fleet(site, fleet), wanted.lane)


def _until(for_s: float | None) -> timedelta | None:
    return None if for_s is None else timedelta(seconds=for_s)
