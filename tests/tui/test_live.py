"""The screen's source and actions: what they would do, in the CLI's words and with its refusals."""

from __future__ import annotations

import pytest

from fleetctl.cli.main import main
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.ladder import LadderStep
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.samples import plan, profile, replica
from fleetctl.tui.live import LiveActions, LiveSource
from tests.sites import FakeSite


@pytest.fixture
def fakes() -> FakeSite:
    made = FakeSite()
    now = made.clock.now()
    made.store.put_fleet(profile(), plan(), now=now)
    made.store.put_replica(
        replica("r1", state=ReplicaState.READY, created_at=now, changed_at=now, reason="in rotation")
    )
    return made


async def test_what_would_be_done_is_said_and_not_done(fakes: FakeSite) -> None:
    actions = LiveActions(fakes.site, "demo")
    assert await actions.scale("short", 4, dry_run=True) == "short: replicas automatic -> 4"
    assert await actions.scale("short", None, dry_run=True) == "short: replicas automatic, unchanged"
    assert await actions.shed("long", LadderStep.SPILL, dry_run=True) == "long: ladder step automatic -> spill"
    assert await actions.drain("r1", dry_run=True) == "r1 (ready) would be drained"
    desired = fakes.store.fleet("demo")
    assert desired is not None
    assert (desired.overrides.replicas, desired.overrides.step) == ({}, {})
    assert not fakes.store.replicas("demo")[0].drain_requested


async def test_refusals_are_the_clis(fakes: FakeSite) -> None:
    actions = LiveActions(fakes.site, "demo")
    with pytest.raises(ConfigError, match="takes 1 to 8 replicas"):
        await actions.scale("short", 99, dry_run=True)
    with pytest.raises(NotFoundError, match="r9"):
        await actions.drain("r9", dry_run=True)


async def test_explanation_comes_from_the_journal_and_the_plan(fakes: FakeSite) -> None:
    found = await LiveSource(fakes.site, "demo").explain("r1")
    assert found.now == "in rotation"
    assert found.plan is not None
    assert found.plan.lane == "short"
    with pytest.raises(NotFoundError):
        await LiveSource(fakes.site, "demo").explain("nobody")


async def test_without_a_controller_the_stream_gives_the_stored_status(fakes: FakeSite) -> None:
    stream = LiveSource(fakes.site, "demo").watch()
    status = await anext(stream)
    assert not status.controller_alive
    assert [r.record.id for r in status.replicas] == ["r1"]
    await stream.aclose()  # type: ignore[attr-defined]  # watch() is an async generator


def test_top_once_prints_a_frame_of_the_width_asked_for(fakes: FakeSite, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.host.on_start = None
    assert main(["top", "demo", "--once", "--width", "90"], site=fakes.site) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("demo ● STALE")
    assert "r1" in shown
    assert max(len(line) for line in shown.splitlines()) <= 90
