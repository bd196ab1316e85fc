"""The host `kubernetes` as it is within the cluster: in the controller's pod, whose gateways are pods of their own."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fleetctl.catalogue.kubernetes_parts import (
    CONTROL_PORT,
    GATEWAY_SELECTOR,
    GATEWAY_TOKEN_FILE,
    POD_NAME,
    POD_SECRETS,
)
from fleetctl.codec import decode
from fleetctl.errors import ConfigError, FleetctlError, UnavailableError
from fleetctl.model.log import LogChunk
from fleetctl.model.request_trace import RequestTraces, merged_traces
from fleetctl_host_local.gateway_client import refuse_order_of_several, traces_target
from fleetctl_host_local.host import LocalHost
from fleetctl_host_local.runtimes import LocalControllerRuntime
from fleetctl_kubernetes.connection import ClusterConnection
from fleetctl_kubernetes.gateway_pods import GatewayPods
from fleetctl_kubernetes.placed_objects import PlacedFleetObjects, PlacedGatewayHost
from fleetctl_kubernetes.settings import ClusterSettings

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.model.request_trace import TraceQuery
    from fleetctl_kubernetes.gateway_pods import GatewayPod

# To connect, and for an answer: a listing that comes later than this is none.
_TIMEOUT_S = (2.0, 8.0)
_GATEWAY = "gateway"
_LOG_BYTES_MAX = 16 << 20  # kubelet keeps 10 MiB of a container's log before it begins another


class PodHost(LocalHost):
    """Implements Host: the controller is a process here, and the gateways are found through the API server."""

    name = "kubernetes"

    @cached_property
    def _pods(self) -> GatewayPods:
        return gateway_pods()

    def controller_runtime(self, fleet: str) -> PodControllerRuntime:
        """Return what the controller process that calls this needs."""
        return PodControllerRuntime(fleet)

    def request_traces(self, fleet: str, query: TraceQuery) -> RequestTraces:
        """Return what all gateways that answer remember of requests. Raises UnavailableError."""
        pods = self._listed(fleet)
        if len(pods) > 1:
            refuse_order_of_several(fleet, query)
        path, parameters = traces_target(query)
        found, failed = [], UnavailableError(f"no gateway of {fleet} runs")
        for pod in pods:
            try:
                found.append(decode(RequestTraces, self._pods.call(pod, "GET", path, parameters)))
            except UnavailableError as exc:
                failed = exc
            except msgspec.MsgspecError as exc:
                failed = UnavailableError(f"gateway pod {pod.name} answers what this version cannot read: {exc}")
        if not found:
            raise failed
        return found[0] if len(found) == 1 else merged_traces(found, limit=query.limit, running=query.running)

    def read_log(self, fleet: str, process: str, *, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of a process's log; a gateway's is its pod's. Raises UnavailableError."""
        if not process.startswith(_GATEWAY):
            return super().read_log(fleet, process, after=after, bytes_max=bytes_max)
        place = int(process.removeprefix(f"{_GATEWAY}-")) if process != _GATEWAY else 1
        pods = self._listed(fleet)
        if place > len(pods):
            raise UnavailableError(f"of {fleet} run {len(pods)} gateways", hint="`kubectl logs` has what others wrote")
        try:
            text = self._pods.log(pods[place - 1], bytes_max=_LOG_BYTES_MAX)
        except FleetctlError as exc:
            raise UnavailableError(exc.message, hint=exc.hint) from exc
        # A shorter one than was read up to is another: the container was started again.
        start = max(0, len(text) - bytes_max) if after is None or after > len(text) else after
        piece = text[start : start + bytes_max]
        return LogChunk(text=piece.decode(errors="replace"), end=start + len(piece))

    def _listed(self, fleet: str) -> tuple[GatewayPod, ...]:
        try:
            return tuple(each for each in self._pods.listed() if not each.is_overdue)
        except FleetctlError as exc:
            raise UnavailableError(f"the gateways of {fleet} cannot be listed: {exc.message}", hint=exc.hint) from exc


class PodControllerRuntime(LocalControllerRuntime):
    """Implements ControllerRuntime: locks are the pod's own, the gateways are other pods."""

    def place(self) -> str:
        """Return the pod's name; empty where an earlier version made its Deployment, which did not tell it."""
        name = os.environ.get(POD_NAME, "")
        return f"pod {name}" if name else ""

    def gateway_host(self, clock: Clock) -> PlacedGatewayHost:
        """Return the keeper of the gateways' pods. Raises ConfigError."""
        return PlacedGatewayHost(gateway_pods(), PlacedFleetObjects(self._fleet, Path(os.environ[POD_SECRETS]), clock))


def gateway_pods() -> GatewayPods:
    """Return the way to the gateways, by what the pod was given. Raises ConfigError."""
    given = {name: os.environ.get(name, "") for name in (GATEWAY_SELECTOR, CONTROL_PORT, POD_SECRETS)}
    if lacking := [name for name, value in given.items() if not value]:
        raise ConfigError(f"not set: {', '.join(lacking)}", hint="the pod that `host: kubernetes` places has them")
    connection = ClusterConnection(ClusterSettings.of_environment(), timeout_s=_TIMEOUT_S)
    return GatewayPods(
        connection, namespace=connection.namespace, selector=given[GATEWAY_SELECTOR], port=int(given[CONTROL_PORT]),
        token=Path(given[POD_SECRETS]) / GATEWAY_TOKEN_FILE,
    )  # fmt: skip
