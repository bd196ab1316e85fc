"""Whether a provider sells what a profile allows: its GPUs, in its region and zones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.placement import ruled_out
from fleetctl.errors import FleetctlError, InfeasiblePlanError
from fleetctl.spelling import suggest
from fleetctl.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleetctl.errors import KeyPath
    from fleetctl.model.catalogue import Catalogue, GpuSpec, Offering
    from fleetctl.model.profile import CapacitySpec


def offer_errors(
    capacity: CapacitySpec, catalogue: Catalogue, offerings: Sequence[Offering]
) -> tuple[FleetctlError, ...]:
    """Return why nothing on offer may be used, by the rule that leaves nothing; empty where something may."""
    known = [offering for offering in offerings if offering.gpu in catalogue.gpus]
    if any(ruled_out(offering, capacity) is None for offering in known):
        return ()
    return tuple(_by_rule(capacity, known)) or (_all_together(capacity, known),)


def limit_errors(capacity: CapacitySpec, offerings: Sequence[Offering]) -> Iterator[InfeasiblePlanError]:
    """Yield the limits on instance types that nobody sells: a name misspelt would limit nothing."""
    sold = sorted({offering.instance_type for offering in offerings})
    for name in capacity.limits:
        if name not in sold:
            yield InfeasiblePlanError(
                f"capacity.limits names {name}, which is not on offer{suggest(name, sold)}",
                hint="name instance types as `fleetctl offers` lists them",
                key=("capacity", "limits", name),
            )


def offerings_for(offerings: Sequence[Offering], *, is_emulated: bool) -> tuple[Offering, ...]:
    """Return what a lane may run on: emulated engines on what is emulated, real ones on what is there.

    Where a provider has nothing of the one kind, a plan is made on the other.
    """
    return tuple(o for o in offerings if o.is_emulated is is_emulated) or tuple(offerings)


def priced(offerings: Sequence[Offering], capacity: CapacitySpec) -> tuple[Offering, ...]:
    """Return the offerings with the profile's own price of a GPU on those that the provider prices at nothing."""
    usd = capacity.gpu_usd_per_hour
    if usd is None:
        return tuple(offerings)
    return tuple(o if o.price_usd_per_hour else replace(o, price_usd_per_hour=usd * o.gpu_count) for o in offerings)


def with_own_gpus(catalogue: Catalogue, offerings: Iterable[Offering]) -> tuple[Catalogue, dict[str, str]]:
    """Return the catalogue with the GPUs that only the provider knows, and what is to be said of each."""
    own = {o.gpu: o.gpu_spec for o in offerings if o.gpu_spec is not None and o.gpu not in catalogue.gpus}
    remarks = {name: _remark(spec) for name, spec in own.items()}
    return replace(catalogue, gpus=catalogue.gpus | own) if own else catalogue, remarks


def _remark(spec: GpuSpec) -> str:
    best = max(spec.flops.values(), default=0.0)
    return (
        f"{spec.name} is in no catalogue: planned from {spec.source or 'what the provider says'} "
        f"({format_bytes(spec.memory_bytes)}, {spec.memory_bytes_per_s / 1e9:.4g} GB/s, {best / 1e12:.4g} TFLOP/s at best); "
        "measured figures go into gpus.yaml"
    )


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
