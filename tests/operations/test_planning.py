"""What a plan asks of its provider, and what becomes of a plugin that does not load."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl import plugins
from fleetctl.core.plan.workload import lane_demands
from fleetctl.errors import ConfigError, ThrottledError
from fleetctl.model.profile import LaunchOverrides
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.operations.approval import check_plan
from fleetctl.operations.planning import offerings_now, plan_profile, traced_requests
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from fleetctl.testing.provider import FakeProvider
from tests.sites import FakeSite

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.catalogue import Offering
    from fleetctl.model.profile import Profile
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
    response = asyncio.create_task(offerings_now(site, ProviderChoice(name="fake")))
    await fakes.clock.advance(4.0)
    assert not response.done()
    await fakes.clock.advance(2.0)
    assert await response == await provider.offerings()


async def test_a_provider_that_throttles_for_a_minute_is_given_up() -> None:
    site, fakes, _ = throttled(1000)
    response = asyncio.create_task(offerings_now(site, ProviderChoice(name="fake")))
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


def spanning(engine: str) -> Profile:
    """Return a fleet whose `short` replicas span two machines."""
    base = samples.profile()
    short, long = base.lanes
    return replace(base, lanes=(replace(short, engine=engine, launch=LaunchOverrides(pipeline_parallel=2)), long))


async def test_replicas_over_several_machines_are_refused_where_the_provider_gives_no_groups() -> None:
    fakes = FakeSite()
    site = replace(fakes.site, engines=load_engine)
    with pytest.raises(
        ConfigError, match=r"lanes\.short\.launch\.pipeline_parallel is 2, and provider fake gives no groups"
    ):
        await plan_profile(site, spanning("vllm"))
    with pytest.raises(ConfigError, match="gives no groups of machines"):
        check_plan(site, spanning("vllm"), samples.plan())


@pytest.mark.parametrize(
    ("engine", "pinned", "says"),
    [
        ("tgi", {"data_parallel": 2}, "lane short: tgi has no data_parallel"),
        ("llamacpp", {"pipeline_parallel_local": 2}, "lane short: llamacpp has no pipeline_parallel_local"),
        ("emulator", {"data_parallel": 2}, "lane short: emulator, which plays vllm, has no data_parallel"),
    ],
)
async def test_stages_and_ranks_are_refused_where_the_engine_has_none(
    engine: str, pinned: dict[str, Any], says: str
) -> None:
    site, base = replace(FakeSite().site, engines=load_engine), samples.profile()
    short, long = base.lanes
    lanes = (replace(short, engine=engine, launch=LaunchOverrides(**pinned)), long)
    with pytest.raises(ConfigError, match=says) as refused:
        await plan_profile(site, replace(base, lanes=lanes))
    assert any(part.key == ("lanes", "short", "launch", *pinned) for part in refused.value.parts)


async def test_replicas_over_several_machines_are_refused_where_the_engine_cannot() -> None:
    fakes = FakeSite()
    fakes.provider.capabilities = replace(fakes.provider.capabilities, node_groups=True)
    site = replace(fakes.site, engines=load_engine)
    with pytest.raises(ConfigError, match="engine sglang runs on one machine only"):
        await plan_profile(site, spanning("sglang"))
    played = spanning("emulator")
    plays_tgi = replace(played.lanes[0], emulator=replace(played.lanes[0].emulator, flavour="tgi"))
    with pytest.raises(ConfigError, match="engine emulator, which plays tgi, runs on one machine only"):
        await plan_profile(site, replace(played, lanes=(plays_tgi, *played.lanes[1:])))
    plan = await plan_profile(site, spanning("vllm"))
    assert plan.lane("short").node_count == 2
    assert plan.nodes == 2 * plan.lane("short").replicas + plan.lane("long").replicas


def test_a_trace_that_says_that_nothing_is_cached_is_not_overruled_by_the_workload(tmp_path: Path) -> None:
    profile = samples.profile()
    rows = [f"{number / 10:g},400,5" for number in range(100)]
    for name, column, cell, hit in (("silent", "", "", 0.5), ("telling", ",cached_prefix_tokens_inf", ",0", 0.0)):
        trace = tmp_path / f"{name}.csv"
        trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens" + column, *(row + cell for row in rows)]))
        traced = replace(profile, workload=replace(profile.workload, trace=str(trace), prefix_hit=0.5))
        demands = lane_demands(traced, traced_requests(traced))
        assert {demand.prefix_hit for demand in demands.values()} == {hit}, name
