"""File locks between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import LockHeldError
from fleetctl.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from fleetctl.locks import FileLock
lock = FileLock(Path(sys.argv[1]), command="fleetctl up demo.yaml")
lock.acquire(wait_s=5)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_the_second_of_two_processes_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "controller.lock"
    with holding(path) as process:
        mine = FileLock(path)
        assert not mine.try_acquire()
        assert mine.is_held()
        holder = mine.holder()
        assert holder is not None
        assert (holder.pid, holder.command) == (process.pid, "fleetctl up demo.yaml")
        with pytest.raises(LockHeldError, match=rf"process {process.pid} \(fleetctl up demo.yaml, for \d+ s\) holds"):
            mine.acquire(wait_s=0.1)


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    with holding(path) as process:
        os.kill(process.pid, signal.SIGKILL)
        mine = FileLock(path)
        mine.acquire(wait_s=5)
        holder = mine.holder()
        assert holder is not None
        assert holder.pid == os.getpid()
        mine.release()
    assert not mine.is_held()


def test_a_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x.lock")
    assert lock.try_acquire()
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    lock.release()
    assert FileLock(tmp_path / "x.lock").try_acquire()
    child.communicate(timeout=10)


def test_a_stale_note_of_a_dead_holder_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text('{"pid": 1, "command": "long gone"}')
    assert FileLock(path).holder() is None
    assert FileLock(tmp_path / "absent.lock").holder() is None


def test_hold_releases_on_the_way_out_and_one_object_may_ask_twice(tmp_path: Path) -> None:
    lock, other = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")

    def fail_while_holding() -> None:
        with lock.hold(wait_s=0):
            assert lock.try_acquire()
            assert not other.try_acquire()
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail_while_holding()
    assert other.try_acquire()
    other.release()
    other.release()


def test_a_lock_whose_file_was_removed_is_not_held_twice_under_one_name(tmp_path: Path) -> None:
    first = FileLock(tmp_path / "x.lock")
    assert first.try_acquire()
    first.path.unlink()
    second = FileLock(tmp_path / "x.lock")
    assert second.try_acquire()
    assert not FileLock(tmp_path / "x.lock").try_acquire()
    first.release()
    second.release()


def test_a_lock_whose_file_was_removed_is_taken_again_under_its_name(tmp_path: Path) -> None:
    mine = FileLock(tmp_path / "x.lock")
    assert not mine.retake()
    assert mine.try_acquire()
    assert mine.retake()
    mine.path.unlink()
    assert mine.retake()
    assert not FileLock(tmp_path / "x.lock").try_acquire()
    mine.release()
    assert FileLock(tmp_path / "x.lock").try_acquire()


def test_a_lock_whose_name_another_has_taken_is_not_taken_back(tmp_path: Path) -> None:
    mine, other = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    assert mine.try_acquire()
    mine.path.unlink()
    assert other.try_acquire()
    assert not mine.retake()
    other.release()
    assert mine.retake()
    mine.release()


def test_a_holder_says_since_when(tmp_path: Path) -> None:
    mine = FileLock(tmp_path / "x.lock", command="fleetctl up")
    mine.acquire(wait_s=0)
    holder = mine.holder()
    assert holder is not None
    assert holder.since is not None
    mine.path.write_text('{"pid": 4, "command": "an earlier version"}')
    assert mine.holder() is not None
    mine.release()


def test_who_waits_is_told_once_for_whom(tmp_path: Path) -> None:
    heard: list[str] = []
    with holding(tmp_path / "operation.lock") as process, pytest.raises(LockHeldError):
        FileLock(tmp_path / "operation.lock").acquire(wait_s=1.3, on_wait=heard.append)
    (message,) = heard
    assert message.startswith(f"waiting up to 1.3 s for process {process.pid} (fleetctl up demo.yaml, for ")


WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from fleetctl.locks import FileLock
# What is beyond the limit fails as on a full disk does, with an error of its own.
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
lock = FileLock(Path(sys.argv[1]), command="fleetctl down demo")
lock.acquire(wait_s=5)
print(lock.is_held(), lock.holder())
lock.release()
print(lock.is_held())
"""


def test_a_lock_is_held_also_where_there_is_no_room_for_its_holders_name(tmp_path: Path) -> None:
    path = tmp_path / "operation.lock"
    path.write_bytes(b'{"pid":1,"command":"one that is gone"}')
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, str(path)], capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.stdout, done.stderr) == ("True None\nFalse\n", "")


def test_a_lock_keeps_the_room_of_its_holders_name(tmp_path: Path) -> None:
    path = tmp_path / "operation.lock"
    lock = FileLock(path, command="x" * 10_000)
    lock.acquire(wait_s=1)
    size = path.stat().st_size
    assert (holder := lock.holder()) is not None
    assert holder.pid == os.getpid()
    lock.release()
    assert path.stat().st_size == size == 4096
