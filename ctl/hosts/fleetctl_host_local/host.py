"""The host `local`: the processes of a fleet on this machine, found by their locks, asked over their sockets."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import UnavailableError
from fleetctl.files import read_log
from fleetctl.locks import FileLock
from fleetctl.model.log import LogChunk
from fleetctl.paths import FleetPaths
from fleetctl.ports.host import STATUS_S, FleetProcesses
from fleetctl.spelling import NAME_RULE, is_name
from fleetctl_host_local import (
    controller_client,
    earlier_layout,
    gateway_client,
    orphaned_processes,
    public_port,
    recorded_environment,
    supervision,
)
from fleetctl_host_local.heartbeat import current_stall
from fleetctl_host_local.runtimes import LocalControllerRuntime, LocalGatewayRuntime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from fleetctl.environment import FleetEnvironment
    from fleetctl.model.request_trace import RequestTraces, TraceQuery
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.host import OrphanedProcess
    from fleetctl.ports.runtime import Stall

_POLL_S = 0.05


class LocalHost:
    """Implements Host."""

    name = "local"

    @contextmanager
    def exclusive(
        self, fleet: str, *, operation: str, wait_s: float, on_wait: Callable[[str], None] = lambda _: None
    ) -> Iterator[None]:
        """Hold the operation's lock for a block. Raises LockHeldError."""
        paths = FleetPaths(fleet=fleet)
        paths.make()
        with FileLock(paths.home / f"{operation}.lock").hold(wait_s=wait_s, on_wait=on_wait):
            yield

    def ensure_controller(self, fleet: str, *, is_wanted: Callable[[], bool], within_s: float | None = None) -> None:
        """Return once a controller answers; start one if there is none. Raises UnavailableError."""
        del within_s  # it has bounds of its own, and is there within them or never
        supervision.ensure_controller(fleet, is_wanted=is_wanted)

    def environment(self, fleet: str) -> FleetEnvironment | None:
        """Return what is on record in the fleet's directory. Raises StateError."""
        return recorded_environment.read(FleetPaths(fleet=fleet))

    def keep_environment(self, fleet: str, environment: FleetEnvironment | None) -> None:
        """Record it there, or remove the record. Raises StateError."""
        recorded_environment.write(FleetPaths(fleet=fleet), environment)

    def processes(self, fleet: str) -> FleetProcesses:
        """Return what holds the fleet's locks; without a controller also what an earlier version left running.

        No path is made of a name that no fleet may have: of such a fleet nothing holds a lock.
        """
        if not is_name(fleet):
            return FleetProcesses()
        paths = FleetPaths(fleet=fleet)
        controller = _holder_pid(FileLock(paths.controller_lock))
        gateway = _holder_pid(FileLock(paths.gateway_lock))
        if controller is None:
            earlier = earlier_layout.processes_of(fleet)
            controller, gateway = earlier.get("controller"), gateway or earlier.get("gateway")
        others = {number: _holder_pid(FileLock(paths.gateway_lock_of(number))) for number in paths.gateway_numbers[1:]}
        living = tuple((number, pid) for number, pid in others.items() if pid is not None)
        return FleetProcesses(controller_pid=controller, gateway_pid=gateway, other_gateways=living)

    def stalls(self, fleet: str) -> tuple[Stall | None, Stall | None]:
        """Return what one look at the locks' heartbeats tells."""
        if not is_name(fleet):
            return None, None
        paths, now_s = FleetPaths(fleet=fleet), SYSTEM_CLOCK.monotonic_s()
        controller, gateway = FileLock(paths.controller_lock), FileLock(paths.gateway_lock)
        return current_stall(controller, now_s), current_stall(gateway, now_s)

    def await_exit(self, processes: FleetProcesses, *, within_s: float) -> None:
        """Wait for processes that have let go of their locks and are about to exit."""
        named = (processes.controller_pid, processes.gateway_pid, *(pid for _, pid in processes.other_gateways))
        pids = [pid for pid in named if pid]
        deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
        while any(map(_is_alive, pids)) and SYSTEM_CLOCK.monotonic_s() < deadline_s:
            SYSTEM_CLOCK.sleep_blocking(_POLL_S)

    def wake(self, fleet: str) -> bool:
        """Have the controller decide now; False: it does not answer."""
        try:
            controller_client.wake(fleet)
        except UnavailableError:
            return False
        return True

    def status(self, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
        """Return the controller's status. Raises UnavailableError."""
        if not is_name(fleet):
            raise UnavailableError(f"no controller keeps a fleet called {fleet!r}", hint=NAME_RULE)
        return controller_client.status(fleet, deadline_s=deadline_s)

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what the gateway remembers of requests. Raises UnavailableError."""
        return gateway_client.request_traces(fleet, query)

    def stream(self, fleet: str) -> AsyncIterator[FleetStatus]:
        """Yield the controller's statuses. Raises UnavailableError."""
        return controller_client.stream(fleet)

    def check_port(self, address: str, port: int) -> None:
        """Return if the port can be bound. Raises UnavailableError."""
        public_port.check_port(address, port)

    def accepts(self, address: str, port: int) -> bool:
        """Whether a connection can be made there."""
        return public_port.accepts(address, port)

    def free_port(self, address: str) -> int:
        """Return a port that can be bound. Raises UnavailableError."""
        return public_port.free_port(address)

    def orphaned_processes(self, *, owner: str, fleets: frozenset[str]) -> tuple[OrphanedProcess, ...]:
        """Return processes tagged with this store's owner, or run on its directory, whose fleet is not known."""
        everybody = orphaned_processes.fleet_processes(owner)
        return tuple(each for each in everybody if each.fleet not in fleets or each.owner not in ("", owner))

    def end_orphaned(self, processes: tuple[OrphanedProcess, ...], *, within_s: float) -> tuple[OrphanedProcess, ...]:
        """End such processes: the controllers first, which would start others."""
        return orphaned_processes.end(processes, within_s=within_s)

    def logs(self, fleet: str) -> str:
        """Return the directory of the fleet's logs."""
        return str(FleetPaths(fleet=fleet).logs)

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of a process's log."""
        text, end = read_log(FleetPaths(fleet=fleet).logs / f"{process}.log", bytes_max=bytes_max, after=after)
        return LogChunk(text=text, end=end)

    def clean_up(self, fleet: str) -> None:
        """Remove the sockets and the routing table of processes that were killed. Locks stay: see FileLock."""
        if self.processes(fleet).is_any:
            return
        paths = FleetPaths(fleet=fleet)
        gateways = [paths.gateway_socket_of(number) for number in paths.gateway_numbers]
        for path in (paths.controller_socket, *gateways, paths.routing_table, paths.environment):
            path.unlink(missing_ok=True)
        elsewhere = paths.socket_dir
        if elsewhere not in (None, paths.home):
            shutil.rmtree(elsewhere, ignore_errors=True)
            paths.socket_dir_record.unlink(missing_ok=True)

    def controller_runtime(self, fleet: str) -> LocalControllerRuntime:
        """Return what the controller process that calls this needs."""
        return LocalControllerRuntime(fleet)

    def gateway_runtime(self, fleet: str, *, number: int = 1) -> LocalGatewayRuntime:
        """Return what the gateway process that calls this needs. Raises ConfigError."""
        return LocalGatewayRuntime(fleet, number)


def _holder_pid(lock: FileLock) -> int | None:
    """Return the pid in a held lock, 0 where it is not written yet, None for a free one."""
    holder = lock.holder()
    if holder is not None:
        return holder.pid
    return 0 if lock.is_held() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # gone, or the number is another user's by now
    return True
