"""The images of a plan, by what their names stand for now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl import os_signals
from fleetctl.cli.progress import note_cautions
from fleetctl.operations.image_pins import pin_images

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fleetctl.cli.progress import Progress
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site


def with_images(
    site: Site, profile: Profile, planning: Coroutine[Any, Any, Plan], progress: Progress, *, refreshes: bool = False
) -> Plan:
    """Return the plan that is being made with its lanes' images pinned; what goes by its name is said."""
    pinned = os_signals.run(pin_images(site, profile, os_signals.run(planning), refreshes=refreshes))
    note_cautions(pinned.cautions, progress)
    return pinned.plan
