"""What `up` would change on the fleet as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.desired import Overrides, Phase
from fleetctl.operations.planning import PlanChange, diff_plans

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What `up` would change on a fleet."""

    is_new: bool  # no such fleet is up
    plan: tuple[PlanChange, ...] = ()
    profile: bool = False  # the profile says something else that no plan shows: a limit, a match, a port
    overrides: tuple[str, ...] = ()  # what was set by hand and would be let go, a clause each

    @property
    def is_empty(self) -> bool:
        """Whether `up` would change nothing."""
        return not (self.is_new or self.plan or self.profile or self.overrides)


def pending(site: Site, profile: Profile, plan: Plan) -> Pending:
    """Return what `up` with this plan would change."""
    desired = site.store.fleet(profile.name)
    if desired is None or desired.phase is not Phase.UP:
        return Pending(is_new=True)
    return Pending(
        is_new=False,
        plan=diff_plans(desired.plan, plan),
        profile=desired.profile != profile,
        overrides=_by_hand(desired.overrides),
    )


def _by_hand(overrides: Overrides) -> tuple[str, ...]:
    counts = (f"{lane} scaled to {count}" for lane, count in overrides.replicas.items())
    steps = (f"{lane} pinned at {step}" for lane, step in overrides.step.items())
    return (*counts, *steps)
