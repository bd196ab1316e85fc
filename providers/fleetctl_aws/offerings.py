"""What a region sells: GPU instance types by zone and market, each with its price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.model.catalogue import Market, Offering
from fleetctl_aws.instance_types import gpu_instance_types
from fleetctl_aws.instances import NOTICE_S
from fleetctl_aws.prices import disk_usd_per_hour, read_prices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.instance_types import GpuInstanceType
    from fleetctl_aws.prices import PriceList

# Launch, boot of the machine image, pull of an engine's image of 8 to 10 GB. An estimate: never measured on AWS.
_BOOT_S = 300.0


async def offerings_of(
    connection: AwsConnection, zones: Iterable[str] | None, *, now: datetime, disk_gb: int = 0
) -> tuple[tuple[Offering, ...], PriceList]:
    """Return what may be ordered in these zones, None: in any of the region, and the prices that were read for it.

    What an instance's disk of `disk_gb` costs is in its price.
    """
    kinds = await gpu_instance_types(connection, load_catalogue().gpus)
    prices = await read_prices(connection, (kind.name for kind in kinds), now=now)
    allowed = frozenset(zones) if zones is not None else None
    disk = disk_usd_per_hour(disk_gb) if disk_gb else 0.0
    found = [each for kind in kinds for each in _of_type(kind, connection.region, allowed, prices, disk)]
    return tuple(found), prices


def _of_type(
    kind: GpuInstanceType, region: str, zones: frozenset[str] | None, prices: PriceList, disk_usd_per_hour: float
) -> Iterator[Offering]:
    for zone in kind.zones:
        for market in Market:
            if (zones is not None and zone not in zones) or market.value not in kind.markets:
                continue
            is_spot = market is Market.SPOT
            price = prices.spot_price(kind.name, zone) if is_spot else prices.on_demand.get(kind.name)
            if not price:
                continue  # nothing is ordered at a price that nobody knows
            yield Offering(
                provider="aws",
                instance_type=kind.name,
                gpu=kind.gpu,
                gpu_count=kind.gpu_count,
                region=region,
                zone=zone,
                market=market,
                price_usd_per_hour=price + disk_usd_per_hour,
                boot_s=_BOOT_S,
                notice_s=NOTICE_S if is_spot else 0.0,
                is_shareable=kind.gpu_count > 1,
            )
