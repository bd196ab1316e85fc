"""What may befall a fleet's processes and its state: stopped, locked out, without room, moved away for a while."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import DiskFullError
from tests.waiting import seen_within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.watched import Watched, Witness

LOCKED_S = 8.0
GONE_S = 4.0
STOPPED_S = 6.0
_NOTICED_S = 3.0  # so old a heartbeat of a stopped process is evidence to anybody
DISK = "128m"  # no less than `up` wants to see free
_OFFERED = re.compile(r"([\d.]+) rps offered")
# The witness sends four requests a second at most.
_OFFERED_RPS_MAX = 20.0
_WATCHED_S = 4
# On a machine of one's own the controller finds a dead replica, and wants to write, within three seconds, and has a gateway
# serve again within four; a busy one takes longer.
_SHOWN_WITHIN_S = 60.0
_SERVES_AGAIN_S = 90.0


def controller_stopped(fleet: Watched, witness: Witness) -> None:
    _strike_controller(fleet, witness, signal.SIGSTOP)


def controller_asleep(fleet: Watched, witness: Witness) -> None:
    _strike_controller(fleet, witness, signal.SIGUSR2)


def controller_computing(fleet: Watched, witness: Witness) -> None:
    _strike_controller(fleet, witness, signal.SIGUSR1)


def gateway_stopped(fleet: Watched, witness: Witness) -> None:
    _strike_gateway(fleet, witness, signal.SIGSTOP)


def gateway_asleep(fleet: Watched, witness: Witness) -> None:
    _strike_gateway(fleet, witness, signal.SIGUSR2)


def gateway_computing(fleet: Watched, witness: Witness) -> None:
    _strike_gateway(fleet, witness, signal.SIGUSR1)


def both_stopped(fleet: Watched, witness: Witness) -> None:
    """Leave nobody who could notice, until a job comes with a command that changes something."""
    _stop_both(fleet, witness)
    SYSTEM_CLOCK.sleep_blocking(_NOTICED_S)
    done = fleet.run("scale", "short", "auto", env="cron-like")
    if done.returncode:
        witness.wrong.append(f"scale -> {done.returncode}: {done.stderr}")


def _stop_both(fleet: Watched, witness: Witness) -> None:
    controller_stopped(fleet, witness)
    gateway_stopped(fleet, witness)


def both_stopped_for_a_while(fleet: Watched, witness: Witness) -> None:
    """Stop both as a debugger or a machine in distress does, and let them go on: neither may take the other for hung."""
    before = {*fleet.controllers(), *fleet.pids("gateway")}
    _stop_both(fleet, witness)
    SYSTEM_CLOCK.sleep_blocking(STOPPED_S)
    for pid in before:
        os.kill(pid, signal.SIGCONT)
    witness.ignored.clear()
    SYSTEM_CLOCK.sleep_blocking(1.0)
    if before != {*fleet.controllers(), *fleet.pids("gateway")}:
        witness.wrong.append("a process that went on was replaced")


def _strike_controller(fleet: Watched, witness: Witness, number: signal.Signals) -> None:
    (old,) = fleet.controllers()
    witness.ignored.add(old)
    os.kill(old, number)


def _strike_gateway(fleet: Watched, witness: Witness, number: signal.Signals) -> None:
    del witness
    (old,) = fleet.pids("gateway")
    os.kill(old, number)


def state_locked(fleet: Watched, witness: Witness) -> None:
    """Hold the write lock as a stranger, and have a replica die meanwhile."""
    del witness
    with closing(sqlite3.connect(_state(fleet) / "state.db", isolation_level=None, timeout=30)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        _kill_replica(fleet)
        SYSTEM_CLOCK.sleep_blocking(LOCKED_S)
        stranger.execute("ROLLBACK")


def disk_full(fleet: Watched, witness: Witness) -> None:
    """Leave no room for a byte, and have a replica and the gateway die meanwhile; the controller must live on."""
    if fleet.unmount is None:
        raise RuntimeError("this fleet's state lies on everybody's disk, which nobody may fill")
    filler = _state(fleet).parent / "filler"
    before = fleet.controllers()
    _fill(filler)
    _kill_replica(fleet)
    if not seen_within(lambda: "disk full" in fleet.status()["condition"]["message"], within_s=_SHOWN_WITHIN_S):
        witness.wrong.append(f"status does not say that the disk is full: {fleet.status()['condition']['message']}")
    if fleet.controllers() != before:
        witness.wrong.append("the full disk ended the controller")
    (gateway,) = fleet.pids("gateway")
    os.kill(gateway, signal.SIGKILL)
    if not seen_within(lambda: _serves_without(fleet, gateway), within_s=_SERVES_AGAIN_S):
        witness.wrong.append(f"the gateway did not come back on the full disk: {fleet.pids('gateway')}")
    done = fleet.run("scale", "short", "auto")
    if done.returncode not in (0, DiskFullError.exit_code) or "Traceback" in done.stderr:
        witness.wrong.append(f"scale on a full disk -> {done.returncode}: {done.stderr}")
    filler.unlink()


def _serves_without(fleet: Watched, gateway: int) -> bool:
    """Whether another gateway than this one lives, alone, and answers."""
    now = fleet.pids("gateway")
    return gateway not in now and len(now) == 1 and fleet.serves()


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            while _writes(file.fileno(), size):
                pass


def state_moved(fleet: Watched, witness: Witness) -> None:
    """Move the state away for a while; nobody may take it for the end of every node."""
    state, away = _state(fleet), _state(fleet).with_name("away")
    before = sorted(fleet.engines())
    state.rename(away)
    try:
        SYSTEM_CLOCK.sleep_blocking(GONE_S)
        if sorted(fleet.engines()) != before:
            witness.wrong.append(f"replicas changed while the state was away: {before} -> {sorted(fleet.engines())}")
    finally:
        if state.exists():
            witness.wrong.append("the state was made anew while it was away")
            shutil.rmtree(state)
        away.rename(state)


def clock_forward(fleet: Watched, witness: Witness) -> None:
    _step_clock(fleet, witness, 3600.0)


def clock_back(fleet: Watched, witness: Witness) -> None:
    _step_clock(fleet, witness, -3600.0)


def _step_clock(fleet: Watched, witness: Witness, by_s: float) -> None:
    """Set the clock, and watch what the controller takes for load and for wanted since."""
    before = fleet.answer()
    assert before is not None
    fleet.set_clock(fleet.clock_offset_s + by_s)
    for _ in range(_WATCHED_S * 4):
        SYSTEM_CLOCK.sleep_blocking(0.25)
        seen = fleet.answer()
        if seen is None:
            continue
        offered_rps = [float(rate) for lane in seen.lanes for rate in _OFFERED.findall(lane.reason)]
        if max(offered_rps, default=0.0) > _OFFERED_RPS_MAX:
            witness.wrong.append(f"the clock's step was taken for load: {seen.lanes}")
            return


def on_small_disk(root: Path) -> Callable[[], None] | None:
    """Put the state of a user to be on a disk of its own; return how to take it away. None: mounting is not allowed."""
    place = root / ".local" / "state"
    place.mkdir(parents=True)
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        return None

    def unmount() -> None:
        subprocess.run(["/bin/umount", "-l", str(place)], capture_output=True, check=True)

    return unmount


def _writes(descriptor: int, size: int) -> bool:
    try:
        return os.write(descriptor, bytes(size)) > 0
    except OSError as exc:
        if exc.errno != errno.ENOSPC:
            raise
        return False


def _kill_replica(fleet: Watched) -> None:
    victims = [p.pid for p in fleet.processes() if p.environ().get("FLEETCTL_REPLICA") and os.getsid(p.pid) == p.pid]
    os.kill(min(victims), signal.SIGKILL)


def _state(fleet: Watched) -> Path:
    return fleet.place.parent.parent
