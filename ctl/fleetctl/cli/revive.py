"""Sees to it that the fleet a command is about has a living controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.progress import Progress
from fleetctl.errors import UnavailableError
from fleetctl.operations.commands import ensure_controller, is_abandoned
from fleetctl.operations.lookup import chosen_fleet, fleet_names

if TYPE_CHECKING:
    from fleetctl.operations.site import Site


def revived_fleet(site: Site, name: str = "") -> str:
    """Return the fleet meant, with a controller started if it and the gateway are both gone.

    A fleet that cannot be revived is still shown, STALE: why is shown on stderr.
    """
    fleet = chosen_fleet(site, name)
    revive(site, fleet)
    return fleet


def revive_all(site: Site) -> None:
    """Do so for every fleet."""
    for fleet in fleet_names(site):
        revive(site, fleet)


def revive(site: Site, fleet: str) -> None:
    """Start the fleet's controller if nothing of the fleet lives that would."""
    if not is_abandoned(site, fleet):
        return
    progress = Progress()
    progress.note(f"{fleet}: its controller and gateway are gone; starting a controller")
    try:
        ensure_controller(site, fleet)
    except UnavailableError as error:
        progress.caution(error.message)
