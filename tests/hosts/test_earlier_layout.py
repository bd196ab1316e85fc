"""A fleet that an earlier version started, its locks in a runtime directory, gets no second controller."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fleetctl.paths import state_dir
from fleetctl.ports.host import FleetProcesses
from fleetctl_host_local.host import LocalHost
from fleetctl_host_local.runtimes import LocalControllerRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import signal, sys
from pathlib import Path
from fleetctl.locks import FileLock
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
FileLock(Path(sys.argv[1])).acquire(wait_s=5)
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def earlier(role: str, fleet: str, runtime: Path, *, how: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lock where an earlier version had it."""
    owner = hashlib.sha256(str(state_dir()).encode()).hexdigest()[:8]
    lock = runtime / f"fleetctl-{owner}" / fleet / f"{role}.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["", "deaf"])
def test_the_controller_of_an_earlier_version_is_ended_before_another_begins(fleet, tmp_path, how, monkeypatch):
    monkeypatch.setattr("fleetctl_host_local.earlier_layout._END_S", 0.5)
    elsewhere = tmp_path / "of-another-environment"
    with earlier("controller", fleet, elsewhere, how=how) as process:
        assert LocalHost().processes(fleet) == FleetProcesses(controller_pid=process.pid)
        assert LocalHost().processes("other") == FleetProcesses()
        runtime = LocalControllerRuntime(fleet)
        runtime.claim()
        assert process.wait(timeout=20) != 0
        runtime.release()


def test_it_is_found_where_its_runtime_directory_was_removed(fleet, tmp_path):
    with earlier("controller", fleet, tmp_path / "gone") as process:
        shutil.rmtree(tmp_path / "gone")
        assert LocalHost().processes(fleet).controller_pid == process.pid


def test_the_gateway_of_an_earlier_version_is_asked_to_finish(fleet, tmp_path):
    with earlier("gateway", fleet, tmp_path / "elsewhere") as process:
        assert LocalHost().processes(fleet) == FleetProcesses(gateway_pid=process.pid)
        runtime = LocalControllerRuntime(fleet)
        runtime.claim()
        assert process.wait(timeout=20) != 0
        runtime.release()


def test_locks_of_today_are_not_taken_for_earlier_ones(fleet):
    runtime = LocalControllerRuntime(fleet)
    runtime.claim()
    assert runtime.is_claimed()
    again = LocalHost().processes(fleet)
    assert again.controller_pid is not None
    runtime.release()
    assert LocalHost().processes(fleet) == FleetProcesses()
