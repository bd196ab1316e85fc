"""A lane that has more replicas than it wants, as in shadow mode, is shown as what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.cli.main import main
from fleetctl.cli.progress import Progress
from fleetctl.cli.up import wait_ready
from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    import pytest

    from fleetctl.model.status import FleetStatus


def status_of(fakes: FakeSite, ready: int, wanted: int) -> FleetStatus:
    seen = fakes.ready_status("demo")
    return replace(seen, lanes=(replace(seen.lanes[0], ready=ready, wanted=wanted), *seen.lanes[1:]))


def test_up_and_why_count_no_more_replicas_of_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    fakes = FakeSite()
    desired = fakes.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    rest = sum(lane.wanted for lane in fakes.ready_status("demo").lanes[1:])
    fakes.host.gateways.add("demo")
    seen = [status_of(fakes, 0, 1), status_of(fakes, 3, 1)]
    fakes.host.controllers["demo"] = lambda: seen[0] if len(seen) == 1 else seen.pop(0)
    wait_ready(fakes.site, desired, Progress(), timeout_s=30)
    shown = capsys.readouterr().err
    assert f"{rest} of {rest + 1} replicas ready (short 0/1" in shown
    assert f"{rest + 3} replicas ready, {rest + 1} wanted (short 3/1" in shown
    assert main(["why", "short"], site=fakes.site) == 0
    assert "3 replicas ready, 1 wanted" in capsys.readouterr().out
