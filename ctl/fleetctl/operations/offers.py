"""What providers sell, beside what fleets have learned of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.core.hazard import hazard_per_h, together
from fleetctl.core.placement import RejectionCode, ruled_out
from fleetctl.core.plan.offers import priced, with_own_gpus
from fleetctl.errors import FleetctlError, NotFoundError, ProviderError
from fleetctl.model.catalogue import Market, OfferList
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.operations.planning import what_is_sold
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleetctl.model.catalogue import GpuSpec, Offering
    from fleetctl.model.hazard import OfferingRecord
    from fleetctl.model.profile import CapacitySpec, Profile
    from fleetctl.operations.site import Site

# What was seen so long ago says nothing of the stock of today.
_RECENT_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOffer:
    """One instance type in one zone on one market."""

    zone: str  # empty: not known
    market: Market
    usd_per_hour: float
    hazard_per_h: float | None  # expected losses of one node an hour, as learned; None: nothing was seen there
    refused_at: datetime | None  # an order last found no stock there, within a day
    lost_at: datetime | None  # a node was last taken there, within a day


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeOffer:
    """One instance type of a provider in a region."""

    instance_type: str
    region: str
    gpu: str
    gpu_count: int
    gpu_memory_bytes: int | None  # of all its GPUs together; None: the card is in no catalogue
    on_demand_usd_per_hour: float | None  # the lowest of its zones
    spot_usd_per_hour: float | None
    is_emulated: bool  # only an emulator runs on it: nobody sells it
    zones: tuple[ZoneOffer, ...]

    @property
    def price_usd_per_hour(self) -> float:
        """Return the lowest price."""
        return min((p for p in (self.on_demand_usd_per_hour, self.spot_usd_per_hour) if p is not None), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOffers:
    """What one provider sells."""

    provider: str
    source: str  # where the prices are from
    is_live: bool  # False: from a packaged list, whose date the source has
    cautions: tuple[str, ...]
    fault: str  # why it could not be asked; empty: it was
    types: tuple[TypeOffer, ...]  # the cheapest first


async def offers_for(site: Site, profile: Profile) -> ProviderOffers:
    """Return what a profile's provider sells of what the profile allows, at the profile's own prices. Raises ProviderError."""
    return await _offers_at(site, profile.provider_choice, profile.capacity)


async def offers_of(site: Site, provider: str) -> ProviderOffers:
    """Return all that a provider sells, as the environment sets it up. Raises NotFoundError, ConfigError, ProviderError."""
    names = site.provider_names()
    if provider not in names:
        raise NotFoundError(
            f"no provider named {provider!r} is installed{suggest(provider, names)}",
            hint=f"installed: {', '.join(names)}",
        )
    return await _offers_at(site, ProviderChoice(name=provider), None)


async def offers_of_all(site: Site) -> tuple[ProviderOffers, ...]:
    """Return what every installed provider sells; one that cannot be asked has a fault in the place of its offers."""
    return tuple(await asyncio.gather(*(_offers_or_fault(site, name) for name in site.provider_names())))


async def _offers_or_fault(site: Site, name: str) -> ProviderOffers:
    try:
        return await _offers_at(site, ProviderChoice(name=name), None)
    except FleetctlError as exc:
        fault = exc.message + (f"; {exc.hint}" if exc.hint else "")
    except Exception as exc:  # noqa: BLE001  # a third party's package may fail in any way
        fault = f"{type(exc).__name__}: {exc}"
    return ProviderOffers(provider=name, source="", is_live=False, cautions=(), fault=fault, types=())


async def _offers_at(site: Site, choice: ProviderChoice, capacity: CapacitySpec | None) -> ProviderOffers:
    provider = site.provider(choice)
    lists = provider.capabilities.offer_lists
    if lists is not None:
        sold = await what_is_sold(site, choice, provider, lists.offer_list)
    else:
        offerings = await what_is_sold(site, choice, provider, provider.offerings)
        sold = OfferList(offerings=offerings, source="the provider")
    learned, unknown = await asyncio.to_thread(_learned, site, choice)
    allowed = _allowed(sold.offerings, capacity)
    if sold.offerings and not allowed:
        raise ProviderError(
            f"{choice} sells nothing that the profile allows",
            hint="look at its capacity: gpus, region, zones; all that is sold: fleetctl offers",
        )
    catalogue, _ = with_own_gpus(load_catalogue(), allowed)
    return ProviderOffers(
        provider=str(choice), source=sold.source, is_live=sold.is_live, cautions=(*sold.cautions, *unknown), fault="",
        types=_types(allowed, catalogue.gpus, learned, site.clock.now()),
    )  # fmt: skip


def _allowed(offerings: tuple[Offering, ...], capacity: CapacitySpec | None) -> tuple[Offering, ...]:
    """Return what is for sale of it; a CPU that stands in for a GPU is nobody's offer."""
    sold = tuple(each for each in offerings if not each.is_on_cpu)
    if capacity is None:
        return sold
    # Where zones are not known nothing is ruled out by them.
    return tuple(
        each
        for each in priced(sold, capacity)
        if (rejection := ruled_out(each, capacity)) is None or (not each.zone and rejection.code is RejectionCode.ZONE)
    )


