"""What AWS sells where somebody only looks: the region's own answer, else the packaged list with its date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.errors import ConfigError, ProviderError, ThrottledError
from fleetctl.model.catalogue import Market, Offering, OfferList
from fleetctl.printable import shortened
from fleetctl_aws.offerings import offerings_of
from fleetctl_aws.prices import packaged_prices

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.errors import FleetctlError
    from fleetctl_aws.connection import AwsConnection

_WHY_CHARS_MAX = 160


async def offer_list(connection: AwsConnection, *, now: datetime) -> OfferList:
    """Return the GPU instance types of all zones of the region; those of the packaged list where nobody may ask.

    Raises ThrottledError, after which the same question may be answered.
    """
    try:
        sold, prices = await offerings_of(connection, None, now=now)
    except ThrottledError:
        raise
    except (ProviderError, ConfigError) as exc:
        return _packaged(exc)
    source = prices.source if not prices.spot else f"{prices.source} and the spot price history"
    return OfferList(offerings=sold, source=source, is_live=prices.is_live, cautions=prices.cautions)


def _packaged(exc: FleetctlError) -> OfferList:
    """Return what the packaged list has, types and prices on demand and no zones, with why AWS was not asked and what to do about it."""
    listed, known = packaged_prices(), load_catalogue().gpus
    sold = [
        Offering(
            provider="aws", instance_type=name, gpu=gpu, gpu_count=count, region=listed.region, zone="",
            market=Market.ON_DEMAND, price_usd_per_hour=listed.on_demand_usd_per_hour[name],
        )
        for name, (gpu, count) in sorted(listed.gpus.items())
        if gpu in known and name in listed.on_demand_usd_per_hour
    ]  # fmt: skip
    remedy = f"; {exc.hint}" if exc.hint else ""
    cautions = (f"AWS could not be asked ({_shortened(exc.message)}): zones and spot prices are not known{remedy}",)
    source = f"the packaged list of {listed.as_of} for {listed.region}"
    return OfferList(offerings=tuple(sold), source=source, is_live=False, cautions=cautions)


def _shortened(message: str) -> str:
    """Return an error's message cut in length, AWS's code at its end kept."""
    text, _, code = message.rpartition(" (")
    return (
        f"{shortened(text, _WHY_CHARS_MAX)} ({code}"
        if text and code.endswith(")")
        else shortened(message, _WHY_CHARS_MAX)
    )
