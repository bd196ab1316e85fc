"""Which fleet a command is about, and that somebody looks after it."""

from __future__ import annotations

from fleetctl.cli.narrate import Narrator
from fleetctl.errors import UnavailableError
from fleetctl.operations import supervise
from fleetctl.operations.access import chosen_fleet, fleet_names


def attended_fleet(name: str = "") -> str:
    """Return the fleet meant, with a controller started if it and the gateway are both gone.

    A fleet that cannot be revived is still shown, STALE: why is said on stderr.
    """
    fleet = chosen_fleet(name)
    attend(fleet)
    return fleet


def attend_all() -> None:
    """Do so for every fleet."""
    for fleet in fleet_names():
        attend(fleet)


def attend(fleet: str) -> None:
    """Start the fleet's controller if nothing of the fleet lives that would."""
    if not supervise.is_abandoned(fleet):
        return
    narrator = Narrator()
    narrator.say(f"{fleet}: its controller and gateway are gone; starting a controller")
    try:
        supervise.ensure_controller(fleet)
    except UnavailableError as error:
        narrator.caution(error.message)
