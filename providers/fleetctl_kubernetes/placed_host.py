"""The host of one fleet whose controller and gateways are pods of the cluster."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fleetctl import os_signals
from fleetctl.codec import decode, encode
from fleetctl.environment import FleetEnvironment
from fleetctl.errors import ConfigError, CredentialsError, FleetctlError, StateError, UnavailableError
from fleetctl.model.log import LogChunk
from fleetctl.model.request_trace import RequestTraces
from fleetctl.model.status import FleetStatus
from fleetctl.model.tls import base_url
from fleetctl.ports.host import STATUS_S, FleetProcesses
from fleetctl_host_local.host import LocalHost
from fleetctl_kubernetes import placing
from fleetctl_kubernetes.connection import NotThereError, TerminatingError
from fleetctl_kubernetes.host_objects import HostObjects
from fleetctl_kubernetes.pod_calls import PodCalls, is_ready
from fleetctl_kubernetes.pod_states import PodTrouble, last_warning, pod_trouble

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from fleetctl.model.request_trace import TraceQuery
    from fleetctl.ports.host import HostPlace
    from fleetctl.ports.runtime import Stall
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.host_objects import PodPlace

T = TypeVar("T")
# An image has to be pulled, a node perhaps to come, a lease of a pod that died with its node to run out.
_READY_S = 600.0
_POLL_S, _LOOK_S = 0.5, 3.0  # a look reads the state twice or thrice, each a call of the API server
_REMOVED_S = 120.0
_STREAM_S = 1.0
_TRACES_S = 5.0


class PlacedKubernetesHost(LocalHost):
    """Implements Host and GatewayReach for one fleet: its locks are this machine's, its processes are the pod's."""

    name = "kubernetes"

    def __init__(self, place: HostPlace) -> None:
        self._place = place
        self._shown: set[str] = set()

    @cached_property
    def _connection(self) -> ClusterConnection:
        return placing.connection_of(self._place)

    @cached_property
    def _objects(self) -> HostObjects:
        return HostObjects(self._connection, owner=self._place.store.owner, fleet=self._place.fleet)

    @cached_property
    def _calls(self) -> PodCalls:
        there = placing.recorded_place(self._place) or placing.wanted_place(self._place, self._connection)
        return PodCalls(
            self._connection, namespace=there.namespace, labels=self._objects.pod_labels, secret=self._objects.name,
            port=there.control_port,
        )  # fmt: skip

    @cached_property
    def _gateways(self) -> PodCalls:
        return PodCalls(
            self._connection, namespace=self._calls.namespace, labels=self._objects.gateway_labels,
            secret=self._objects.name, port=self._place.record.port,
        )  # fmt: skip

    def ensure_controller(self, fleet: str, *, is_wanted: Callable[[], bool], within_s: float | None = None) -> None:
        """Return once the pod's controller answers; apply what is not as it should be. Raises UnavailableError, ProviderError.

        It is waited for ten minutes, or as long as the command has left.
        """
        clock = self._place.clock
        try:
            is_changed = self._have_applied(is_wanted=is_wanted())
        except (NotThereError, TerminatingError):
            if is_wanted():
                raise
            # Its namespace is gone, or goes, with the pod in it: a fleet that is to end is ended from here.
            self._show(f"{self._calls.namespace} is being deleted or gone; {fleet} is taken down from here")
            super().ensure_controller(fleet, is_wanted=is_wanted, within_s=within_s)
            return
        within_s = _READY_S if within_s is None else min(within_s, _READY_S)
        until_s, looked_s = clock.monotonic_s() + within_s, clock.monotonic_s() - _LOOK_S
        while True:
            if self._answers(fleet):
                return
            if clock.monotonic_s() - looked_s >= _LOOK_S:
                looked_s = clock.monotonic_s()
                if self._place.store.fleet(fleet) is None and not is_wanted():
                    return
                # By its lease it is at work, and reads what is written with its next tick: who may not speak to it has
                # nothing to wait for.
                if not is_changed and self.processes(fleet).has_controller and not self._calls.is_allowed:
                    return
                if self._lacks_environment(self._calls.namespace):
                    is_changed |= self._have_applied(is_wanted=is_wanted())
                self._show(self._trouble().text)
            if clock.monotonic_s() >= until_s:
                break
            with (
                os_signals.let_through()
            ):  # all is applied, and the cluster goes on by itself: nobody has to wait for it
                clock.sleep_blocking(_POLL_S)
        trouble = self._trouble()
        raise UnavailableError(
            f"the pod of {fleet} does not answer after {within_s:.0f} s: {trouble.text}", hint=trouble.hint
        )

    def why_silent(self, fleet: str) -> str:
        """Return what keeps the controller's pod from answering, and what to do; at once, as far as the API server is."""
        del fleet
        trouble = self._trouble()
        return f"{trouble.text}; {trouble.hint}" if trouble.hint else trouble.text

    def environment(self, fleet: str) -> FleetEnvironment | None:
        """Return what the pod is given. Raises StateError, ProviderError."""
        there = placing.recorded_place(self._place)
        content = self._objects.environment(there.namespace) if there is not None else b""
        try:
            return decode(FleetEnvironment, content) if content else None
        except msgspec.MsgspecError as exc:
            raise StateError(f"the environment of {fleet} cannot be read", hint="run `fleetctl up` again") from exc

    def keep_environment(self, fleet: str, environment: FleetEnvironment | None) -> None:
        """Keep what the profile refers to in the fleet's Secret, which goes with it: all else is of this machine."""
        del fleet
        if environment is not None:
            wanted = self._placed()
            there = FleetEnvironment(inherited={}, variables=environment.variables)
            self._objects.keep_environment(wanted, encode(there))

    def processes(self, fleet: str) -> FleetProcesses:
        """Return whether both live, by the lease: its controller gives a sign of life every 5 s. Their numbers are the pod's.

        Where its namespace went a controller may be at work here.
        """
        here = super().processes(fleet)
        if here.has_controller:
            return here
        lease = self._place.store.lease(fleet)
        if lease is None or not lease.is_living(self._place.clock.now()):
            return FleetProcesses()
        return FleetProcesses(controller_pid=0, gateway_pid=0)

    def stalls(self, fleet: str) -> tuple[Stall | None, Stall | None]:
        """Return nothing: controller and gateway watch each other there."""
        del fleet
        return None, None

    def wake(self, fleet: str) -> bool:
        """Have the controller decide now; False: it does not answer."""
        del fleet
        try:
            self._calls.call("POST", "/v1/wake", {}, deadline_s=STATUS_S)
        except FleetctlError:
            return False
        return True

    def status(self, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
        """Return the controller's status. Raises UnavailableError."""
        return self._answer(FleetStatus, "/v1/status", {}, deadline_s, of=f"the controller of {fleet}")

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what the gateway remembers of requests. Raises UnavailableError."""
        given = {name: value for name, value in msgspec.to_builtins(query).items() if value not in (None, "")}
        given["is_missed"] = str(query.is_missed).lower()
        parameters = {name: str(value) for name, value in given.items()}
        return self._answer(RequestTraces, "/v1/requests", parameters, _TRACES_S, of=f"the gateway of {fleet}")

    async def stream(self, fleet: str) -> AsyncIterator[FleetStatus]:
        """Yield the controller's statuses, got once a second. Raises UnavailableError."""
        import asyncio

        from fleetctl.clock import SYSTEM_CLOCK

        while True:
            yield await asyncio.to_thread(self.status, fleet)
            await SYSTEM_CLOCK.sleep(_STREAM_S)

    def logs(self, fleet: str) -> str:
        """Return where the logs are."""
        found = self._objects
        return f"the pods of deployments {found.name} and {found.gateways_name} in {self._calls.namespace}"

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of a process's log, read there. Raises UnavailableError."""
        parameters = {"bytes_max": str(bytes_max)} | ({} if after is None else {"after": str(after)})
        try:
            return self._answer(LogChunk, f"/v1/logs/{process}", parameters, _TRACES_S, of=f"the pod of {fleet}")
        except UnavailableError as exc:
            trouble = self._trouble()
            if not trouble.is_certain:
                raise
            raise UnavailableError(f"{exc.message}: {trouble.text}", hint=trouble.hint) from exc

    def clean_up(self, fleet: str) -> None:
        """End the pods and delete what was made for them, and see them gone. Raises UnavailableError where that takes too long."""
        there, clock = placing.recorded_place(self._place), self._place.clock
        if there is None:
            return
        self._show(f"ending the pods of {fleet}")
        until_s = clock.monotonic_s() + _REMOVED_S
        while not self._objects.delete_pods(there):
            if clock.monotonic_s() >= until_s:
                raise UnavailableError(
                    f"the pods of {fleet} have not ended after {_REMOVED_S:g} s",
                    hint=f"run it again: fleetctl down {fleet}",
                )
            clock.sleep_blocking(_POLL_S)
        self._objects.delete(there)
        self._calls.close()
        placing.forget_place(self._place)

    # Of GatewayReach

    def gateway_url(self) -> str:
        """Return the address of the gateways' Service, which leads there from within the cluster."""
        host = f"{self._objects.name}.{self._calls.namespace}.svc"
        return base_url(host, self._place.record.port, self._place.record.tls)

    def gateway_answers(self) -> bool:
        """Whether any gateway's pod is ready: it answered kubelet's probe. Raises ProviderError."""
        return any(is_ready(each) for each in self._gateways.pods())

    @contextmanager
    def gateway_reached(self) -> Iterator[str]:
        """Lead a port of this machine to a gateway, for the block; yield its URL. Raises UnavailableError."""
        port = self._place.record.port
        try:
            forward = self._gateways.forward(port)
            forward.__enter__()
        except CredentialsError as exc:
            raise UnavailableError(
                f"the gateway is not reached from here: {exc.message}",
                hint=f"it takes `create` of pods/portforward; from within the cluster it is {self.gateway_url()}",
            ) from exc
        try:
            yield base_url("127.0.0.1", forward.port, self._place.record.tls)
        finally:
            forward.__exit__()

    # What they share

    def _placed(self) -> PodPlace:
        """Return where the pod is to be, on record. Raises ConfigError."""
        wanted = placing.wanted_place(self._place, self._connection)
        placing.keep_place(self._place, wanted)
        return wanted

    def _have_applied(self, *, is_wanted: bool) -> bool:
        """Apply every object unless all was applied as it is to be; return whether there was something to do.

        Raises UnavailableError where only `up` can: its pod would never start.
        """
        wanted = self._placed()
        try:
            if not self._objects.environment(wanted.namespace):
                if self.processes(self._place.fleet).has_controller:
                    return False  # it makes the Secret again of what its pod still has of it, tokens included
                self._go_without_environment(wanted, is_wanted=is_wanted)
            if self._objects.is_applied(wanted):
                self._refuse_leaving(wanted.namespace)
                return False
            self._objects.apply(wanted)
        except CredentialsError:
            # Whoever may only command a fleet that is at work does not have to be allowed to place one.
            if self.processes(self._place.fleet).has_controller:
                return False
            raise
        self._show(f"{self._objects.name} in {wanted.namespace}: applied")
        return True

    def _lacks_environment(self, namespace: str) -> bool:
        """Whether no controller lives and none can be started: what it is started with is gone."""
        # The state, which has the namespace too, is not read for it: each reading is a call while a pod is waited for.
        try:
            is_there = bool(self._objects.environment(namespace))
        except CredentialsError:
            return False  # whoever may not read it has the word of the pod alone
        return not is_there and not self.processes(self._place.fleet).has_controller

    def _go_without_environment(self, there: PodPlace, *, is_wanted: bool) -> None:
        """Keep an empty environment for a fleet that is to end, which takes none of the keys that were in it.

        Raises UnavailableError where the fleet is to go on: `up` alone has them.
        """
        if not is_wanted:
            self._objects.keep_environment(there, encode(FleetEnvironment(inherited={}, variables={})))
        elif (trouble := self._objects.controller_trouble(there)) is not None:
            raise UnavailableError(f"no controller of {self._place.fleet} can start: {trouble.text}", hint=trouble.hint)

    def _refuse_leaving(self, namespace: str) -> None:
        """Raise NotThereError or TerminatingError of a namespace that goes or has gone, whatever is still to be seen in it."""
        try:
            found = self._connection.call("CoreV1Api", "read_namespace", namespace)
        except CredentialsError:
            return  # whoever may not read it finds out by what is refused there
        if found.get("status", {}).get("phase") == "Terminating":
            raise TerminatingError(f"the namespace {namespace} is being deleted")

    def _answer(self, kind: type[T], path: str, query: dict[str, str], deadline_s: float, *, of: str) -> T:
        try:
            raw = self._calls.call("GET", path, query, deadline_s=deadline_s)
        except ConfigError as exc:
            raise UnavailableError(exc.message, hint=exc.hint) from exc
        try:
            return decode(kind, raw)
        except msgspec.MsgspecError as exc:
            raise UnavailableError(
                f"{of} gave what this version cannot read: {exc}",
                hint="its image may be of another version of fleetctl",
            ) from exc

    def _answers(self, fleet: str) -> bool:
        try:
            self.status(fleet)
        except UnavailableError:
            return False
        return True

    def _trouble(self) -> PodTrouble:
        """Return what keeps the controller's pod from answering."""
        there = placing.recorded_place(self._place)
        if there is None:
            return PodTrouble(text="no pod of it was placed", hint="run `fleetctl up` again", is_certain=False)
        try:
            return self._objects.controller_trouble(there) or self._pods_trouble()
        except FleetctlError as exc:
            return PodTrouble(text=exc.message, hint=exc.hint)

    def _pods_trouble(self) -> PodTrouble:
        pods = self._calls.pods()
        if not pods:
            hint = f"kubectl describe deployment -n {self._calls.namespace} {self._objects.name}"
            return PodTrouble(text="no pod of it is there yet", hint=hint, is_certain=False)
        found = pod_trouble(pods[-1])
        if found.is_certain:
            return found
        try:
            warning = last_warning(self._connection, pods[-1])
        except CredentialsError:  # whoever may not read events has the pod's status alone
            return found
        return replace(found, text=f"{found.text}; {warning}", is_certain=True) if warning else found

    def _show(self, text: str) -> str:
        if text not in self._shown:
            self._shown.add(text)
            self._place.tell(text)
        return text
