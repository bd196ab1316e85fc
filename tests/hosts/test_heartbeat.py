"""A process that holds its lock and does not progress is told, and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.locks import FileLock
from fleetctl.paths import FleetPaths
from fleetctl.ports.runtime import StallKind
from fleetctl_host_local.activity import Activity, idle_s, is_stopped, read_activity
from fleetctl_host_local.heartbeat import (
    CONTROLLER_COMPUTING_S,
    HUNG_S,
    STOPPED_S,
    StallWatch,
    current_stall,
    kill_holder,
)
from fleetctl_host_local.host import LocalHost
from fleetctl_host_local.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        while not look_at(process.pid).is_idle:  # it has written its line, and is on its way to sleep
            SYSTEM_CLOCK.sleep_blocking(0.01)
        yield process
        process.kill()


def look_at(pid: int) -> Activity:
    found = read_activity(pid)
    assert found is not None
    return found


def stop(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_stopped(process.pid)


def scripted(states: str, *, cpu_share: float = 0.0, delay_share: float = 0.0) -> Callable[[int], Activity]:
    """Return looks, a second apart, at a process whose threads are in these states and have these shares of each second."""
    seconds = iter(range(1000))

    def look(pid: int) -> Activity:
        del pid
        second = next(seconds)
        return Activity(states=states, cpu_s=second * cpu_share, delay_s=second * delay_share)

    return look


def convicted_after_s(watch: StallWatch) -> int | None:
    """Return after how many seconds without a beat, looked at once a second, a process is convicted."""
    return next((at_s for at_s in range(120) if watch.look(1000.0 + at_s) is not None), None)


@pytest.mark.parametrize(
    ("states", "shares", "after_s"),
    [
        ("SSS", {}, 4),  # asleep though a beat is due: it waits for what does not come
        ("RSS", {"cpu_share": 1.0}, 2),  # it turns round and round
        ("RSS", {"cpu_share": 0.5}, 4),  # the same with half a processor
        ("TTT", {}, 3),
        # What the machine withholds speaks against nobody for a minute.
        ("RSS", {"cpu_share": 0.02, "delay_share": 0.98}, 61),
        ("SSS", {"delay_share": 0.98}, 61),
        ("DSS", {}, 61),
    ],
)
def test_a_process_without_a_heartbeat_is_judged_by_the_time_it_had(paths, holder, states, shares, after_s):
    lock = FileLock(paths.controller_lock)
    assert convicted_after_s(StallWatch(lock, read=scripted(states, **shares))) == after_s
    assert holder.poll() is None


def test_a_controller_may_compute_for_longer_than_a_gateway(paths, holder):
    lock = FileLock(paths.controller_lock)
    gateway_s = convicted_after_s(StallWatch(lock, read=scripted("RSS", cpu_share=1.0)))
    patient = StallWatch(lock, read=scripted("RSS", cpu_share=1.0), computing_s=CONTROLLER_COMPUTING_S)
    assert gateway_s is not None
    assert convicted_after_s(patient) == CONTROLLER_COMPUTING_S + 1.0 > gateway_s
    asleep = StallWatch(lock, read=scripted("SSS"), computing_s=CONTROLLER_COMPUTING_S)
    assert convicted_after_s(asleep) == HUNG_S + 1.0, (
        "what sleeps without a beat is no more progress in one than in the other"
    )
    assert holder.poll() is None


def test_a_hung_and_a_stopped_process_are_told_from_their_looks_in_the_system(paths, holder):
    watch = StallWatch(FileLock(paths.controller_lock))
    seen = [watch.look(1000.0 + at_s) for at_s in range(9)]
    assert [stall is None for stall in seen] == [at_s <= HUNG_S for at_s in range(9)]
    assert seen[-1] is not None
    assert seen[-1].kind is StallKind.HUNG
    stop(holder)
    watch = StallWatch(FileLock(paths.controller_lock))
    seen = [watch.look(1000.0 + at_s) for at_s in range(5)]
    assert [stall is None for stall in seen] == [True, True, True, False, False]
    assert seen[-1] is not None
    assert (seen[-1].pid, seen[-1].kind) == (holder.pid, StallKind.STOPPED)
    assert f"process {holder.pid} is stopped" in str(seen[-1])


def test_a_process_that_computes_for_ever_hangs(tmp_path):
    command = [sys.executable, "-c", "print('on', flush=True)\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "on\n"
            before = after = look_at(process.pid)
            while after.cpu_s - before.cpu_s < 0.2:  # of a processor, however long this machine takes to give it
                after = look_at(process.pid)
                assert not after.is_idle
                assert idle_s(before, after, 1.0) == 0.0
        finally:
            process.kill()


def test_what_is_stopped_before_its_first_beat_or_its_lock_is_told_all_the_same(paths, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            stop(process)
            watch = StallWatch(FileLock(tmp_path / "gateway.lock"))
            seen = [watch.look(1000.0 + at_s, starting_pid=process.pid) for at_s in range(5)]
            assert [stall is None for stall in seen] == [True, True, True, False, False]
        finally:
            process.kill()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD.replace("lock.beat(1000.0)", ""), str(paths.gateway_lock)],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            assert FileLock(paths.gateway_lock).beaten_at_s() is None
            assert convicted_after_s(StallWatch(FileLock(paths.gateway_lock))) is None, "of an earlier version, perhaps"
            stop(process)
            assert convicted_after_s(StallWatch(FileLock(paths.gateway_lock))) == 3
            assert LocalHost().stalls("demo")[1] is not None
        finally:
            process.kill()


def test_a_beating_process_is_never_taken_for_a_hung_one(tmp_path):
    lock = FileLock(tmp_path / "controller.lock")
    lock.acquire(wait_s=0.0)
    watch = StallWatch(lock, read=scripted("SS"))
    for second in range(60):
        if second % 3 == 0:
            lock.beat(1000.0 + second)
        assert watch.look(1000.0 + second) is None
        assert watch.is_beating
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
    assert watchdog.children or watchdog.check(now_s + 1.0, [])
    child = watchdog.children[0]
    assert child.wait(timeout=10) == 0
    assert started.exists()


def test_who_begins_to_watch_tells_at_once_what_has_long_been_stopped(paths, holder):
    stop(holder)
    stall = StallWatch(FileLock(paths.controller_lock)).look(1000.0 + STOPPED_S + 1.0)
    assert stall is not None
    assert (stall.kind, stall.for_s) == (StallKind.STOPPED, STOPPED_S + 1.0)
    assert StallWatch(FileLock(paths.controller_lock)).look(1000.0 + STOPPED_S) is None


def test_a_host_names_the_stopped_process_to_commands(paths, holder):
    # Whatever this machine's clock shows: it may have started a minute ago.
    at_ns = int((SYSTEM_CLOCK.monotonic_s() - STOPPED_S - 1.0) * 1e9)
    os.utime(paths.controller_lock, ns=(at_ns, at_ns))
    stop(holder)
    controller, gateway = LocalHost().stalls("demo")
    assert gateway is None
    assert controller is not None
    assert (controller.pid, controller.kind) == (holder.pid, StallKind.STOPPED)
