"""The Host that commands work with: each fleet's own, found by what is on record; this machine where nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.certificates import whole_pem
from fleetctl.model.host_choice import HostRecord
from fleetctl.ports.head_image import HeadImageKeeper, HeadReader
from fleetctl.ports.host import STATUS_S, CertificateKeeper, GatewayReach, HostPlace, RemoteHost
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.ports.silence import SilenceReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from fleetctl.clock import BlockingClock
    from fleetctl.environment import FleetEnvironment
    from fleetctl.model.head import HeadStatus
    from fleetctl.model.log import LogChunk
    from fleetctl.model.preflight import Finding
    from fleetctl.model.profile import Profile
    from fleetctl.model.provider_setting import ProviderChoice
    from fleetctl.model.request_trace import RequestTraces, TraceQuery
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.host import FleetProcesses, Host, OrphanedProcess
    from fleetctl.ports.provider import Provider
    from fleetctl.ports.runtime import ControllerRuntime, GatewayRuntime, Stall
    from fleetctl.ports.store import StateStore


def record_of(profile: Profile) -> HostRecord:
    """Return what is remembered of a profile's host."""
    return HostRecord(
        choice=profile.host_choice,
        provider=profile.provider_choice,
        port=profile.gateway.port,
        address=profile.gateway.host,
        gateways=profile.gateway.processes,
        tls=profile.gateway.tls,
    )


def note_host(store: StateStore, profile: Profile, clock: BlockingClock) -> None:
    """Remember beyond the fleet where its controller and gateway run, so that its end is not forgotten with it."""
    record, fleet = record_of(profile), profile.name
    known = store.find_record(Collection.HOSTS, fleet, fleet=fleet)
    if record.choice.is_local and known is None:
        return
    if known is None or known.value_as(HostRecord) != record:
        store.put_record(StoredRecord.of(Collection.HOSTS, fleet, record, at=clock.now(), fleet=fleet))


def hosted_elsewhere(store: StateStore) -> tuple[str, ...]:
    """Return the fleets on record whose host is not this machine, also those that are forgotten and not cleaned up."""
    return tuple(sorted({each.fleet for each in store.records(Collection.HOSTS)}))


