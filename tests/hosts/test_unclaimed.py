"""A controller that is stopped before it takes its lock, beside whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.locks import FileLock
from fleetctl.paths import FleetPaths
from fleetctl_host_local.unclaimed import UnclaimedControllers
from fleetctl_host_local.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(SLEEPER)
    yield started
    started.kill()
    started.wait()


def test_one_that_is_stopped_before_its_lock_is_killed_after_two_seconds(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    unclaimed = UnclaimedControllers(FileLock(tmp_path / "controller.lock"))
    unclaimed.add(child)
    assert not unclaimed.end_stopped(0.0)
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None)
    assert [unclaimed.end_stopped(at_s) for at_s in (1.0, 2.0, 3.0)] == [False, False, True]
    assert child.wait(10) == -signal.SIGKILL


def test_one_that_goes_on_or_holds_the_lock_is_left_alone(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    lock = FileLock(tmp_path / "controller.lock")
    states = iter([True, False, True, True, True])
    unclaimed = UnclaimedControllers(lock, is_stopped=lambda _: next(states))
    unclaimed.add(child)
    assert [unclaimed.end_stopped(at_s) for at_s in (1.0, 2.0, 3.0, 4.0)] == [False] * 4
    assert child.poll() is None


def test_the_gateway_kills_the_controller_it_started_and_starts_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths = FleetPaths(fleet="demo")
    paths.make()
    stops = "import os, pathlib, signal, sys; "
    stops += "pathlib.Path(sys.argv[1]).open('a').write(f'{os.getpid()} '); os.kill(os.getpid(), signal.SIGSTOP)"
    pids = tmp_path / "pids"
    watchdog = Watchdog(paths, [sys.executable, "-c", stops, str(pids)])
    assert watchdog.check(10.0, ())
    wait_until(lambda: pids.exists() and len(started(pids)) == 1 and state(started(pids)[0]) == "T")
    assert [watchdog.check(at_s, ()) for at_s in (11.0, 12.0, 13.0)] == [False, False, True]
    first = started(pids)[0]
    wait_until(lambda: state(first) in ("", "Z"))
    wait_until(lambda: len(started(pids)) == 2 and state(started(pids)[1]) == "T")
    for at_s in (14.0, 16.5):
        watchdog.check(at_s, ())
    wait_until(lambda: all(each.poll() is not None for each in watchdog.children))


def started(pids: Path) -> list[int]:
    return [int(pid) for pid in pids.read_text().split()]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until(is_so: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
    while not is_so():
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s
        SYSTEM_CLOCK.sleep_blocking(0.02)
