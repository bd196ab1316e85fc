"""Whether a provider sells what a profile allows: its GPUs, in its region and zones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.placement import ruled_out
from fleetctl.errors import FleetctlError, InfeasiblePlanError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleetctl.errors import KeyPath
    from fleetctl.model.catalogue import Catalogue, Offering
    from fleetctl.model.profile import CapacitySpec


def offer_errors(
    capacity: CapacitySpec, catalogue: Catalogue, offerings: Sequence[Offering]
) -> tuple[FleetctlError, ...]:
    """Return why nothing on offer may be used, by the rule that leaves nothing; empty where something may."""
    known = [offering for offering in offerings if offering.gpu in catalogue.gpus]
    if any(ruled_out(offering, capacity) is None for offering in known):
        return ()
    return tuple(_by_rule(capacity, known)) or (_all_together(capacity, known),)


def _by_rule(capacity: CapacitySpec, offerings: Sequence[Offering]) -> Iterator[InfeasiblePlanError]:
    """Yield the rules that nothing on offer keeps, whatever the others say."""
    if capacity.gpus and not any(o.gpu in capacity.gpus for o in offerings):
        yield _absent(("capacity", "gpus"), capacity.gpus, {o.gpu for o in offerings})
    if capacity.region and not any(o.region == capacity.region for o in offerings):
        yield _absent(("capacity", "region"), (capacity.region,), {o.region for o in offerings})
    if capacity.zones and not any(o.zone in capacity.zones for o in offerings):
        yield _absent(("capacity", "zones"), capacity.zones, {o.zone for o in offerings})


def _absent(key: KeyPath, wanted: Iterable[str], sold: set[str]) -> InfeasiblePlanError:
    wanted = tuple(wanted)
    near = next((found for word in wanted if (found := suggest(word, sorted(sold)))), "")
    return InfeasiblePlanError(
        f"nothing on offer matches {', '.join(wanted)}{near}",
        hint=f"on offer: {', '.join(sorted(sold)) or 'nothing'}",
        key=key,
    )


def _all_together(capacity: CapacitySpec, offerings: Sequence[Offering]) -> InfeasiblePlanError:
    rules = {"gpus": ", ".join(capacity.gpus), "region": capacity.region, "zones": ", ".join(capacity.zones)}
    wanted = "; ".join(f"{rule}: {value}" for rule, value in rules.items() if value)
    sold = sorted({f"{o.gpu} in {o.zone}" for o in offerings})
    return InfeasiblePlanError(
        f"nothing on offer matches {wanted or 'any GPU'} together",
        hint=f"on offer: {', '.join(sold) or 'nothing'}",
        key=("capacity",),
    )
