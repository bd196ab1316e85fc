"""Locks between processes: flock()ed files, which cannot outlive their holder and so need no expiry."""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.codec import decode, encode
from fleetctl.errors import LockHeldError, is_disk_full, state_error
from fleetctl.os_signals import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_POLL_S = 0.05
# No machine is up for ten years; the wall clock's seconds are past fifty.
_MONOTONIC_S_MAX = 10 * 365 * 86_400.0
_SILENT_S = 1.0  # a wait that is over by then is not worth a word
# is_held() asks by holding a shared lock for some microseconds, so one refusal is no proof of a holder.
_PROBE_RETRIES = 4
_PROBE_RETRY_S = 0.005
# One block, written over and never cut, so that a file that was written once needs no room on a disk that is full.
_NOTE_BYTES = 4096
_COMMAND_CHARS_MAX = 500  # each six bytes in JSON at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that last wrote its name into a lock file."""

    pid: int
    command: str
    since: datetime | None = None  # None: written by an earlier version


class FileLock:
    """One process's claim on `path`. The file stays when the lock goes: removing it would let two hold it."""

    def __init__(self, path: Path, *, command: str = "") -> None:
        self.path = path
        self._command = command or " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])  # noqa: PTH119
        self._fd = -1

    @property
    def is_mine(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd >= 0

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it, and leave our name in the file."""
        return self.is_mine or self._try()

    def acquire(self, *, wait_s: float, on_wait: Callable[[str], None] = lambda _: None) -> None:
        """Take the lock within `wait_s`, and say once for whom it waits. Raises LockHeldError naming the holder."""
        begun_s = SYSTEM_CLOCK.monotonic_s()
        is_announced = False
        while not self.try_acquire():
            waited_s = SYSTEM_CLOCK.monotonic_s() - begun_s
            if waited_s >= wait_s:
                raise self._held_error()
            if waited_s >= _SILENT_S and not is_announced:
                on_wait(f"waiting up to {wait_s:g} s for {self._who()}, which holds {self.path.name}")
                is_announced = True
            SYSTEM_CLOCK.sleep_blocking(_POLL_S)

    @contextmanager
    def hold(self, *, wait_s: float, on_wait: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Hold the lock for a block. Raises LockHeldError naming the holder."""
        try:
            self.acquire(wait_s=wait_s, on_wait=on_wait)
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Give the lock back; nothing happens if it is not ours."""
        if self.is_mine:
            with held():
                _overwrite(self._fd, b"")
                os.close(self._fd)
                self._fd = -1

    def retake(self) -> bool:
        """Hold the lock under its name again where its file was removed; False: another holds that name by now.

        A directory that is gone with it is not made anew: we hold what we held.
        """
        if not self.is_mine:
            return False
        if self._is_current(self._fd) or not self.path.parent.is_dir():
            return True
        removed = self._fd
        if not self._try():
            return False
        os.close(removed)
        return True

    def beat(self, monotonic_s: float) -> None:
        """Leave a sign of life on the file, for `beaten_at_s`; nothing if the lock is not ours."""
        if self.is_mine:
            os.utime(self._fd, ns=(time_ns := int(monotonic_s * 1e9), time_ns))

    def beaten_at_s(self) -> float | None:
        """Return the holder's last sign of life on CLOCK_MONOTONIC; None: it leaves none, or there is no file."""
        try:
            beaten_s = self.path.stat().st_mtime_ns / 1e9
        except OSError:
            return None
        # A time of the wall clock, decades later: written by a version that left no signs of life, or not begun yet.
        return beaten_s if beaten_s < _MONOTONIC_S_MAX else None

    def is_held(self) -> bool:
        """Whether any process, this one included, holds the lock."""
        if self.is_mine:
            return True
        try:
            fd = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def holder(self) -> Holder | None:
        """Return the living holder's name, or None while the lock is free or its note is not written yet."""
        if not self.is_held():
            return None
        try:
            return decode(Holder, self.path.read_bytes())
        except (msgspec.DecodeError, FileNotFoundError):
            return None

    def _try(self) -> bool:
        for attempt in range(_PROBE_RETRIES):
            if attempt:
                SYSTEM_CLOCK.sleep_blocking(_PROBE_RETRY_S)
            with held():  # a lock that nobody knows of would be held until this process ends
                if self._try_once():
                    return True
        return False

    def _try_once(self) -> bool:
        fd = self._opened()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        if not self._is_current(fd):
            os.close(fd)
            return False
        command = self._command[:_COMMAND_CHARS_MAX]
        _overwrite(fd, encode(Holder(pid=os.getpid(), command=command, since=SYSTEM_CLOCK.now())))
        self._fd = fd
        return True

    def _opened(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            if is_disk_full(exc):
                raise state_error(self.path, exc) from exc
            raise

    def _is_current(self, fd: int) -> bool:
        """Whether `fd` is still the file others will open: it may have been removed between open and flock."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        mine = os.fstat(fd)
        return (mine.st_ino, mine.st_dev) == (named.st_ino, named.st_dev)

    def _who(self) -> str:
        holder = self.holder()
        if holder is None:
            return "another process"
        if holder.since is None:
            return f"process {holder.pid} ({holder.command})"
        for_s = max(0.0, (SYSTEM_CLOCK.now() - holder.since).total_seconds())
        return f"process {holder.pid} ({holder.command}, for {for_s:.0f} s)"

    def _held_error(self) -> LockHeldError:
        return LockHeldError(
            f"{self._who()} holds {self.path.name}", hint="wait for it to finish, or end it; the lock goes with it"
        )


def _overwrite(fd: int, note: bytes) -> None:
    """Put a note in the place of the one before. Without room for it there is none: it is a courtesy, the lock is not."""
    try:
        os.pwrite(fd, note.ljust(_NOTE_BYTES), 0)
    except OSError as exc:
        if not is_disk_full(exc):
            raise
        os.ftruncate(fd, 0)  # nobody may take the last holder for this one
