"""What an operation would refuse of a step, asked before a run: a dry run says it rather than that all would go well."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.core.drains import NODE, ZONE
from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.operations import drains, freezing, interrupting, lifecycle, overrides, replicas
from fleetctl.operations.image_pins import pin_images
from fleetctl.operations.lookup import known_fleet, known_lane
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import as_brought_up
from fleetctl.runbooks import fleet_steps

if TYPE_CHECKING:
    from fleetctl.model.runbook_run import RunbookRun
    from fleetctl.model.runbook_steps import (
        DrainStep,
        FreezeStep,
        InterruptStep,
        ScaleStep,
        ShedStep,
        ThawStep,
        UndrainStep,
        UpStep,
        WaitStep,
    )
    from fleetctl.operations.site import Site


def up(site: Site, run: RunbookRun, wanted: UpStep) -> None:
    """Raise what `up` would; the cost caps of the run are the planner's of the step."""
    found = fleet_steps.profile_of(wanted, fleet=run.fleet, source=run.source)
    profile = as_brought_up(site, found.profile)
    fleet_steps.refuse_dropped_lanes(site, profile, wanted)
    plan = os_signals.run(plan_profile(site, profile, source=found.source, proves=True))
    plan = os_signals.run(pin_images(site, profile, plan, refreshes=wanted.refresh_images)).plan
    lifecycle.rehearse_up(site, profile, plan, override_freeze=wanted.override_freeze)


def scale(site: Site, run: RunbookRun, wanted: ScaleStep) -> None:
    """Raise what `scale` would."""
    overrides.scale(
        site, run.fleet, wanted.lane, wanted.replicas,
        until=_until(wanted.for_s), override_freeze=wanted.override_freeze, force=wanted.force, dry_run=True,
    )  # fmt: skip


def shed(site: Site, run: RunbookRun, wanted: ShedStep) -> None:
    """Raise what `shed` would."""
    overrides.shed(
        site, run.fleet, wanted.lane, wanted.step,
        until=_until(wanted.for_s), override_freeze=wanted.override_freeze, dry_run=True,
    )  # fmt: skip


def freeze(site: Site, run: RunbookRun, wanted: FreezeStep) -> None:
    """Raise what `freeze` would."""
    lane = wanted.lane or WHOLE_FLEET
    freezing.freeze(site, run.fleet, reason=wanted.reason, until=_until(wanted.for_s), lane=lane, dry_run=True)


def thaw(site: Site, run: RunbookRun, wanted: ThawStep) -> None:
    """Raise what `thaw` would."""
    freezing.thaw(site, run.fleet, lane=wanted.lane or WHOLE_FLEET, dry_run=True)


def drain(site: Site, run: RunbookRun, wanted: DrainStep) -> None:
    """Raise what `drain` would."""
    if wanted.zone is not None:
        drains.drain_zone(site, run.fleet, wanted.zone, dry_run=True)
    elif wanted.node is not None:
        drains.drain_node(site, run.fleet, wanted.node, dry_run=True)
    else:
        replicas.drain(site, run.fleet, wanted.replica or "", dry_run=True)


def undrain(site: Site, run: RunbookRun, wanted: UndrainStep) -> None:
    """Raise what `undrain` would."""
    target = f"{ZONE}/{wanted.zone}" if wanted.zone is not None else f"{NODE}/{wanted.node}"
    drains.undrain(site, run.fleet, target, dry_run=True)


def interrupt(site: Site, run: RunbookRun, wanted: InterruptStep) -> None:
    """Raise what `interrupt` would."""
    interrupting.interrupt(site, run.fleet, wanted.replica, notice_s=wanted.notice_s, dry_run=True)


def wait(site: Site, run: RunbookRun, wanted: WaitStep) -> None:
    """Raise NotFoundError for a lane that the fleet has not; how long it takes only the run will know."""
    if wanted.lane is not None:
        known_lane(known_fleet(site, run.fleet), wanted.lane)


def _until(for_s: float | None) -> timedelta | None:
    return None if for_s is None else timedelta(seconds=for_s)
