"""A runbook's timer under a real systemd: installed, enabled, fired, and removed, as a person does it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from tests.e2e.own_systemd import own_systemd, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.waits, pytest.mark.timeout(240)]

FLEET = "demo"
FIRED_S = 100.0  # a minute until its time, and a loaded machine
RUNBOOK = """\
apiVersion: fleetctl/v1
kind: Runbook
name: minutely
schedule: "* * * * *"
steps:
  - check: {that: "now > timestamp('2026-01-01T00:00:00Z')"}
"""


@pytest.fixture
def manager(home: Home) -> Iterator[None]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with own_systemd(home.environment):
        yield


@pytest.fixture
def fleet(home: Home) -> str:
    """A fleet on record: what a run needs of one that it only looks at."""
    state = Path(home.environment["XDG_STATE_HOME"]) / "fleetctl"
    state.mkdir(mode=0o700)
    with_record = SqliteStore(state / "state.db", clock=SYSTEM_CLOCK)
    with_record.put_fleet(samples.profile(FLEET), samples.plan(FLEET), now=SYSTEM_CLOCK.now())
    with_record.close()
    return FLEET


def runs(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = home.query("runbook", "history", FLEET)
    return found


def test_a_timer_that_install_cron_writes_fires_and_its_run_is_on_record(home: Home, fleet: str, manager: None) -> None:
    file, units = home.root / "minutely.yaml", Path(home.environment["XDG_CONFIG_HOME"]) / "systemd" / "user"
    file.write_text(RUNBOOK)
    unit = f"fleetctl-runbook-minutely-{fleet}"
    install = ("runbook", "install-cron", str(file), "--fleet", fleet, "--systemd", "--user")
    assert f"{unit}.timer" in home.fleetctl(*install)
    assert (units / "timers.target.wants" / f"{unit}.timer").is_symlink()

    deadline_s = SYSTEM_CLOCK.monotonic_s() + FIRED_S
    while not any(run["status"] == "succeeded" for run in runs(home)):
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, (home.root / "systemd.log").read_text()
        SYSTEM_CLOCK.sleep_blocking(1.0)
    first = runs(home)[0]
    assert (first["runbook"], first["status"], first["actor"]["channel"]) == ("minutely", "succeeded", "systemd")
    assert first["actor"]["user"] == os.environ.get("USER", "root")

    home.fleetctl(*install, "--remove")
    assert not list(units.rglob(f"{unit}*"))
