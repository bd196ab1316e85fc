"""What a plan asks of its provider, and what becomes of a plugin that does not load."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl import plugins
from fleetctl.errors import ConfigError, ThrottledError
from fleetctl.operations.planning import offerings_now
from fleetctl.testing.provider import FakeProvider
from tests.sites import FakeSite

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.catalogue import Offering
    from fleetctl.operations.site import Site


class ThrottlingProvider(FakeProvider):
    """Refuses the first questions about what it sells."""

    refusals = 0

    async def offerings(self) -> tuple[Offering, ...]:
        if self.refusals:
            self.refusals -= 1
            raise ThrottledError("asked too often", retry_after_s=2.0)
        return await super().offerings()


def throttled(refusals: int) -> tuple[Site, FakeSite, ThrottlingProvider]:
    fakes = FakeSite()
    provider = ThrottlingProvider(fakes.clock)
    provider.refusals = refusals
    return replace(fakes.site, providers=lambda _: provider), fakes, provider


async def test_a_throttled_provider_is_asked_again_when_it_says() -> None:
    site, fakes, provider = throttled(3)
    response = asyncio.create_task(offerings_now(site, "fake"))
    await fakes.clock.advance(4.0)
    assert not response.done()
    await fakes.clock.advance(2.0)
    assert await response == await provider.offerings()


async def test_a_provider_that_throttles_for_a_minute_is_given_up() -> None:
    site, fakes, _ = throttled(1000)
    response = asyncio.create_task(offerings_now(site, "fake"))
    await fakes.clock.advance(61.0)
    with pytest.raises(ThrottledError, match="asked too often"):
        await response


def test_a_plugin_that_does_not_import_is_the_package_s_fault_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "zeta-1.dist-info"
    named.mkdir()
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: zeta\nVersion: 1\n")
    (named / "entry_points.txt").write_text("[fleetctl.engine]\nzeta = zeta_engine.missing:ZetaEngine\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ConfigError, match=r"engine .zeta. does not load from zeta_engine\.missing:ZetaEngine"):
        plugins.load_engine("zeta")
