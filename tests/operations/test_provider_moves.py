"""Where a fleet's nodes are stays as it is while it has any, and what it left there is found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError
from fleetctl.model.provider_setting import ProviderSetting
from fleetctl.operations import lifecycle
from fleetctl.operations.garbage import find_orphaned
from fleetctl.testing import samples
from fleetctl.testing.orders import as_it_is
from fleetctl.testing.provider import FakeProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import Profile
    from fleetctl.model.provider_setting import SettingValue
    from tests.sites import FakeSite

REGION = ProviderSetting(name="region", description="Where its nodes are.", variable="ZETA_REGION", is_place=True)
FLAVOUR = ProviderSetting(name="flavour", description="What new nodes run.")


@pytest.fixture
def placed(fakes: FakeSite) -> FakeSite:
    fakes.provider = FakeProvider(fakes.clock, declared=(REGION, FLAVOUR))
    return fakes


def at(**settings: SettingValue) -> Profile:
    return replace(samples.profile(), provider="fake", provider_settings=settings)


def bring_up(fakes: FakeSite, profile: Profile) -> Desired:
    desired = lifecycle.up(fakes.site, profile, samples.plan()).desired
    if not fakes.store.replicas(profile.name):
        fakes.store.put_replica(samples.replica("short-1", fleet=profile.name))
    return desired


def test_up_refuses_another_place_for_a_fleet_that_has_nodes(placed: FakeSite) -> None:
    bring_up(placed, at(region="north-1", flavour="old"))
    assert dict(placed.provider.settings) == {"region": "north-1", "flavour": "old"}
    with pytest.raises(ConfigError, match=r"demo has nodes at region north-1, .* at south-2") as caught:
        bring_up(placed, at(region="south-2", flavour="old"))
    assert caught.value.hint == "keep region: north-1; or take the fleet down first: fleetctl down demo"
    assert caught.value.key == ("provider", "region")
    with pytest.raises(ConfigError, match=r"at \(not given\)"):
        bring_up(placed, at())
    assert bring_up(placed, at(region="north-1", flavour="new")).profile.provider_settings["flavour"] == "new"


def test_a_place_that_only_the_environment_says_is_one_too(placed: FakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZETA_REGION", "north-1")
    placed.provider.capabilities = replace(placed.provider.capabilities, variables=frozenset({"ZETA_REGION"}))
    bring_up(placed, at())
    assert bring_up(placed, at(region="north-1")).generation == 2  # the same place, in other words
    bring_up(placed, at())
    monkeypatch.setenv("ZETA_REGION", "south-2")
    with pytest.raises(ConfigError, match=r"at south-2 \(ZETA_REGION\)"):
        bring_up(placed, at())


def test_up_refuses_another_provider_for_a_fleet_that_has_nodes(placed: FakeSite) -> None:
    bring_up(placed, at())
    site = replace(placed.site, providers=lambda _: placed.provider)
    with pytest.raises(ConfigError, match="demo has nodes at provider fake, which nobody would look after at other"):
        lifecycle.up(site, replace(at(), provider="other"), samples.plan())


def test_what_a_fleet_left_is_looked_for_in_the_place_it_was_in(fakes: FakeSite) -> None:
    there = FakeProvider(fakes.clock, declared=(REGION,))
    here = FakeProvider(fakes.clock, declared=(REGION,))

    def configured(given: Mapping[str, SettingValue]) -> FakeProvider:
        return there if given else here

    here.configured = configured  # type: ignore[method-assign]
    fakes.provider = here
    bring_up(fakes, at(region="north-1"))
    order = samples.node_request("t1", owner=fakes.store.owner, fleet="lost")
    fakes.store.next_replica_number("lost")
    asyncio.run(there.create((order,), resolve_secrets=as_it_is))

    async def found() -> list[tuple[str, Mapping[str, SettingValue]]]:
        task = asyncio.ensure_future(find_orphaned(fakes.site))
        while not task.done():
            await fakes.clock.advance(0.5)
        return [(each.token, each.provider_settings) for each in (await task).resources]

    assert asyncio.run(found()) == [("t1", {"region": "north-1"})]
