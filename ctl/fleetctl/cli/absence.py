"""Says on stderr that nobody keeps a fleet, where what a command prints does not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.progress import Progress
from fleetctl.operations.fleets import controller_absence
from fleetctl.operations.lookup import chosen_fleet

if TYPE_CHECKING:
    from fleetctl.operations.site import Site


def read_fleet(site: Site, name: str = "") -> str:
    """Return the fleet meant, and say so if it should have a controller and has none. Reads start none themselves."""
    fleet = chosen_fleet(site, name)
    absence = controller_absence(site, fleet)
    if absence:
        Progress().caution(f"{fleet}: {absence}")
    return fleet
