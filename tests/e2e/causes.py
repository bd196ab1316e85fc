"""What may befall a fleet's locks, sockets and processes."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import sqlite3
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from tests.e2e.watched import Watched, Witness


def nothing(fleet: Watched, witness: Witness) -> None:
    del fleet, witness


def runtime_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    shutil.rmtree(fleet.runtime, ignore_errors=True)


def lock_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    (fleet.place / "controller.lock").unlink(missing_ok=True)


def all_locks_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    for lock in fleet.place.glob("*.lock"):
        lock.unlink(missing_ok=True)


def sockets_removed(fleet: Watched, witness: Witness) -> None:
    del witness
    for name in ("controller.sock", "gateway.sock"):
        (fleet.place / name).unlink(missing_ok=True)


def killed(fleet: Watched, witness: Witness) -> None:
    del witness
    for pid in fleet.pids("controller"):
        os.kill(pid, signal.SIGKILL)


def logout(fleet: Watched, witness: Witness) -> None:
    """Have a login shell start controller and gateway, and its terminal hang up: both go on, and what it owned is removed."""
    for role in ("controller", "gateway"):
        for pid in fleet.pids(role):
            os.kill(pid, signal.SIGKILL)
    shell, terminal = pty.fork()
    if shell == 0:
        command = f"{sys.executable} -m fleetctl up {fleet.profile} -y -q; echo done; sleep 600"
        os.execve("/bin/sh", ["-sh", "-c", command], fleet.environments["own"])  # noqa: S606  # no shell in between
    shown = b""
    while b"done" not in shown:
        shown += os.read(terminal, 4096)
    witness.forgive_failed()  # while neither lived
    os.close(terminal)  # the kernel sends SIGHUP to all of its session
    os.waitpid(shell, 0)
    shutil.rmtree(fleet.runtime, ignore_errors=True)


def stopped_and_robbed(fleet: Watched, witness: Witness) -> None:
    """Stop the controller, take its lock away, have another one start, and let the first go on."""
    (old,) = fleet.controllers()
    os.kill(old, signal.SIGSTOP)
    witness.ignored.add(old)
    try:
        (fleet.place / "controller.lock").unlink(missing_ok=True)
        deadline_s = SYSTEM_CLOCK.monotonic_s() + 30
        while not set(fleet.controllers()) - {old} and SYSTEM_CLOCK.monotonic_s() < deadline_s:
            fleet.run("scale", "short", "auto", env="cron-like")
    finally:
        with suppress(ProcessLookupError):  # whoever came next may have ended it, as it stood still
            os.kill(old, signal.SIGCONT)
        witness.ignored.discard(old)


def state_replaced(fleet: Watched, witness: Witness) -> None:
    """Put a copy of the state file into its place, as a restored backup is."""
    del witness
    state = fleet.place.parent.parent / "state.db"
    with closing(sqlite3.connect(state)) as source, closing(sqlite3.connect(state.with_name("copy.db"))) as copy:
        source.backup(copy)
    for name in ("state.db-wal", "state.db-shm"):
        state.with_name(name).unlink(missing_ok=True)
    state.with_name("copy.db").replace(state)
