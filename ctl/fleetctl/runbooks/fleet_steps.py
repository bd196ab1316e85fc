"""Steps on the whole fleet: up and down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations import lifecycle
from fleetctl.operations.changed_profiles import find_changed
from fleetctl.operations.gateway_reach import gateway_url
from fleetctl.operations.image_pins import pin_images
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import as_brought_up
from fleetctl.runbooks.forecast import cap_of
from fleetctl.runbooks.rollout_steps import follow, refuse_rolled_back

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.runbook import Json
    from fleetctl.model.runbook_run import RunbookRun
    from fleetctl.model.runbook_steps import DownStep, UpStep
    from fleetctl.operations.profiles import FoundProfile
    from fleetctl.operations.site import Site
    from fleetctl.runbooks.context import StepContext


def up(context: StepContext, wanted: UpStep) -> dict[str, Json]:
    """Bring the fleet up, or change it, and wait until that is rolled out and ready."""
    site = context.site
    if context.was_cut and site.store.fleet(context.fleet) is not None:
        refuse_rolled_back(context)  # doing it again would roll out what has just failed
    found = profile_of(wanted, fleet=context.fleet, source=context.run.source)
    profile = as_brought_up(site, found.profile)
    refuse_dropped_lanes(site, profile, wanted)
    plan = os_signals.run(plan_profile(site, profile, source=found.source, proves=True, is_live_only=True))
    pinned = os_signals.run(pin_images(site, profile, plan, refreshes=wanted.refresh_images))
    for caution in pinned.cautions:
        context.company.tell(caution)
    result = lifecycle.up(
        site, profile, pinned.plan, max_cost_usd_per_hour=cap_of(context.run), override_freeze=wanted.override_freeze,
        refreshes_images=wanted.refresh_images,
    )  # fmt: skip
    if wanted.wait:
        follow(context, result.desired)
    return {
        "change": result.change.value,
        "generation": result.desired.generation,
        "revision": result.desired.revision,
        "cost_usd_per_hour": plan.cost_usd_per_hour,
        "url": f"{gateway_url(site, profile)}/v1",
    }


def down(context: StepContext, wanted: DownStep) -> dict[str, Json]:
    """Take the fleet down; one that is gone already is."""
    try:
        lifecycle.down(context.site, context.fleet, override_freeze=wanted.override_freeze)
    except NotFoundError:
        return {"change": "unchanged"}
    if wanted.wait:
        for seen in lifecycle.follow_down(context.site, context.fleet, timeout_s=context.left_s):
            live = sum(r.record.state.is_live for r in seen.replicas)
            context.company.tell(f"{context.fleet}: going down, replicas left: {live}")
    return {"change": "down"}


def profile_of(wanted: UpStep, *, fleet: str, source: str) -> FoundProfile:
    """Return the profile that a step names, for this fleet; a relative path starts at the runbook's file."""
    beside = Path(source).parent / wanted.profile if source else Path(wanted.profile)
    name = str(beside) if beside.is_file() else wanted.profile
    return find_changed(name, wanted.changes, fleet=fleet)


def refuse_dropped_lanes(site: Site, profile: Profile, wanted: UpStep) -> None:
    """Raise ConfigError where the running fleet has lanes that the profile has not: most likely it is another fleet's."""
    before = site.store.fleet(profile.name)
    if before is None or before.phase is not DesiredPhase.UP or wanted.drop_lanes:
        return
    kept = [lane.name for lane in profile.lanes]
    if dropped := [lane.name for lane in before.profile.lanes if lane.name not in kept]:
        raise ConfigError(
            f"profile {wanted.profile} would take {_lanes(dropped)} of {profile.name} down, and has {_lanes(kept)}",
            hint="name the fleet's own profile; where they are to go, write drop_lanes: true into the step",
        )


def other_name(site: Site, run: RunbookRun, wanted: UpStep) -> str:
    """Return in words that a running fleet would be changed by a profile of another name; empty: it is its own."""
    name = profile_of(wanted, fleet="", source=run.source).profile.name
    if name == run.fleet or site.store.fleet(run.fleet) is None:
        return ""
    return f"the profile {wanted.profile} is of fleet {name}, not of {run.fleet}"


def _lanes(names: list[str]) -> str:
    return f"{'lane' if len(names) == 1 else 'lanes'} {', '.join(names)}"


def planned_up(site: Site, wanted: UpStep, *, fleet: str, source: str) -> Plan:
    """Return the plan that such a step would bring up."""
    found = profile_of(wanted, fleet=fleet, source=source)
    return os_signals.run(plan_profile(site, as_brought_up(site, found.profile), source=found.source, proves=True))
