"""One fleet on a state in S3, commanded from two machines: its controller is killed, scaled from afar, taken down from afar."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.fleet import Home, lane_of
from tests.ports import free_port
from tests.state.s3_server import BUCKET, S3Server
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """Two users' directories, which see one state."""
    server = S3Server.start(tmp_path / "s3.log")
    env = server.environment | {"FLEETCTL_STATE": f"s3://{BUCKET}/team"}
    roots = [Path(tempfile.mkdtemp(prefix="fs-")) for _ in range(2)]
    here, there = (Home(root=root, env=env) for root in roots)
    yield here, there
    left = [*here.kill_everything(), *there.kill_everything()]
    server.stop()
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


def test_a_fleet_is_kept_and_commanded_from_wherever_its_state_is_seen(homes: tuple[Home, Home]) -> None:
    here, there = homes
    here.fleetctl("up", "quickstart", "--yes", "--port", str(free_port()), timeout_s=200.0)
    first = here.status("quickstart").controller_pid
    (kept,) = there.query("state", "show")["fleets"]
    assert (kept["epoch"], kept["is_released"]) == (1, False)

    os.kill(first, signal.SIGKILL)

    def is_replaced() -> bool:
        seen = here.status("quickstart")
        return seen.controller_alive and seen.controller_pid != first

    until(is_replaced, "a controller has taken over")
    until(lambda: there.query("state", "show")["fleets"][0]["epoch"] == 2, "the lease is taken")

    there.fleetctl("scale", "batch=2", "-f", "quickstart")
    assert there.processes() == [], "the fleet is kept elsewhere"
    until(lambda: lane_of(here.status("quickstart"), "batch").wanted == 2, "what was written there is read here")
    shown = there.fleetctl("status", "quickstart")
    assert "kept by a controller on" in shown
    assert shown.count("not seen from here") == 2, shown  # its gateway and its controller, which both live
    refused = there.run("state", "migrate", "local", "--yes")
    assert refused.code == 7, refused.err

    there.fleetctl("down", "quickstart", "--yes", timeout_s=120.0)
    assert there.query("ls") == []
    until(lambda: here.processes() == [], "nothing of it lives on")
