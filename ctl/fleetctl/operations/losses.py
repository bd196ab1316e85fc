"""What a fleet would lose if some of its replicas went: asked before a drain, and before a drill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.core.drains import ZONE, cordoned_zones
from fleetctl.core.hazard import Hazards
from fleetctl.core.loss import ReplacementSupply, fleet_loss
from fleetctl.operations.fleets import status
from fleetctl.operations.planning import offerings_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.catalogue import Offering
    from fleetctl.model.desired import Desired
    from fleetctl.model.loss import FleetLoss
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site


def offerings_of(site: Site, desired: Desired) -> tuple[Offering, ...]:
    """Return what the fleet's provider sells now. Raises ProviderError."""
    return os_signals.run(offerings_now(site, desired.profile.provider_choice))


def forecast_loss(  # noqa: PLR0913  # what a forecast stands on, each named
    site: Site,
    desired: Desired,
    going: Sequence[Replica],
    *,
    target: str,
    offerings: Sequence[Offering],
    surges: bool,
    is_cordoned: bool = False,
) -> FleetLoss:
    """Return what goes with these replicas, and what would replace them. Raises NotFoundError."""
    seen = status(site, desired.fleet)
    kind, _, name = target.partition("/")
    cordoned = cordoned_zones(desired.overrides) | ({name} if is_cordoned and kind == ZONE else set())
    known = Hazards(now=seen.at, records=site.store.memory(desired.fleet).offerings)
    supply = ReplacementSupply(offerings=offerings, hazards=known, cordoned=cordoned)
    return fleet_loss(desired, seen, going, target=target, supply=supply, surges=surges)