def _learned(site: Site, choice: ProviderChoice) -> tuple[dict[str, list[OfferingRecord]], tuple[str, ...]]:
    """Return what the fleets at a provider have learned, by offering, and what is to be said where that is not known."""
    found: dict[str, list[OfferingRecord]] = {}
    try:
        for desired in site.store.fleets():
            if desired.profile.provider_choice.name == choice.name:
                for key, record in site.store.memory(desired.fleet).offerings.items():
                    found.setdefault(key, []).append(record)
    except FleetctlError as exc:
        return {}, (f"what fleets have seen there is not known: {exc.message}",)
    return found, ()


def _types(
    offerings: Iterable[Offering],
    gpus: Mapping[str, GpuSpec],
    learned: Mapping[str, Sequence[OfferingRecord]],
    now: datetime,
) -> tuple[TypeOffer, ...]:
    by_type: dict[tuple[str, str], list[Offering]] = {}
    for each in offerings:
        by_type.setdefault((each.region, each.instance_type), []).append(each)
    found = [_type(group, gpus, learned, now) for group in by_type.values()]
    return tuple(sorted(found, key=lambda each: (each.price_usd_per_hour, each.instance_type, each.region)))


def _type(
    group: Sequence[Offering],
    gpus: Mapping[str, GpuSpec],
    learned: Mapping[str, Sequence[OfferingRecord]],
    now: datetime,
) -> TypeOffer:
    first = group[0]
    spec = gpus.get(first.gpu)
    return TypeOffer(
        instance_type=first.instance_type,
        region=first.region,
        gpu=first.gpu,
        gpu_count=first.gpu_count,
        gpu_memory_bytes=None if spec is None else spec.memory_bytes * first.gpu_count,
        on_demand_usd_per_hour=_lowest(group, Market.ON_DEMAND),
        spot_usd_per_hour=_lowest(group, Market.SPOT),
        is_emulated=first.is_emulated,
        zones=tuple(
            _zone(each, together(learned.get(each.key, ()), now), now)
            for each in sorted(group, key=lambda o: (o.zone, o.market.value))
        ),
    )


def _lowest(group: Iterable[Offering], market: Market) -> float | None:
    return min((each.price_usd_per_hour for each in group if each.market is market), default=None)


def _zone(sold: Offering, record: OfferingRecord | None, now: datetime) -> ZoneOffer:
    return ZoneOffer(
        zone=sold.zone,
        market=sold.market,
        usd_per_hour=sold.price_usd_per_hour,
        hazard_per_h=None if record is None else hazard_per_h(record, now),
        refused_at=_recent(record.refused_at if record is not None else None, now),
        lost_at=_recent(record.lost_at if record is not None else None, now),
    )


def _recent(at: datetime | None, now: datetime) -> datetime | None:
    return at if at is not None and (now - at).total_seconds() <= _RECENT_S else None
