"""The screen's source and voice on a real store: what they would do, in the CLI's words and with its refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.ladder import LadderStep
from fleetctl.model.replica import ReplicaState
from fleetctl.paths import state_db
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.samples import plan, profile, replica
from fleetctl.tui.live import LiveActions, LiveSource

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    store = SqliteStore(state_db())
    now = SYSTEM_CLOCK.now()
    store.put_fleet(profile(), plan(), now=now)
    store.put_replica(
        replica("short-1", state=ReplicaState.READY, created_at=now, changed_at=now, reason="in rotation")
    )
    store.close()


async def test_what_would_be_done_is_said_and_not_done() -> None:
    actions = LiveActions("demo")
    assert await actions.scale("short", 4, dry_run=True) == "short: replicas automatic -> 4"
    assert await actions.scale("short", None, dry_run=True) == "short: replicas automatic, unchanged"
    assert await actions.shed("long", LadderStep.SPILL, dry_run=True) == "long: ladder step automatic -> spill"
    assert await actions.drain("short-1", dry_run=True) == "short-1 (ready) would be drained"
    store = SqliteStore(state_db())
    wish = store.fleet("demo")
    assert wish is not None
    assert (wish.overrides.replicas, wish.overrides.step) == ({}, {})
    assert not store.replicas("demo")[0].drain_requested
    store.close()


async def test_refusals_are_the_clis() -> None:
    actions = LiveActions("demo")
    with pytest.raises(ConfigError, match="takes 1 to 8 replicas"):
        await actions.scale("short", 99, dry_run=True)
    with pytest.raises(NotFoundError, match="short-9"):
        await actions.drain("short-9", dry_run=True)


async def test_explanation_comes_from_the_journal_and_the_plan() -> None:
    found = await LiveSource("demo").explain("short-1")
    assert found.now == "in rotation"
    assert found.plan is not None
    assert found.plan.lane == "short"
    with pytest.raises(NotFoundError):
        await LiveSource("demo").explain("nobody")


async def test_without_a_controller_the_stream_gives_what_the_store_remembers() -> None:
    stream = LiveSource("demo").watch()
    status = await anext(stream)
    assert not status.controller_alive
    assert [r.record.id for r in status.replicas] == ["short-1"]
    await stream.aclose()  # type: ignore[attr-defined]  # watch() is an async generator


def test_top_once_prints_a_frame_of_the_width_asked_for() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fleetctl", "top", "demo", "--once", "--width", "90"],
        capture_output=True, text=True, check=True, timeout=50,
    )  # fmt: skip
    assert ran.stdout.startswith("demo ● STALE")
    assert "short-1" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines()) <= 90
