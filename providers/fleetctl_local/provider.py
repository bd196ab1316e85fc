"""The local provider: every node is a process in a session of its own on this machine."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, ProviderError
from fleetctl.files import read_log
from fleetctl.free_ports import free_port
from fleetctl.model.log import LogChunk
from fleetctl.model.node import CreateResult, NodeListing, ProviderPace
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl_local import offerings, preflight
from fleetctl_local.cpus import machine_cpus
from fleetctl_local.gpus import machine_gpus
from fleetctl_local.logs import log_path
from fleetctl_local.machine import MachineHeadroom, read_headroom
from fleetctl_local.nodes import Nodes
from fleetctl_local.registry import check_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeProcess, NodeRequest
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.ports.provider import ResolveSecrets
    from fleetctl_local.cpus import CpuReader
    from fleetctl_local.gpus import GpuReader

_LOOPBACK = "127.0.0.1"


_BATCH_MAX = 16  # processes started under one hold of the registry's lock: a listing waits for it


class LocalProvider:
    """Implements ports.Provider, Interruptions, Preflight, NodeLogs and NodeProcesses.

    Any number of processes may use it on the same nodes.

    `gpus` reads this machine's GPUs; left out, the driver is asked, and only where nodes need some. `cpus` reads its
    processors and memory, which nodes share that need GPUs where there are none.
    """

    name = "local"

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        gpus: GpuReader = machine_gpus,
        cpus: CpuReader = machine_cpus,
        headroom: Callable[[], MachineHeadroom] = read_headroom,
    ) -> None:
        self._clock = clock or SYSTEM_CLOCK
        self._read_gpus = gpus
        self._headroom = headroom
        self._nodes = Nodes(self._clock, gpus=gpus, cpus=cpus)
        # Nodes are started one after the other: under load the last of 200 waits for minutes.
        self.pace = ProviderPace(create_deadline_s=600.0)
        self.capabilities = ProviderCapabilities(
            runs_here=True, batch_max=_BATCH_MAX, interruptions=self, preflight=self, logs=self, processes=self
        )

    async def offerings(self) -> tuple[Offering, ...]:
        """Return shares of this machine's GPUs or its CPU, which cost nothing, and emulated AWS instance types at AWS's list prices."""
        return await asyncio.to_thread(self._offerings)

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return loopback ports not in use, not a live node's, and not ones that outgoing connections can take."""
        found = await asyncio.to_thread(self._free_ports, count, avoid)
        return tuple(ListenAddress(host=_LOOPBACK, port=port) for port in found)

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Start a process each; the same token never starts two, whoever asks, and however the first asker died."""
        # The thread finishes what it began even if this await is cancelled; the tokens then find the nodes.
        return await asyncio.to_thread(
            lambda: tuple(self._create(request, resolve_secrets=resolve_secrets) for request in requests)
        )

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's nodes, oldest first, those that ended in the last hour included."""
        as_of = self._clock.now()
        return NodeListing(nodes=await asyncio.to_thread(self._nodes.listed, owner, fleet), as_of=as_of)

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's node, or None."""
        return await asyncio.to_thread(self._nodes.described, token, owner)

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Send SIGTERM now, and SIGKILL to all its session after `grace_s`; that happens even if the caller dies."""
        await asyncio.to_thread(self._nodes.stop, node_id, grace_s)

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Give notice now and kill the node `notice_s` later; that happens even if the caller dies."""
        await asyncio.to_thread(self._nodes.interrupt, node_id, notice_s)

    async def read_log(self, *, owner: str, fleet: str, replica_id: str, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of what a replica's process wrote."""
        del owner  # each store has its own state directory, where the logs are
        for what, name in (("fleet", fleet), ("replica", replica_id)):
            check_name(what, name)
        path = log_path(fleet, replica_id)
        text, end = await asyncio.to_thread(lambda: read_log(path, bytes_max=bytes_max, after=after))
        return LogChunk(text=text, end=end)

    async def processes(self, *, owner: str, fleet: str) -> dict[str, tuple[NodeProcess, ...]]:
        """Return the processes of each living node of a fleet, by its token."""
        return await asyncio.to_thread(self._nodes.processes, owner, fleet)

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what this machine's limits, memory, disk and GPUs say to these nodes."""
        return await asyncio.to_thread(self._findings, nodes)

    def _create(self, request: NodeRequest, *, resolve_secrets: ResolveSecrets) -> CreateResult:
        try:
            for what, name in (("token", request.token), ("fleet", request.fleet), ("replica", request.replica_id)):
                check_name(what, name)
            _check_loopback(request.host)
            _check_one_machine(request)
            node = self._nodes.create(request, resolve_secrets=resolve_secrets)
        except (ProviderError, ConfigError) as exc:
            return CreateResult(token=request.token, error=exc)
        return CreateResult(token=request.token, node=node)

    def _offerings(self) -> tuple[Offering, ...]:
        reading = self._read_gpus()
        if not reading.gpus:
            return (*offerings.offerings(), *offerings.on_cpu())
        # The catalogue is YAML, which takes its time to import; a machine without GPUs needs none of it.
        from fleetctl_local.gpu_specs import specs_of

        return offerings.offerings(specs_of(reading))

    def _findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        there = self._read_gpus()
        return preflight.judge(
            nodes, self._headroom(), gpus=there, taken=self._nodes.gpus_taken(there), cpus=self._nodes.cpus_there()
        )

    def _free_ports(self, count: int, avoid: frozenset[int]) -> list[int]:
        taken = avoid | self._nodes.ports_taken()
        found: list[int] = []
        for _ in range(count):
            found.append(free_port(avoid=taken.union(found)))
        return found


def _check_one_machine(request: NodeRequest) -> None:
    if request.node_count > 1:
        raise ProviderError(
            f"{request.replica_id} spans {request.node_count} machines, and the local provider has this one",
            hint="leave launch.pipeline_parallel out of the profile",
        )


def _check_loopback(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ProviderError(
            f"a local engine cannot listen on {host!r}", hint="local nodes bind loopback addresses only"
        )
