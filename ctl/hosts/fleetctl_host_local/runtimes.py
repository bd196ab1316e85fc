"""What controller and gateway find on this machine: locks that die with their holder, sockets by inheritance."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.locks import FileLock
from fleetctl.paths import FleetPaths, state_dir
from fleetctl.ports.lease import LeaseHolder
from fleetctl_host_local import earlier_layout
from fleetctl_host_local.gateway_process import GatewayProcess
from fleetctl_host_local.inheritance import CONTROLLER_ARGV, LISTEN_FDS, inherited_argv, inherited_sockets
from fleetctl_host_local.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.clock import Clock
    from fleetctl.ports.runtime import GatewayHost


def controller_command(fleet: str) -> list[str]:
    """Return how a fleet's controller is started."""
    return [sys.executable, "-m", "fleetctl.controller", fleet]


def _boot_id() -> str:
    """Return the name of this boot of the kernel; empty where the system gives it none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class LocalControllerRuntime:
    """Implements ControllerRuntime."""

    def __init__(self, fleet: str) -> None:
        self._fleet = fleet
        self._paths = FleetPaths(fleet=fleet)
        self._paths.make()
        self._lock = FileLock(self._paths.controller_lock, command=f"controller of {fleet}")
        # The sockets and how we were started are ours to hand on; nothing else we start may take them for its own.
        self._environ = dict(os.environ)
        for variable in (LISTEN_FDS, CONTROLLER_ARGV):
            os.environ.pop(variable, None)

    def claim(self) -> None:
        """Take the controller's lock, and over from a controller of an earlier version. Raises LockHeldError."""
        self._lock.acquire(wait_s=0.0)
        earlier_layout.take_over(self._fleet)

    def is_claimed(self) -> bool:
        """Whether the lock is still ours; a lock file that was removed is made again."""
        return self._lock.retake()

    def beat(self, now_s: float) -> None:
        """Leave a sign of life."""
        self._lock.beat(now_s)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def place(self) -> str:
        """Return nothing: it is a process of this machine."""
        return ""

    def lease_holder(self) -> LeaseHolder:
        """Return what tells this process from every other."""
        return LeaseHolder(
            pid=os.getpid(),
            host=socket.gethostname(),
            boot_id=_boot_id(),
            started_at=SYSTEM_CLOCK.now(),
            home=str(state_dir()),
        )

    def gateway_host(self, clock: Clock) -> GatewayHost:
        """Return the keeper of the port and the gateway's process. Raises ConfigError."""
        return GatewayProcess(self._paths, clock, environ=self._environ, argv=controller_command(self._fleet))


class LocalGatewayRuntime:
    """Implements GatewayRuntime."""

    def __init__(self, fleet: str, number: int = 1) -> None:
        paths = FleetPaths(fleet=fleet)
        paths.make()
        what = "gateway" if number == 1 else f"gateway {number}"
        self._lock = FileLock(paths.gateway_lock_of(number), command=f"{what} of {fleet}")
        self._watchdog = Watchdog(paths, inherited_argv(os.environ))

    def claim(self) -> None:
        """Take the gateway's lock. Raises LockHeldError."""
        self._lock.acquire(wait_s=0.0)

    def is_claimed(self) -> bool:
        """Whether the lock is still ours; a lock file that was removed is made again."""
        return self._lock.retake()

    def beat(self, now_s: float) -> None:
        """Leave a sign of life."""
        self._lock.beat(now_s)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def listeners(self) -> list[socket.socket]:
        """Return the sockets the controller handed over. Raises ConfigError."""
        return inherited_sockets(os.environ)

    def ensure_controller(self, now_s: float, listeners: Sequence[socket.socket]) -> bool:
        """Start a missing controller; return whether that was done."""
        return self._watchdog.check(now_s, listeners)
