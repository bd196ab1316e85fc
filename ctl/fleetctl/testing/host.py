"""A host in memory: controllers and gateways are names, ports are numbers, and every call is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.clock import Clock
from fleetctl.environment import FleetEnvironment
from fleetctl.errors import LockHeldError, UnavailableError
from fleetctl.model.log import LogChunk
from fleetctl.model.request_trace import EarlyRefusal, RequestTrace, RequestTraces, TraceQuery
from fleetctl.model.status import FleetStatus
from fleetctl.model.workflow_trace import WorkflowTrace
from fleetctl.ports.host import STATUS_S, FleetProcesses, OrphanedProcess
from fleetctl.ports.runtime import Stall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from fleetctl.ports.runtime import ControllerRuntime, GatewayRuntime

CONTROLLER_PID, GATEWAY_PID = 1001, 1002
_FREE_PORT = 18080


@dataclass(slots=True, kw_only=True)
class FakeHost:
    """Implements Host. A test says which controllers live, what they answer, and what starting one leads to."""

    clock: Clock
    name: str = "fake"
    controllers: dict[str, Callable[[], FleetStatus] | None] = field(default_factory=dict)  # None: lives, and is silent
    gateways: set[str] = field(default_factory=set)
    on_start: Callable[[str], None] | None = None  # starts a fleet's controller; None: none can be started
    held: set[tuple[str, str]] = field(default_factory=set)  # (fleet, operation) somebody else is at
    taken_ports: set[int] = field(default_factory=set)
    is_accepting: bool = True  # whether connections are taken
    has_ports: bool = True  # False: none can be bound
    stalled: dict[str, tuple[Stall | None, Stall | None]] = field(default_factory=dict)  # controller, gateway
    orphaned: tuple[OrphanedProcess, ...] = ()
    written: dict[tuple[str, str], str] = field(default_factory=dict)  # (fleet, process) -> its log, ASCII
    requests: tuple[RequestTrace, ...] = ()  # that every gateway remembers
    early_refusals: tuple[EarlyRefusal, ...] = ()  # and those that never had a lane
    workflows: tuple[WorkflowTrace, ...] = ()
    gateway_since: datetime | None = None  # when every gateway started; None: just now
    environments: dict[str, FleetEnvironment] = field(default_factory=dict)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)  # (call, fleet) of those that change something

    @contextmanager
    def exclusive(
        self, fleet: str, *, operation: str, wait_s: float, on_wait: Callable[[str], None] = lambda _: None
    ) -> Iterator[None]:
        """Hold the operation for a block. Raises LockHeldError at once: nobody lets go while one waits."""
        del wait_s, on_wait
        self.calls["exclusive", fleet] += 1
        if (fleet, operation) in self.held:
            raise LockHeldError(f"another process holds {operation} of {fleet}")
        self.held.add((fleet, operation))
        try:
            yield
        finally:
            self.held.remove((fleet, operation))

    def ensure_controller(self, fleet: str, *, is_wanted: Callable[[], bool], within_s: float | None = None) -> None:
        """Have `on_start` start a controller if none lives. Raises UnavailableError when none answers then."""
        del within_s  # it does not wait
        self.calls["ensure_controller", fleet] += 1
        if fleet not in self.controllers and self.on_start is not None:
            self.on_start(fleet)
        if self.controllers.get(fleet) is None and is_wanted():
            raise UnavailableError(f"the controller of {fleet} did not answer")

    def environment(self, fleet: str) -> FleetEnvironment | None:
        """Return what was kept."""
        return self.environments.get(fleet)

    def keep_environment(self, fleet: str, environment: FleetEnvironment | None) -> None:
        """Keep it in memory."""
        self.environments.pop(fleet, None)
        if environment is not None:
            self.environments[fleet] = environment

    def processes(self, fleet: str) -> FleetProcesses:
        """Return what lives."""
        return FleetProcesses(
            controller_pid=CONTROLLER_PID if fleet in self.controllers else None,
            gateway_pid=GATEWAY_PID if fleet in self.gateways else None,
        )

    def stalls(self, fleet: str) -> tuple[Stall | None, Stall | None]:
        """Return what the test has said of the fleet's processes."""
        return self.stalled.get(fleet, (None, None))

    def await_exit(self, processes: FleetProcesses, *, within_s: float) -> None:
        """Return at once: what does not live here has exited."""

    def wake(self, fleet: str) -> bool:
        """Record it; return whether a controller answers."""
        self.calls["wake", fleet] += 1
        return self.controllers.get(fleet) is not None

    def status(self, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
        """Return what the fleet's controller answers. Raises UnavailableError."""
        answer = self.controllers.get(fleet)
        if answer is None:
            raise UnavailableError(f"the controller of {fleet} does not answer within {deadline_s:g} s")
        return answer()

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what the test has given it, those of the query's id and lane alone. Raises UnavailableError without a gateway."""
        if fleet not in self.gateways:
            raise UnavailableError(f"the gateway of {fleet} does not answer")
        found = [
            r
            for r in self.requests
            if query.id in ("", r.id) and query.lane in ("", r.lane) and query.workflow in ("", r.workflow)
        ]
        last_seq = self.requests[-1].seq if self.requests else 0
        if query.after is not None:
            found = [each for each in found if each.seq > query.after][: query.limit]
        started_at = self.gateway_since or self.clock.now()
        return RequestTraces(
            started_at=started_at,
            at=self.clock.now(),
            last_seq=last_seq,
            requests=tuple(found),
            workflows=tuple(each for each in self.workflows if each.id == query.id),
            early=tuple(each for each in self.early_refusals if each.id == query.id),
        )

    async def stream(self, fleet: str) -> AsyncIterator[FleetStatus]:
        """Yield the controller's answer once a second until it is gone. Raises UnavailableError then."""
        while True:
            yield self.status(fleet)
            await self.clock.sleep(1.0)

    def check_port(self, address: str, port: int) -> None:
        """Return if the port is not among `taken_ports`. Raises UnavailableError."""
        if port in self.taken_ports:
            raise UnavailableError(f"port {port} on {address} is in use", hint="choose another: --port N")

    def accepts(self, address: str, port: int) -> bool:
        """Return what the test says."""
        del address, port
        return self.is_accepting

    def free_port(self, address: str) -> int:
        """Return a port that is not among `taken_ports`. Raises UnavailableError."""
        if not self.has_ports:
            raise UnavailableError(f"no port on {address} can be bound")
        return next(port for port in range(_FREE_PORT, 65536) if port not in self.taken_ports)

    def orphaned_processes(self, *, owner: str, fleets: frozenset[str]) -> tuple[OrphanedProcess, ...]:
        """Return the scripted ones whose fleet is not known."""
        del owner
        return tuple(found for found in self.orphaned if found.fleet not in fleets)

    def end_orphaned(self, processes: tuple[OrphanedProcess, ...], *, within_s: float) -> tuple[OrphanedProcess, ...]:
        """Forget them, and let the controllers and gateways among them be gone."""
        del within_s
        for each in processes:
            if each.role == "controller":
                self.controllers.pop(each.fleet, None)
            elif each.role == "gateway":
                self.gateways.discard(each.fleet)
        self.orphaned = tuple(each for each in self.orphaned if each not in processes)
        return ()

    def logs(self, fleet: str) -> str:
        """Return a place there is not."""
        return f"fake:{fleet}"

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return the scripted text."""
        text = self.written.get((fleet, process), "")
        start = max(0, len(text) - bytes_max) if after is None else after
        piece = text[start : start + bytes_max]
        return LogChunk(text=piece, end=start + len(piece))

    def clean_up(self, fleet: str) -> None:
        """Record it."""
        self.calls["clean_up", fleet] += 1

    def controller_runtime(self, fleet: str) -> ControllerRuntime:
        """Raise UnavailableError: nothing runs here."""
        raise UnavailableError(f"{self.name} runs no controller of {fleet}")

    def gateway_runtime(self, fleet: str, *, number: int = 1) -> GatewayRuntime:
        """Raise UnavailableError: nothing runs here."""
        raise UnavailableError(f"{self.name} runs no gateway {number} of {fleet}")
