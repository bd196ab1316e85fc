"""Where a fleet's gateway is reached: at its address, or by its host where it has none on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from fleetctl.operations.fleet_hosts import FleetHosts

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fleetctl.model.head import HeadStatus
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site
    from fleetctl.ports.host import GatewayReach


def gateway_url(site: Site, profile: Profile) -> str:
    """Return the base URL that a fleet's clients use, without its /v1."""
    reach = gateway_reach(site, profile.name)
    return reach.gateway_url() if reach is not None else profile.gateway.url


def gateway_answers(site: Site, profile: Profile) -> bool:
    """Whether somebody takes connections there. Raises FleetctlError where its host cannot say."""
    reach, gateway = gateway_reach(site, profile.name), profile.gateway
    return reach.gateway_answers() if reach is not None else site.host.accepts(gateway.host, gateway.port)


def gateway_reached(site: Site, profile: Profile) -> AbstractContextManager[str]:
    """Yield a base URL by which this machine reaches the gateway, for a block. Raises UnavailableError."""
    reach = gateway_reach(site, profile.name)
    return reach.gateway_reached() if reach is not None else nullcontext(profile.gateway.url)


def head_status(site: Site, fleet: str) -> HeadStatus | None:
    """Return what is on record of the machine that a fleet's controller and gateway have of their own; None: they have none."""
    return site.host.head_status(fleet) if isinstance(site.host, FleetHosts) else None


def gateway_reach(site: Site, fleet: str) -> GatewayReach | None:
    """Return how a fleet's gateway is reached that has no address of this machine; None: by its address."""
    return site.host.gateway_reach(fleet) if isinstance(site.host, FleetHosts) else None
