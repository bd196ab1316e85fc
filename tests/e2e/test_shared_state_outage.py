"""The object store of a shared state goes away under a running fleet, each way it can, and comes back."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.fleet import Home, live_replicas
from tests.living_profiles import placed_profile
from tests.ports import free_port
from tests.sender import SENDER
from tests.state.s3_proxy import Fault, S3Proxy
from tests.state.s3_server import BUCKET, S3Server, environment_to
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.enable_socket]

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = placed_profile(
    "shared",
    provider="local",
    lane="chat",
    replicas="min: 2, max: 4",
    ttft="2s",
    output_tokens="p50: 32, p99: 100",
    startup="0.5s",
    keys="""\
gateway: {host: 127.0.0.1, port: PORT}
""",
)


class Outage:
    """What S3 does to every call now."""

    def __init__(self) -> None:
        self.fault = Fault.NONE

    def of(self, method: str, path: str) -> Fault:
        del method, path
        return self.fault


@pytest.fixture
def outage() -> Outage:
    return Outage()


@pytest.fixture
def home(tmp_path: Path, outage: Outage) -> Iterator[Home]:
    server = S3Server.start(tmp_path / "s3.log")
    root = Path(tempfile.mkdtemp(prefix="fo-"))
    try:
        with S3Proxy(server.port, outage.of).running() as proxy:
            variables = environment_to(proxy.port) | {"FLEETCTL_STATE": f"s3://{BUCKET}/team"}
            home = Home(root=root, env=variables)
            yield home
            outage.fault = Fault.NONE
            left = home.kill_everything()
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


def answered(port: int) -> bool:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    return SENDER.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=30.0).status_code == 200


def engines(home: Home) -> set[int]:
    return {each.pid for each in home.processes() if any("emulator" in word for word in each.cmdline())}


def test_a_fleet_serves_on_and_orders_nothing_twice_while_its_state_is_gone(home: Home, outage: Outage) -> None:
    port = free_port()
    profile = home.root / "shared.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=200.0)
    controller = home.status("shared").controller_pid
    for fault in (Fault.HANG, Fault.DENIED):
        before = {row.record.id for row in live_replicas(home.status("shared"))}
        running = engines(home)
        outage.fault = fault
        (victim, *_) = sorted(running)
        until(lambda: home.status("shared").store_condition is not None, f"{fault}: the status says so")
        # One is lost meanwhile: another takes its place once that can be written down, and one alone.
        victim_process = next(each for each in home.processes() if each.pid == victim)
        victim_process.kill()
        SYSTEM_CLOCK.sleep_blocking(4.0)
        assert all(answered(port) for _ in range(3)), fault
        assert len(engines(home)) <= len(running), f"{fault}: nothing is ordered that is not on record"
        outage.fault = Fault.NONE
        until(
            lambda: sum(row.record.state.value == "ready" for row in live_replicas(home.status("shared"))) == 2,
            f"{fault}: the controller has taken up again",
        )
        now = {row.record.id for row in live_replicas(home.status("shared"))}
        assert len(now - before) == 1, fault
        assert len(engines(home)) == len(running), fault
        assert home.status("shared").controller_pid == controller, fault
    home.fleetctl("down", "shared", "--yes", timeout_s=120.0)
