"""`fleetctl offers`: what is sold, what was seen of it, and how that is known; it changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from fleetctl.cli.main import main
from fleetctl.errors import NotFoundError, ProviderError
from fleetctl.model.catalogue import Market, OfferList
from fleetctl.model.decision import Memory
from fleetctl.model.hazard import OfferingRecord
from fleetctl.ports.provider import ProviderCapabilities
from fleetctl.testing import samples
from fleetctl.testing.provider import FakeProvider
from tests.sites import FakeSite, plugins_site

if TYPE_CHECKING:
    from fleetctl.ports.provider import Provider

SPOT = samples.offering(market=Market.SPOT, zone="zone-b", price_usd_per_hour=0.7)


@pytest.fixture
def fakes() -> FakeSite:
    made = FakeSite()
    sold = (samples.offering(zone="zone-a"), samples.offering(zone="zone-b"), SPOT)
    made.provider = FakeProvider(made.clock, sold=sold)
    return made


def answer(fakes: FakeSite, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["--readonly", "offers", *argv], site=fakes.site)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_type_is_one_line_with_its_memory_both_prices_and_zones(fakes, capsys):
    code, out, err = answer(fakes, capsys)
    (row,) = [line for line in out.splitlines() if line.startswith(SPOT.instance_type)]
    price = f"{samples.offering().price_usd_per_hour:.2f}"
    assert (code, err) == (0, "")
    assert row.split()[1:5] == [str(SPOT.gpu_count), SPOT.gpu, "45", price]
    assert "0.70" in row
    assert row.endswith("-")  # nothing was seen: no hazard is claimed
    assert max(map(len, out.splitlines())) <= 80


def test_what_fleets_have_seen_is_told_by_zone_and_yesterdays_refusals_are_not(fakes, capsys):
    fakes.store.put_fleet(samples.profile(provider="fake"), samples.plan(), now=fakes.clock.now())
    now = fakes.clock.now()
    record = OfferingRecord(as_of=now, held_h=20.0, losses=3.0, refused_at=now - timedelta(minutes=4))
    old = replace(record, refused_at=now - timedelta(days=2))
    fakes.store.put_memory(
        "demo", Memory(offerings={SPOT.key: record, samples.offering(zone="zone-a").key: old})
    )  # fmt: skip
    _, out, _ = answer(fakes, capsys)
    refused = out.partition("Without stock, or lost nodes, within a day")[2]
    assert "zone-b  spot" in refused
    assert "4m ago" in refused
    assert "zone-a" not in refused
    (provider,) = json.loads(answer(fakes, capsys, "-o", "json")[1])
    zones = {(each["zone"], each["market"]): each for each in provider["types"][0]["zones"]}
    assert zones["zone-b", "spot"]["hazard_per_h"] == pytest.approx((0.1 * 5 + 3) / 25)
    assert zones["zone-b", "on-demand"]["hazard_per_h"] is None
    assert zones["zone-a", "on-demand"]["refused_at"] is None


def test_a_packaged_list_is_said_to_be_one(fakes, capsys):
    class Listing:
        async def offer_list(self) -> OfferList:
            return OfferList(
                offerings=(samples.offering(zone=""),), source="a list of July", is_live=False, cautions=("no rights",)
            )

    fakes.provider.capabilities = ProviderCapabilities(offer_lists=Listing())
    code, out, err = answer(fakes, capsys)
    assert code == 0
    assert "prices by a list of July" in out
    assert "caution: fake: no rights" in err


def test_a_provider_that_fails_is_named_beside_one_that_answers(fakes, capsys):
    def providers(name: str) -> Provider:
        if name == "fake":
            return cast("Provider", fakes.provider)
        raise NotFoundError("its package is broken", hint="install it again")

    both = replace(fakes.site, providers=providers, provider_names=lambda: ("broken", "fake"))
    assert main(["offers"], site=both) == 0
    captured = capsys.readouterr()
    assert "caution: broken could not be asked: its package is broken; install it again" in captured.err
    assert SPOT.instance_type in captured.out
    none = replace(both, provider_names=lambda: ("broken",))
    assert main(["offers"], site=none) == ProviderError("").exit_code


def test_a_profile_narrows_it_to_what_its_capacity_allows(capsys, tmp_path):
    profile = tmp_path / "mine.yaml"
    main(["init", str(profile), "--quiet"])
    site = plugins_site()
    assert main(["offers", str(profile), "-o", "name"], site=site) == 0
    assert {name.partition(".")[0] for name in capsys.readouterr().out.splitlines()} == {"g6e"}
    assert main(["offers", str(profile), "--provider", "local"], site=site) == 3
    assert "a profile names its provider" in capsys.readouterr().err
    profile.write_text(profile.read_text().replace("gpus: [L40S]", "gpus: [L40S]\n  zones: [nowhere]"))
    assert main(["offers", str(profile)], site=site) != 0
    assert "sells nothing that the profile allows" in capsys.readouterr().err


def test_one_provider_is_named_and_a_typing_error_is_met_with_the_nearest(fakes, capsys):
    assert answer(fakes, capsys, "--provider", "fake", "-o", "name")[:2] == (0, f"{SPOT.instance_type}\n")
    assert "fake" in answer(fakes, capsys, "--provider", "fkae")[2]