class FleetHosts:
    """Implements Host over several. What is asked of no fleet is asked of this machine, and so are locks of commands."""

    name = "fleets"

    def __init__(
        self,
        local: Host,
        *,
        load: Callable[[str], object],
        store: Callable[[], StateStore],
        provider: Callable[[ProviderChoice], Provider],
        clock: BlockingClock,
        tell: Callable[[str], None],
    ) -> None:
        self._local = local
        self._load = load
        self._store = store
        self._provider = provider
        self._clock = clock
        self._tell = tell
        self._placed: dict[str, tuple[HostRecord, Host]] = {}

    def exclusive(
        self, fleet: str, *, operation: str, wait_s: float, on_wait: Callable[[str], None] = lambda _: None
    ) -> AbstractContextManager[None]:
        """Exclude the others of this machine; what commands of several write is kept apart by the state."""
        return self._local.exclusive(fleet, operation=operation, wait_s=wait_s, on_wait=on_wait)

    def ensure_controller(self, fleet: str, *, is_wanted: Callable[[], bool], within_s: float | None = None) -> None:
        """Return once a controller answers. Raises UnavailableError."""
        self._of(fleet).ensure_controller(fleet, is_wanted=is_wanted, within_s=within_s)

    def why_silent(self, fleet: str) -> str:
        """Return what keeps a fleet's controller from answering, where its host knows; empty: it does not."""
        host = self._of(fleet)
        return host.why_silent(fleet) if isinstance(host, SilenceReader) else ""

    def environment(self, fleet: str) -> FleetEnvironment | None:
        """Return what the fleet's processes are started with."""
        return self._of(fleet).environment(fleet)

    def keep_environment(self, fleet: str, environment: FleetEnvironment | None) -> None:
        """Keep it where they run."""
        self._of(fleet).keep_environment(fleet, environment)

    def keep_certificate(self, profile: Profile) -> None:
        """Bring the gateway's certificate to a host that has none of this machine's files. Raises ConfigError, ProviderError."""
        host, tls = self._of(profile.name), profile.gateway.tls
        if tls is not None and not tls.secret and isinstance(host, CertificateKeeper):
            host.keep_certificate(profile.name, whole_pem(tls.certificate, tls.key))

    def refresh_image(self, fleet: str) -> None:
        """Look the image of the fleet's next head up anew, where it has heads."""
        host = self._of(fleet)
        if isinstance(host, HeadImageKeeper):
            host.refresh_image(fleet)

    def head_status(self, fleet: str) -> HeadStatus | None:
        """Return what is on record of a fleet's head; None: its host is none, or this machine is it."""
        host = self._local if self.keeps_here(fleet) else self._of(fleet)
        return host.head_status() if isinstance(host, HeadReader) else None

    def processes(self, fleet: str) -> FleetProcesses:
        """Return what lives of the fleet."""
        return self._of(fleet).processes(fleet)

    def stalls(self, fleet: str) -> tuple[Stall | None, Stall | None]:
        """Return what keeps them from progressing."""
        return self._of(fleet).stalls(fleet)

    def await_exit(self, processes: FleetProcesses, *, within_s: float) -> None:
        """Wait for processes of this machine."""
        self._local.await_exit(processes, within_s=within_s)

    def wake(self, fleet: str) -> bool:
        """Have the controller act now."""
        return self._of(fleet).wake(fleet)

    def keeps_here(self, fleet: str) -> bool:
        """Whether a fleet of a state elsewhere has its controller on this machine, as its lock tells: that state is not asked.

        A state of this machine's own that cannot be read is what a command has to say, and nothing behind it.
        """
        return self._store().is_shared and self._local.processes(fleet).has_controller

    def status(self, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
        """Return what the controller says; one on this machine also while the state is out of reach."""
        host = self._local if self.keeps_here(fleet) else self._of(fleet)
        return host.status(fleet, deadline_s=deadline_s)

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what the gateway remembers."""
        return self._of(fleet).request_traces(fleet, query)

    def stream(self, fleet: str) -> AsyncIterator[FleetStatus]:
        """Yield the controller's statuses."""
        return self._of(fleet).stream(fleet)

    def check_port(self, address: str, port: int) -> None:
        """Return if a gateway could listen there on this machine."""
        self._local.check_port(address, port)

    def accepts(self, address: str, port: int) -> bool:
        """Whether somebody takes connections there."""
        return self._local.accepts(address, port)

    def free_port(self, address: str) -> int:
        """Return a free port of this machine."""
        return self._local.free_port(address)

    def orphaned_processes(self, *, owner: str, fleets: frozenset[str]) -> tuple[OrphanedProcess, ...]:
        """Return those of this machine."""
        return self._local.orphaned_processes(owner=owner, fleets=fleets)

    def end_orphaned(self, processes: tuple[OrphanedProcess, ...], *, within_s: float) -> tuple[OrphanedProcess, ...]:
        """End such processes."""
        return self._local.end_orphaned(processes, within_s=within_s)

    def logs(self, fleet: str) -> str:
        """Return where logs are kept."""
        return self._of(fleet).logs(fleet)

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of a log."""
        return self._of(fleet).read_log(fleet, process, after=after, bytes_max=bytes_max)

    def clean_up(self, fleet: str) -> None:
        """Remove what a forgotten fleet left, its host's record last."""
        host = self._of(fleet)
        host.clean_up(fleet)
        if host is not self._local:
            self._local.clean_up(fleet)
            self._placed.pop(fleet, None)
            store = self._store()
            if store.fleet(fleet) is None:
                store.remove_record(Collection.HOSTS, fleet, fleet=fleet)

    def controller_runtime(self, fleet: str) -> ControllerRuntime:
        """Return what a controller process of this machine needs."""
        return self._local.controller_runtime(fleet)

    def gateway_runtime(self, fleet: str, *, number: int = 1) -> GatewayRuntime:
        """Return what a gateway process of this machine needs."""
        return self._local.gateway_runtime(fleet, number=number)

    def gateway_reach(self, fleet: str) -> GatewayReach | None:
        """Return how a fleet's gateway is reached that has no address of this machine; None: by its address."""
        host = self._local if self.keeps_here(fleet) else self._of(fleet)
        return host if isinstance(host, GatewayReach) else None

    def judged(self, profile: Profile, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return a preflight's findings as they are from the profile's host."""
        record = record_of(profile)
        remote = self._remote(record)
        return remote.judged(self._place(profile.name, record), found) if remote is not None else found

    def _of(self, fleet: str) -> Host:
        """Return a fleet's host; the same for as long as its record is."""
        stored = self._store().find_record(Collection.HOSTS, fleet, fleet=fleet)
        if stored is None:
            return self._local
        record = stored.value_as(HostRecord)
        known = self._placed.get(fleet)
        if known is not None and known[0] == record:
            return known[1]
        remote = self._remote(record)
        if remote is None:
            return self._local
        host = remote.placed(self._place(fleet, record))
        self._placed[fleet] = (record, host)
        return host

    def _remote(self, record: HostRecord) -> RemoteHost | None:
        if record.choice.is_local:
            return None
        found = self._load(record.choice.name)
        return found if isinstance(found, RemoteHost) else None

    def _place(self, fleet: str, record: HostRecord) -> HostPlace:
        return HostPlace(
            fleet=fleet, record=record, store=self._store(), clock=self._clock, tell=self._tell,
            provider=lambda: self._provider(record.provider),
        )  # fmt: skip
