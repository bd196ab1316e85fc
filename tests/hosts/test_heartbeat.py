"""A process that holds its lock and does not progress is told, and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.locks import FileLock
from fleetctl.paths import FleetPaths
from fleetctl.ports.host import StallKind
from fleetctl_host_local.heartbeat import HUNG_S, STOPPED_S, StallWatch, current_stall, is_stopped, kill_holder
from fleetctl_host_local.host import LocalHost
from fleetctl_host_local.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOLD = """
import sys, time
from pathlib import Path
from fleetctl.locks import FileLock
lock = FileLock(Path(sys.argv[1]), command="controller of demo")
lock.acquire(wait_s=5.0)
lock.beat(1000.0)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def paths() -> FleetPaths:
    paths = FleetPaths(fleet="demo")
    paths.make()
    return paths


@pytest.fixture
def holder(paths: FleetPaths) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the controller's lock and beat once, at 1000 s."""
    command = [sys.executable, "-c", _HOLD, str(paths.controller_lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_stopped(process.pid)


def test_a_stopped_holder_is_told_after_two_seconds_and_a_hung_one_after_twenty(paths, holder):
    watch = StallWatch(FileLock(paths.controller_lock))
    seen = [watch.look(1000.0 + at_s) for at_s in range(25)]
    assert [stall is None for stall in seen] == [at_s <= HUNG_S for at_s in range(25)]
    assert seen[-1] is not None
    assert seen[-1].kind is StallKind.HUNG
    stop(holder)
    watch = StallWatch(FileLock(paths.controller_lock))
    seen = [watch.look(1000.0 + at_s) for at_s in range(5)]
    assert [stall is None for stall in seen] == [True, True, True, False, False]
    assert seen[-1] is not None
    assert (seen[-1].pid, seen[-1].kind) == (holder.pid, StallKind.STOPPED)
    assert f"process {holder.pid} is stopped" in str(seen[-1])


def test_a_beating_process_is_never_taken_for_a_hung_one(tmp_path):
    lock = FileLock(tmp_path / "controller.lock")
    lock.acquire(wait_s=0.0)
    watch = StallWatch(lock)
    for second in range(60):
        if second % 4 == 0:
            lock.beat(1000.0 + second)
        assert watch.look(1000.0 + second) is None
    lock.release()


def test_a_watcher_that_was_away_itself_looks_again_before_it_judges(paths, holder):
    watch = StallWatch(FileLock(paths.controller_lock))
    assert watch.look(1000.0) is None
    assert watch.look(1000.5) is None
    assert watch.look(1600.0) is None, "the whole machine may have been stopped"
    assert holder.poll() is None


def test_a_lock_without_a_heartbeat_tells_nothing(tmp_path):
    lock = FileLock(tmp_path / "controller.lock")
    lock.acquire(wait_s=0.0)
    assert lock.beaten_at_s() is None
    assert current_stall(lock, SYSTEM_CLOCK.monotonic_s()) is None
    lock.release()


def test_only_the_holder_itself_is_killed(paths, holder):
    stop(holder)
    lock = FileLock(paths.controller_lock)
    stall = current_stall(lock, 1000.0 + STOPPED_S + 1.0)
    assert stall is not None
    lock.path.rename(lock.path.with_name("elsewhere"))
    assert not kill_holder(lock, stall)
    lock.path.with_name("elsewhere").rename(lock.path)
    assert kill_holder(lock, stall)
    assert holder.wait(timeout=10) == -signal.SIGKILL


def test_the_watchdog_replaces_a_stopped_controller(paths, holder, tmp_path):
    started = tmp_path / "started"
    watchdog = Watchdog(paths, [sys.executable, "-c", f"open({str(started)!r}, 'w').close()"])
    stop(holder)
    now_s = 1000.0
    while holder.poll() is None:
        now_s += 1.0
        watchdog.check(now_s, [])
        assert now_s < 1010.0
        SYSTEM_CLOCK.sleep_blocking(0.05)
    # It was started at the same look, if its predecessor's end was so quick.
    assert watchdog._children or watchdog.check(now_s + 1.0, [])
    child = watchdog._children[0]
    assert child.wait(timeout=10) == 0
    assert started.exists()


def test_a_host_names_the_stopped_process_to_commands(paths, holder):
    stop(holder)
    controller, gateway = LocalHost().stalls("demo")
    assert gateway is None
    assert controller is not None
    assert (controller.pid, controller.kind) == (holder.pid, StallKind.STOPPED)
