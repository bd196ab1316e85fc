"""`fleetctl offers`."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli import suggestions
from fleetctl.cli.options import Output, Quiet
from fleetctl.cli.output import Format, OutputSection, View, emit, section
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError, ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.operations.offers import (
    ProviderOffers,
    TypeOffer,
    ZoneOffer,
    offers_for,
    offers_of,
    offers_of_all,
)
from fleetctl.units import format_usd
from fleetctl.views.figures import format_age
from fleetctl.views.table import NOTHING, Cell, Table, Tone, cell, text_table

_COLUMNS = "TYPE >N GPU >GIB >$/H >SPOT ZONES >HAZARD"
_ZONES = "TYPE ZONE MARKET >$/H >HAZARD NO_STOCK LOST"
# Of a line of 80 that names p4de.24xlarge, RTX PRO 6000 and prices of three digits; what follows is then still on it.
_ZONES_MAX = 7
_GIB = 2**30


def offers(
    ctx: typer.Context,
    profile: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE",
            help="Only what this profile's provider sells and its capacity allows, at its prices.",
            autocompletion=suggestions.profiles,
        ),
    ] = "",
    *,
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="One provider; left out: every one installed.")
    ] = "",
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """List what is sold: GPUs, memory, dollars an hour on demand and spot, zones, and how long nodes last there.

    N is the number of GPUs, GIB the memory of all of them. HAZARD is the losses of one node an hour that placement
    expects by what fleets of this state have seen, "-" where they saw nothing; what had no stock within a day, or lost a
    node, is listed below. -o wide lists every zone. Prices are today's where the credentials may read them, else those of
    a packaged list, whose date is said. Nothing is changed, and no rights are needed.
    """
    if profile and provider:
        raise ConfigError("a profile names its provider", hint="leave --provider out, or the profile")
    site, progress = site_of(ctx), Progress(quiet=quiet)
    with progress:
        progress.working("asking what is sold ...")
        if profile:
            from fleetctl.operations.profiles import find_profile

            found: tuple[ProviderOffers, ...] = (os_signals.run(offers_for(site, find_profile(profile))),)
        elif provider:
            found = (os_signals.run(offers_of(site, provider)),)
        else:
            found = os_signals.run(offers_of_all(site))
    emit(_view(found, site.clock.now()), output)
    for each in found:
        for caution in each.cautions:
            progress.caution(f"{each.provider}: {caution}")
        if each.fault:
            progress.caution(f"{each.provider} could not be asked: {each.fault}")
    if all(each.fault for each in found):
        raise ProviderError("no provider could be asked", hint="`fleetctl doctor` says what each lacks")


def _view(found: tuple[ProviderOffers, ...], now: datetime) -> View:
    return View(
        value=found,
        names=tuple(kind.instance_type for each in found for kind in each.types),
        sections=tuple(shown for each in found for shown in _sections(each, now) if each.types),
    )


def _sections(each: ProviderOffers, now: datetime) -> Iterator[OutputSection]:
    regions = sorted({kind.region for kind in each.types if kind.region})
    emulated = ", emulated: nobody sells these" if all(kind.is_emulated for kind in each.types) else ""
    title = f"{each.provider}: {', '.join(regions)}{emulated}; prices by {each.source}"
    yield section(text_table(_COLUMNS, (_row(kind) for kind in each.types)), title=title)
    every = [(kind, zone) for kind in each.types for zone in kind.zones]
    yield OutputSection(title="By zone", table=_zones(every, now), only=Format.WIDE)
    seen = [(kind, zone) for kind, zone in every if zone.refused_at or zone.lost_at]
    if seen:
        title = "Without stock, or lost nodes, within a day"
        yield OutputSection(title=title, table=_zones(seen, now), only=Format.TABLE)


def _row(kind: TypeOffer) -> tuple[str | Cell, ...]:
    hazards = [zone.hazard_per_h for zone in kind.zones if zone.hazard_per_h is not None]
    refused = any(zone.refused_at for zone in kind.zones)
    return (
        kind.instance_type,
        str(kind.gpu_count),
        kind.gpu,
        f"{kind.gpu_memory_bytes / _GIB:.0f}" if kind.gpu_memory_bytes else NOTHING,
        _usd(kind.on_demand_usd_per_hour),
        _usd(kind.spot_usd_per_hour),
        cell(_zone_names(kind), Tone.WARN if refused else Tone.PLAIN),
        f"{max(hazards):.2g}" if hazards else NOTHING,
    )


def _usd(price: float | None) -> str:
    return NOTHING if price is None else format_usd(price).removeprefix("$")


def _zone_names(kind: TypeOffer) -> str:
    """Return "a b c" of zones that are called by their region, and whole names of others, few of them."""
    names = sorted({zone.zone for zone in kind.zones if zone.zone})
    short = [name.removeprefix(kind.region).removeprefix("-") or name for name in names]
    text = " ".join(short)
    return text if len(text) <= _ZONES_MAX else f"{len(names)} zones"


def _zones(found: list[tuple[TypeOffer, ZoneOffer]], now: datetime) -> Table:
    return text_table(_ZONES, (_zone_row(kind, zone, now) for kind, zone in found))


def _zone_row(kind: TypeOffer, zone: ZoneOffer, now: datetime) -> tuple[str, ...]:
    return (
        kind.instance_type,
        zone.zone or NOTHING,
        "spot" if zone.market is Market.SPOT else "on demand",
        _usd(zone.usd_per_hour),
        NOTHING if zone.hazard_per_h is None else f"{zone.hazard_per_h:.2g}",
        _ago(zone.refused_at, now),
        _ago(zone.lost_at, now),
    )


def _ago(at: datetime | None, now: datetime) -> str:
    return NOTHING if at is None else f"{format_age(at, now)} ago"
