"""The Pricing API's products of EC2, which moto lacks: the on-demand prices that the cloud has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.aws.cloud.capacity import Pool

if TYPE_CHECKING:
    from tests.aws.cloud.calls import AwsCall
    from tests.aws.cloud.capacity import CapacityModel

_PAGE_MAX = 100


def pricing_response(call: AwsCall, capacity: CapacityModel) -> dict[str, Any] | None:
    """Return the response to GetProducts, whose items are JSON as text; None: it is another call."""
    if call.service != "pricing" or call.action != "GetProducts":
        return None
    numbers = [
        name.split(".")[1] for name in call.parameters if name.startswith("Filters.") and name.endswith(".Field")
    ]
    wanted = {call.parameters[f"Filters.{n}.Field"]: call.parameters[f"Filters.{n}.Value"] for n in numbers}
    region = wanted.get("regionCode", call.region)
    products = [_product(name, region, capacity) for name in sorted(INSTANCE_TYPES)]
    found = [
        each
        for each in products
        if all(each["product"]["attributes"].get(key) == value for key, value in wanted.items())
    ]
    first = int(call.parameters.get("NextToken") or 0)
    size = min(int(call.parameters.get("MaxResults") or _PAGE_MAX), _PAGE_MAX)
    page = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(each) for each in found[first : first + size]]}
    return page | ({"NextToken": str(first + size)} if len(found) > first + size else {})


def _product(name: str, region: str, capacity: CapacityModel) -> dict[str, Any]:
    price = capacity.price(Pool(instance_type=name, zone="*", market="on-demand"))
    has_gpus = "GpuInfo" in INSTANCE_TYPES[name]
    attributes = {
        "instanceType": name,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "instanceFamily": "GPU instance" if has_gpus else "General purpose",
    }
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
    terms = {"OnDemand": {f"{name}.of-the-tests": {"priceDimensions": {f"{name}.of-the-tests.hour": dimension}}}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes},
        "serviceCode": "AmazonEC2",
        "terms": terms,
    }
