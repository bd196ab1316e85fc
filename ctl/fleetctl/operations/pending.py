"""What `up` would change on the fleet as it is now."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleetctl.config.profile_changes import ProfileChange, diff_profiles
from fleetctl.core.plan.changes import PlanChange, diff_plans
from fleetctl.core.plan.launch_identity import is_outdated
from fleetctl.model.desired import DesiredPhase, Overrides

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChanges:
    """The difference between a fleet and what it would be brought up as."""

    is_new: bool  # no such fleet is up
    plan: tuple[PlanChange, ...] = ()
    profile: tuple[ProfileChange, ...] = ()  # what the profile says otherwise: an SLO, a match, a limit
    is_profile_other: bool = False  # in anything at all
    outdated: tuple[str, ...] = ()  # live replicas that keep other launch settings than their lane's next one
    overrides: Overrides = field(default_factory=Overrides)  # what was set by hand and would be let go

    @property
    def is_empty(self) -> bool:
        """Whether `up` would change nothing."""
        return self.is_applied and not self.outdated

    @property
    def is_applied(self) -> bool:
        """Whether the fleet's record says the same already."""
        return not (self.is_new or self.plan or self.is_profile_other or self.overrides != Overrides())


def plan_in_force(site: Site, fleet: str) -> Plan | None:
    """Return the plan that a fleet is up by; None: no such fleet is up."""
    desired = site.store.fleet(fleet)
    return desired.plan if desired is not None and desired.phase is DesiredPhase.UP else None


def pending_changes(site: Site, profile: Profile, plan: Plan) -> PendingChanges:
    """Return what `up` with this plan would change."""
    desired = site.store.fleet(profile.name)
    if desired is None or desired.phase is not DesiredPhase.UP:
        return PendingChanges(is_new=True)
    return PendingChanges(
        is_new=False,
        plan=diff_plans(desired.plan, plan),
        profile=diff_profiles(desired.profile, profile),
        is_profile_other=_without_source(desired.profile) != _without_source(profile),
        outdated=outdated_replicas(site, replace(desired, profile=profile, plan=plan)),
        overrides=desired.overrides.on_lanes,
    )


def outdated_replicas(site: Site, desired: Desired) -> tuple[str, ...]:
    """Return the live replicas that were started with other settings than `desired` has for their lane."""
    records = site.store.replicas(desired.fleet)
    staying = (r for r in records if r.state.counts_as_capacity and not r.drain_requested)
    return tuple(record.id for record in staying if is_outdated(record, desired))


def _without_source(profile: Profile) -> Profile:
    """Return a profile without where its port came from, which nobody would see changing."""
    return replace(profile, gateway=replace(profile.gateway, port_is_given=False))
