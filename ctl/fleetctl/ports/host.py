"""What fleetctl needs of the place where a fleet's controller and gateway run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fleetctl.clock import BlockingClock
from fleetctl.model.host_choice import HostRecord
from fleetctl.ports.provider import Provider
from fleetctl.ports.store import StateStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from fleetctl.environment import FleetEnvironment
    from fleetctl.model.log import LogChunk
    from fleetctl.model.preflight import Finding
    from fleetctl.model.provider_setting import ProviderSetting
    from fleetctl.model.request_trace import RequestTraces, TraceQuery
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.runtime import ControllerRuntime, GatewayRuntime, Stall

STATUS_S = 2.0  # a controller builds a status from memory; longer than this it is not answering
COMMAND_LOCK = "operation"  # the exclusive operation of a command on a fleet while it reads, decides and writes


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetProcesses:
    """Which of a fleet's processes live, answering or not; pid 0: the host knows of it and not its number."""

    controller_pid: int | None = None  # None: it does not live
    gateway_pid: int | None = None
    other_gateways: tuple[tuple[int, int], ...] = ()  # of several, those beyond the first: their numbers and pids

    @property
    def has_controller(self) -> bool:
        """Whether a controller lives."""
        return self.controller_pid is not None

    @property
    def has_gateway(self) -> bool:
        """Whether a gateway lives."""
        return self.gateway_pid is not None or bool(self.other_gateways)

    @property
    def is_any(self) -> bool:
        """Whether either lives; each starts the other if it is missing."""
        return self.has_controller or self.has_gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedProcess:
    """A process of a fleet that the store does not know."""

    pid: int
    fleet: str
    role: str  # "controller", "gateway", "replica r1"
    owner: str = ""  # of a replica: the store that ordered it


class Host(Protocol):
    """The place where fleets run; reached by the entry point group `fleetctl.host`; constructed without arguments.

    Its calls block, each within its stated deadline; in an event loop they belong in a thread. `stream` alone is async.
    """

    name: str

    def exclusive(
        self, fleet: str, *, operation: str, wait_s: float, on_wait: Callable[[str], None] = ...
    ) -> AbstractContextManager[None]:
        """Keep others from beginning the same operation on the fleet meanwhile.

        `on_wait` is told once for whom one waits, if it takes longer than a moment. Raises LockHeldError naming the holder after `wait_s`. Ends with its process.
        """
        ...

    def ensure_controller(self, fleet: str, *, is_wanted: Callable[[], bool], within_s: float | None = None) -> None:
        """Return once a controller answers, within 25 s; where a machine or a pod is made for it within minutes, or `within_s`.

        One that ended well while `is_wanted` says no has done what was left to do. Raises UnavailableError with the
        end of its log.
        """
        ...

    def environment(self, fleet: str) -> FleetEnvironment | None:
        """Return what the fleet's processes are started with; None: nothing is on record. Raises StateError."""
        ...

    def keep_environment(self, fleet: str, environment: FleetEnvironment | None) -> None:
        """Start the fleet's processes with this from now on, kept where this user alone can read it; None: forget it.

        Raises StateError.
        """
        ...

    def processes(self, fleet: str) -> FleetProcesses:
        """Return what lives of the fleet, at once."""
        ...

    def stalls(self, fleet: str) -> tuple[Stall | None, Stall | None]:
        """Return what keeps the fleet's controller and its gateway from progressing, at once; None: nothing."""
        ...

    def await_exit(self, processes: FleetProcesses, *, within_s: float) -> None:
        """Return when these processes have exited, or after `within_s`."""
        ...

    def wake(self, fleet: str) -> bool:
        """Have the controller act now on what was just written, within 2 s; False: it will at its next start or tick."""
        ...

    def status(self, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
        """Return what the controller says of its fleet. Raises UnavailableError when it does not within `deadline_s`."""
        ...

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what the gateway remembers of requests, within 5 s. Raises UnavailableError."""
        ...

    def stream(self, fleet: str) -> AsyncIterator[FleetStatus]:
        """Yield the controller's statuses, one a tick, until it goes. Raises UnavailableError at once or after 10 s silence."""
        ...

    def check_port(self, address: str, port: int) -> None:
        """Return if a gateway could listen there now. Raises UnavailableError."""
        ...

    def accepts(self, address: str, port: int) -> bool:
        """Whether somebody takes connections there, asked by making one, within 2 s."""
        ...

    def free_port(self, address: str) -> int:
        """Return a port a gateway could listen on now. Raises UnavailableError."""
        ...

    def orphaned_processes(self, *, owner: str, fleets: frozenset[str]) -> tuple[OrphanedProcess, ...]:
        """Return what runs on this state directory and whose fleet is not among `fleets`, or whose store is another.

        An empty `owner` stands for a state that is gone.
        """
        ...

    def end_orphaned(self, processes: tuple[OrphanedProcess, ...], *, within_s: float) -> tuple[OrphanedProcess, ...]:
        """End such processes, asked first and made to after `within_s`; return those that live on."""
        ...

    def logs(self, fleet: str) -> str:
        """Return where the processes' output is kept, for people."""
        ...

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return what the fleet's "controller" or "gateway" wrote behind byte `after`; None: the end of it."""
        ...

    def clean_up(self, fleet: str) -> None:
        """Remove what a forgotten fleet's processes left, logs excepted; nothing while one of them lives."""
        ...

    def controller_runtime(self, fleet: str) -> ControllerRuntime:
        """Return what the controller process that calls this needs."""
        ...

    def gateway_runtime(self, fleet: str, *, number: int = 1) -> GatewayRuntime:
        """Return what the gateway process that calls this needs, of several the one with this number."""
        ...


@runtime_checkable
class GatewayReach(Protocol):
    """Capability of a fleet's host whose gateway is at no address of this machine."""

    def gateway_url(self) -> str:
        """Return the base URL of the fleet's clients, without its /v1."""
        ...

    def gateway_answers(self) -> bool:
        """Whether it takes requests, as its host knows. Raises FleetctlError."""
        ...

    def gateway_reached(self) -> AbstractContextManager[str]:
        """Yield a base URL by which this machine reaches it, for a block. Raises UnavailableError."""
        ...


@runtime_checkable
class CertificateKeeper(Protocol):
    """Capability of a fleet's host that has no file of this machine: the gateway's certificate is brought to it."""

    def keep_certificate(self, fleet: str, pem: str) -> None:
        """Have the gateway's key and its certificate there, as secrets are. Raises ProviderError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """What a host away from here works on for one fleet."""

    fleet: str
    record: HostRecord
    store: StateStore
    provider: Callable[[], Provider]  # of the fleet, at work by its settings
    clock: BlockingClock
    tell: Callable[[str], None]  # tells whoever gave the command what it waits for


@runtime_checkable
class HostWithin(Protocol):
    """Capability of a remote host: what commands and processes work with that run where it has placed them."""

    def within(self) -> Host:
        """Return the host as it is there."""
        ...


@runtime_checkable
class RemoteHost(Protocol):
    """A host away from the machine that commands run on; it is a Host only once it is placed."""

    name: str
    declared: tuple[ProviderSetting, ...]  # what it takes from a profile

    def placed(self, place: HostPlace) -> Host:
        """Return the host of one fleet."""
        ...

    def judged(self, place: HostPlace, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return what a preflight from here found, as it is from there, and what this host itself needs; nothing is changed."""
        ...
