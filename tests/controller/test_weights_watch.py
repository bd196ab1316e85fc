"""How far the weights have come that starting engines fetch, as the controller tells it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.controller.weights_watch import WeightsWatch
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from fleetctl.testing.clocks import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.node import BootProgress

MIB = 2**20
REPLICA = samples.replica()


class Watched:
    """A watch on a machine whose cache the test writes; ten seconds pass between looks."""

    def __init__(self, cache: Path, *, runs_here: bool = True) -> None:
        self.clock = ManualClock(samples.EPOCH)
        desired = SimpleNamespace(profile=samples.profile(), plan=samples.plan())
        engine = load_engine("vllm")
        world: Any = SimpleNamespace(
            store=SimpleNamespace(fleet=lambda: desired),
            provider=SimpleNamespace(capabilities=SimpleNamespace(runs_here=runs_here)),
            clock=self.clock,
            engine_of=lambda _: engine,
        )
        self.watch = WeightsWatch(world)
        model = desired.plan.lane(REPLICA.lane).launch.model
        self.blob = cache / f"models--{model.replace('/', '--')}" / "blobs" / "one.incomplete"
        self.blob.parent.mkdir(parents=True)

    async def progress(self, written_bytes: int) -> BootProgress | None:
        self.blob.write_bytes(b"w" * written_bytes)
        self.clock.jump(10.0)
        await self.watch.look([REPLICA])
        return self.watch.progress(REPLICA)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))


async def test_a_download_that_goes_on_has_its_bytes_and_its_rate(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    first = await watched.progress(4 * MIB)
    assert first is not None
    assert (first.done_bytes, first.bytes_per_s) == (4 * MIB, 0.0)
    second = await watched.progress(14 * MIB)
    assert second is not None
    assert (second.phase, second.done_bytes) == ("weights", 14 * MIB)
    assert second.bytes_per_s == pytest.approx(MIB)


async def test_what_nobody_fetches_is_not_told_of(tmp_path: Path) -> None:
    assert await Watched(tmp_path).progress(2_000) is None


async def test_replicas_that_start_elsewhere_have_no_cache_here(tmp_path: Path) -> None:
    assert await Watched(tmp_path, runs_here=False).progress(4 * MIB) is None


async def test_a_lane_that_starts_nothing_is_forgotten(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert await watched.progress(4 * MIB) is not None
    await watched.watch.look([replace(REPLICA, lane="long")])
    assert watched.watch.progress(REPLICA) is None
