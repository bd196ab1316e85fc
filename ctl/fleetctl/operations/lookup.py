"""Finds the fleet and the lane somebody means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations.fleet_hosts import FleetHosts
from fleetctl.operations.orphaned_processes import no_fleet
from fleetctl.ports.store import unknown_fleet
from fleetctl.printable import printable
from fleetctl.spelling import is_name

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import LaneSpec
    from fleetctl.operations.site import Site


def fleet_names(site: Site) -> tuple[str, ...]:
    """Return every fleet's name."""
    return tuple(desired.fleet for desired in site.store.fleets())


def chosen_fleet(site: Site, name: str = "") -> str:
    """Return the name of the fleet meant: the one named, or the only one there is. Raises NotFoundError, ConfigError."""
    if name:
        return known_fleet(site, name).fleet
    names = fleet_names(site)
    if not names:
        absence = f"there is no fleet in {site.store.location}"
        raise no_fleet(site, NotFoundError(absence, hint="bring one up: fleetctl up quickstart"))
    if len(names) > 1:
        raise ConfigError(f"there are {len(names)} fleets: {', '.join(names)}", hint="name one, or set FLEETCTL_FLEET")
    return names[0]


def watched_fleet(site: Site, name: str = "") -> str:
    """Return the name of the fleet somebody wants to look at; one that is kept here is known without its state.

    So that its status is to be had while a shared state is out of reach. Raises NotFoundError, ConfigError.
    """
    is_here = bool(name) and is_name(name) and isinstance(site.host, FleetHosts) and site.host.keeps_here(name)
    return name if is_here else chosen_fleet(site, name)


def known_fleet(site: Site, fleet: str) -> Desired:
    """Return the fleet's record; one whose name cannot be typed is found as it is shown. Raises NotFoundError."""
    found = site.store.fleet(fleet)
    if found is not None:
        return found
    names = fleet_names(site)
    for name in names:
        if printable(name) == fleet and (found := site.store.fleet(name)) is not None:
            return found
    absence = unknown_fleet(fleet, names, location=site.store.location)
    raise absence if names else no_fleet(site, absence)


def running_fleet(site: Site, fleet: str) -> Desired:
    """Return the record of a fleet that should be up. Raises NotFoundError, ConfigError."""
    desired = known_fleet(site, fleet)
    if desired.phase is not DesiredPhase.UP:
        raise ConfigError(f"fleet {fleet!r} is going down", hint="bring it up first: fleetctl up PROFILE")
    return desired


def known_lane(desired: Desired, lane: str) -> LaneSpec:
    """Return the lane's part of the profile. Raises NotFoundError."""
    try:
        return desired.profile.lane(lane)
    except KeyError:
        names = ", ".join(spec.name for spec in desired.profile.lanes)
        raise NotFoundError(f"fleet {desired.fleet!r} has no lane {lane!r}", hint=f"lanes: {names}") from None
