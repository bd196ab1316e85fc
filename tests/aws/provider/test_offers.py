"""What AWS sells where somebody only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market, OfferList

if TYPE_CHECKING:
    import pytest

    from tests.aws.provider.conftest import Rented


async def listed(rented: Rented) -> OfferList:
    lists = rented.provider().capabilities.offer_lists
    assert lists is not None
    return await lists.offer_list()


async def test_todays_prices_are_of_every_zone_of_the_region_whatever_the_subnets(rented: Rented) -> None:
    rented.cloud.price("g6.xlarge", "spot", 0.31, zone="us-east-1b")
    found = await listed(rented)
    assert (found.is_live, found.cautions) == (True, ())
    assert found.source == "the Pricing API and the spot price history"
    spot = {o.zone: o.price_usd_per_hour for o in found.offerings if o.key.startswith("g6.xlarge/") and o.market is Market.SPOT}  # fmt: skip
    assert spot["us-east-1b"] == 0.31
    assert len(spot) > 3


async def test_without_the_right_to_prices_the_types_are_todays_and_the_prices_the_lists(rented: Rented) -> None:
    rented.cloud.fault("error", action="GetProducts", code="AccessDeniedException", times=None)
    found = await listed(rented)
    assert not found.is_live
    assert "the packaged list of July 2026" in found.source
    assert {o.zone for o in found.offerings if o.instance_type == "g6.xlarge"} > {"us-east-1a"}


async def test_without_any_right_or_any_credentials_the_packaged_list_is_all_there_is(
    rented: Rented, monkeypatch: pytest.MonkeyPatch
) -> None:
    rented.cloud.fault("error", action="DescribeInstanceTypes", code="UnauthorizedOperation", times=None)
    refused = await listed(rented)
    rented.cloud.clear_faults()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for found in (refused, await listed(rented)):
        assert found.source == "the packaged list of July 2026 for us-east-1"
        assert not found.is_live
        (l40s,) = (o for o in found.offerings if o.instance_type == "g6e.xlarge")
        assert (l40s.gpu, l40s.gpu_count, l40s.price_usd_per_hour, l40s.zone) == ("L40S", 1, 1.861, "")
        assert "zones and spot prices are not known" in found.cautions[0]
