"""What `doctor` says of every kind of living process: it never advises to end one that serves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import UnavailableError
from fleetctl.locks import FileLock
from fleetctl.model.preflight import Verdict
from fleetctl.operations.doctor import diagnose
from fleetctl.paths import FleetPaths, state_dir
from fleetctl.testing import samples
from fleetctl_host_local.host import LocalHost
from tests.sites import FakeSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.operations.site import Site


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that is called as one of a fleet's, and does nothing but listen if told where."""
    script = tmp_path / "process.py"
    script.write_text(
        "import socket, sys, time\n"
        "port = int(sys.argv[-1]) if '--port' in sys.argv else 0\n"
        "listener = socket.create_server(('127.0.0.1', port)) if port else None\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, script, *argv], env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def site() -> Site:
    fakes = FakeSite()
    state_dir().mkdir(mode=0o700, exist_ok=True)
    (state_dir() / "state.db").touch()
    fakes.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    return replace(fakes.site, host=LocalHost())


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def findings(site: Site) -> str:
    return "\n".join(f"{check.name}: {check.found}: {check.advice}" for check in diagnose(site))


def test_nothing_of_a_living_fleet_is_called_superfluous(site, spawn):
    owner = site.store.owner
    spawn("-m", "fleetctl.controller", "demo")
    spawn("-m", "fleetctl.gateway", "demo", "--stop-timeout-s", "10")
    spawn("-m", "fleetctl.gateway", "x", FLEETCTL_OWNER=owner, FLEETCTL_FLEET="demo", FLEETCTL_REPLICA="r1")
    report = findings(site)
    assert "orphaned processes: no process without a fleet" in report
    assert "kill" not in report


def test_another_states_fleet_is_not_looked_at(site, spawn, tmp_path):
    spawn("-m", "fleetctl.gateway", "theirs", XDG_STATE_HOME=str(tmp_path / "other"))
    assert "theirs" not in findings(site)


def test_processes_of_a_fleet_that_is_gone_are_ended_by_down_and_never_by_hand(site, spawn):
    process = spawn("-m", "fleetctl.gateway", "lost", "--stop-timeout-s", "10")
    report = findings(site)
    assert f"{process.pid} (gateway of lost)" in report
    assert "put the state back where it was, or end them: fleetctl down lost" in report
    assert "kill" not in report


def test_a_lock_that_nobody_holds_is_no_process(site, spawn):
    spawn("-m", "fleetctl.gateway", "demo")
    held = FileLock(FleetPaths(fleet="demo").gateway_lock, command="gateway")
    assert held.try_acquire()
    stale = FleetPaths(fleet="demo").controller_lock
    stale.write_text('{"pid": 1, "command": "controller"}')
    check = next(check for check in diagnose(site) if check.name == "fleet demo")
    held.release()
    assert (check.verdict, check.found) == (Verdict.WARN, "should be up; alive: gateway")
    assert check.advice == "fleetctl up PROFILE starts what is missing"


def test_a_port_held_by_a_gateway_is_left_to_it(spawn, port, tmp_path):
    process = spawn("-m", "fleetctl.gateway", "theirs", "--port", str(port), XDG_STATE_HOME=str(tmp_path / "other"))
    with pytest.raises(UnavailableError, match=rf"by the gateway of fleet theirs \(pid {process.pid}\)") as caught:
        LocalHost().check_port("127.0.0.1", port)
    assert caught.value.hint == "give this gateway another port: fleetctl up --port N"


def test_a_port_held_by_another_program_names_it(port):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(UnavailableError) as caught:
        LocalHost().check_port("127.0.0.1", port)
    assert f"(pid {os.getpid()})" in caught.value.message
    assert caught.value.hint.startswith("give the gateway another: fleetctl up --port N")
