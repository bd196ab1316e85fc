"""What instances cost an hour: by the Pricing API and the spot price history, else by the packaged list."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl import codec, resources
from fleetctl.errors import ConfigError, ProviderError
from fleetctl.printable import shortened
from fleetctl.yaml_text import load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fleetctl_aws.connection import AwsConnection

Object = dict[str, Any]
LIST = "aws-prices.yaml"
# Where the Pricing API is, whichever region is asked about; China's has another, which needs other credentials too.
_PRICING_REGION = "us-east-1"
_HOURS_A_MONTH = 730.0
_WHY_CHARS_MAX = 200
_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices in dollars an hour, and where they are from."""

    on_demand: dict[str, float] = field(default_factory=dict)  # by instance type
    spot: dict[tuple[str, str], float] = field(default_factory=dict)  # by instance type and zone
    source: str = ""
    is_live: bool = True  # whether those on demand are today's
    cautions: tuple[str, ...] = ()  # what is not as it should be, a sentence each

    def spot_price(self, instance_type: str, zone: str) -> float | None:
        """Return the price of a spot instance: where it is not known the one on demand, which it never passes."""
        return self.spot.get((instance_type, zone), self.on_demand.get(instance_type))


class _PackagedPrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The packaged list as its file has it."""

    as_of: str
    region: str
    on_demand_usd_per_hour: dict[str, float]
    head_usd_per_hour: dict[str, float] = {}
    disk_usd_per_gb_month: float = 0.08
    gpus: dict[str, tuple[str, int]] = {}  # msgspec copies it; a list of one's own may have none


async def read_prices(connection: AwsConnection, names: Iterable[str], *, now: datetime) -> PriceList:
    """Return the prices of these types; what the credentials may not read is taken from the packaged list, and said."""
    names = sorted(names)
    cautions: list[str] = []
    packaged = packaged_prices()
    source, is_live = "the Pricing API", True
    try:
        on_demand = await _on_demand(connection)
    except ProviderError as exc:
        on_demand, source, is_live = {}, f"the packaged list of {packaged.as_of}", False
        cautions.append(
            f"on-demand prices are the list's of {packaged.as_of} for {packaged.region} ({shortened(exc.message, _WHY_CHARS_MAX)})"
        )
    if missing := [name for name in names if name not in on_demand and name in packaged.on_demand_usd_per_hour]:
        on_demand |= {name: packaged.on_demand_usd_per_hour[name] for name in missing}
    try:
        spot = await _spot(connection, names, now)
    except ProviderError as exc:
        spot = {}
        cautions.append(
            f"spot prices are not known and count as those on demand ({shortened(exc.message, _WHY_CHARS_MAX)})"
        )
    return PriceList(on_demand=on_demand, spot=spot, source=source, is_live=is_live, cautions=tuple(cautions))


def packaged_prices() -> _PackagedPrices:
    """Return the packaged list. Raises ConfigError for a file that cannot be used."""
    import yaml

    path = resources.find("profiles", LIST)
    try:
        return codec.from_plain(_PackagedPrices, load_yaml(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as exc:
        raise ConfigError(f"{path}: is no list of prices: {exc}") from exc


def disk_usd_per_hour(disk_gb: int) -> float:
    """Return what an instance's gp3 disk costs beside it, by the packaged list."""
    return disk_gb * packaged_prices().disk_usd_per_gb_month / _HOURS_A_MONTH


async def price_of_type(connection: AwsConnection, name: str) -> float:
    """Return the dollars an hour of one instance type on demand: today's where allowed, else the packaged list's.

    Raises ProviderError for a type that neither has.
    """
    try:
        if found := await _on_demand(connection, instanceType=name):
            return found[name]
        why = "the Pricing API has none"
    except ProviderError as exc:
        why = exc.message
    listed = packaged_prices()
    known = {**listed.on_demand_usd_per_hour, **listed.head_usd_per_hour}
    if name not in known:
        raise ProviderError(
            f"the price of {name} is not known ({shortened(why, _WHY_CHARS_MAX)})",
            hint=f"allow pricing:GetProducts, or write it into your own {LIST} under head_usd_per_hour",
        )
    return known[name]


async def _on_demand(connection: AwsConnection, **of: str) -> dict[str, float]:
    wanted = {
        "regionCode": connection.region, "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA",
        "capacitystatus": "Used", **(of or {"instanceFamily": "GPU instance"}),
    }  # fmt: skip
    # Each is a document of its own, as text.
    products: list[Any] = await connection.read_all(
        "pricing", "get_products", "PriceList", region=_PRICING_REGION, ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()],
    )  # fmt: skip
    found = {}
    for text in products:
        product = json.loads(text)
        name = product["product"]["attributes"].get("instanceType", "")
        if name and (price := price_of(product)):
            found[name] = price
    return found


def price_of(product: Mapping[str, Any]) -> float:
    """Return the dollars an hour in one entry of the price list; 0 where it has no such price."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if dimension.get("unit") == "Hrs":
                return float(dimension.get("pricePerUnit", {}).get("USD", 0.0))
    return 0.0


async def _spot(connection: AwsConnection, names: list[str], now: datetime) -> dict[tuple[str, str], float]:
    history = await connection.read_all(
        "ec2", "describe_spot_price_history", "SpotPriceHistory",
        InstanceTypes=names, ProductDescriptions=list(_LINUX), StartTime=now, EndTime=now,
    )  # fmt: skip
    latest: dict[tuple[str, str], Object] = {}
    for each in history:
        key = (each["InstanceType"], each["AvailabilityZone"])
        if key not in latest or latest[key]["Timestamp"] < each["Timestamp"]:
            latest[key] = each
    return {key: float(each["SpotPrice"]) for key, each in latest.items() if float(each["SpotPrice"]) > 0}
