"""What `up` would change on the fleet as it is now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.core.plan.changes import PlanChange, diff_plans
from fleetctl.model.desired import DesiredPhase, Overrides

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChanges:
    """The difference between a fleet and what it would be brought up as."""

    is_new: bool  # no such fleet is up
    plan: tuple[PlanChange, ...] = ()
    profile: bool = False  # the profile says something else that no plan shows: a limit, a match, a port
    overrides: Overrides = field(default_factory=Overrides)  # what was set by hand and would be let go

    @property
    def is_empty(self) -> bool:
        """Whether `up` would change nothing."""
        return not (self.is_new or self.plan or self.profile or self.overrides != Overrides())


def pending_changes(site: Site, profile: Profile, plan: Plan) -> PendingChanges:
    """Return what `up` with this plan would change."""
    desired = site.store.fleet(profile.name)
    if desired is None or desired.phase is not DesiredPhase.UP:
        return PendingChanges(is_new=True)
    return PendingChanges(
        is_new=False,
        plan=diff_plans(desired.plan, plan),
        profile=desired.profile != profile,
        overrides=desired.overrides,
    )
