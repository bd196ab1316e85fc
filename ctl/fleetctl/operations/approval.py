"""Whether a profile and its plan may be brought up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.config.profile import profile_hash
from fleetctl.errors import BudgetExceededError, ConfigError, FleetctlError, joined
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations.model_moves import model_move_refusal
from fleetctl.operations.multi_node import multi_node_errors
from fleetctl.operations.profile_errors import keyring_errors
from fleetctl.operations.provider_moves import provider_move_refusal
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site


def check_plan(
    site: Site, profile: Profile, plan: Plan, *, is_exact: bool = False, max_cost_usd_per_hour: float | None = None
) -> None:
    """Refuse what `up` would refuse; `is_exact` also a plan made for the profile before it was last changed.

    Raises ConfigError, BudgetExceededError, NotFoundError.
    """
    site.provider_of(profile)
    if refusal := move_refusal(site, profile):
        raise refusal
    if errors := (*multi_node_errors(site, profile), *keyring_errors(profile)):
        raise joined(errors)
    if plan.fleet != profile.name or (is_exact and plan.profile_hash != profile_hash(profile)):
        raise ConfigError(
            f"the plan was made for another profile than {profile.name!r} as it is now",
            hint="make it anew: fleetctl plan PROFILE --out FILE",
        )
    caps = [cap for cap in (profile.capacity.max_cost_usd_per_hour, max_cost_usd_per_hour) if cap is not None]
    if caps and plan.cost_usd_per_hour > min(caps):
        raise BudgetExceededError(
            f"the plan costs {format_usd(plan.cost_usd_per_hour)}/h, over the cap of {format_usd(min(caps))}/h",
            hint="raise the cap, or relax the SLO; `fleetctl plan` shows which lane costs what",
        )
    if plan.nodes > profile.capacity.max_nodes:
        raise BudgetExceededError(
            f"the plan takes {plan.nodes} nodes, over the cap of {profile.capacity.max_nodes}",
            hint="raise capacity.max_nodes, or relax the SLO",
        )


def move_refusal(site: Site, profile: Profile) -> FleetctlError | None:
    """Return what of a fleet cannot move: its nodes to another place, its gateway to another address, a lane to another model.

    A gateway's clients hold its address, and so does its socket.
    """
    before = site.store.fleet(profile.name)
    if before is not None and (stays := provider_move_refusal(site, before, profile)):
        return stays
    if before is None or before.phase is not DesiredPhase.UP or not site.host.processes(profile.name).is_any:
        return None
    if refusal := model_move_refusal(before, profile):
        return refusal
    old, new = before.profile.gateway, profile.gateway
    if (old.host, old.port) == (new.host, new.port):
        return None
    return ConfigError(
        f"the gateway of {profile.name} listens at {old.url} and cannot move to {new.url} while it runs",
        hint=f"keep its address: --port {old.port}; or take the fleet down first: fleetctl down {profile.name}",
    )
