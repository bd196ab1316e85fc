"""The SSH provider: every node is an engine's process on a machine of an inventory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, FleetctlError, ProviderError
from fleetctl.free_ports import free_port
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.log import LogChunk
from fleetctl.model.node import CreateResult, NodeListing, ProviderPace
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl_ssh.inventory import read_inventory
from fleetctl_ssh.machines import MachineWatch, all_nodes
from fleetctl_ssh.settings import SETTINGS, VARIABLES, SshSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.model.provider_setting import ProviderSetting, SettingValue
    from fleetctl.ports.provider import ResolveSecrets
    from fleetctl_ssh.inventory import Machine

# Where an engine is to listen: each machine has its own, which is filled in once an order has one.
MACHINE_ADDRESS = "$(MACHINE_ADDRESS)"
_BATCH_MAX = 8
_CALL_DEADLINE_S, _CREATE_DEADLINE_S = 10.0, 30.0
_PACE = ProviderPace(
    list_interval_s=2.0, list_latency_s=0.3, list_deadline_s=20.0, describe_deadline_s=15.0, offerings_deadline_s=40.0,
    preflight_deadline_s=40.0, create_deadline_s=60.0, create_settles_s=20.0, stop_deadline_s=15.0,
)  # fmt: skip


class SshProvider:
    """Implements ports.Provider, Preflight, NodeLogs and ProviderSettings.

    An order's record lies on its machine, by its token, so any number of processes may use it on the same nodes. A
    machine is a zone. Orders are not moved: one whose machine has no room ends with CapacityError for that zone.
    """

    name = "ssh"

    def __init__(self, clock: Clock | None = None, *, settings: SshSettings | None = None) -> None:
        self._clock = clock or SYSTEM_CLOCK
        self._settings = settings or SshSettings.of_environment()
        self._known: tuple[MachineWatch, ...] = ()
        self.pace = _PACE
        self.capabilities = ProviderCapabilities(
            batch_max=_BATCH_MAX, preflight=self, logs=self, settings=self, variables=VARIABLES
        )

    @property
    def declared(self) -> tuple[ProviderSetting, ...]:
        """Return the settings that a profile may give: the inventory, and how long engines live on."""
        return SETTINGS

    def configured(self, given: Mapping[str, SettingValue]) -> SshProvider:
        """Return one that works by a profile's settings."""
        return SshProvider(self._clock, settings=self._settings.changed_by(given))

    async def offerings(self) -> tuple[Offering, ...]:
        """Return shares of the machines' GPUs. A machine that does not answer offers nothing. Raises when none answers."""
        from fleetctl_ssh.offerings import MachineReport, offerings_of

        machines = await self._machines()
        looks = (machine.connection.call("look", {}, deadline_s=_CREATE_DEADLINE_S) for machine in machines)
        found = await asyncio.gather(*looks, return_exceptions=True)
        faults = [each for each in found if isinstance(each, BaseException)]
        if len(faults) == len(found) or any(not isinstance(fault, ProviderError) for fault in faults):
            raise next((fault for fault in faults if not isinstance(fault, ProviderError)), faults[0])
        reports = tuple(
            MachineReport(machine=machine.machine, gpus=tuple(each["gpus"]))
            for machine, each in zip(machines, found, strict=True)
            if not isinstance(each, BaseException) and each["gpus"]
        )
        return await asyncio.to_thread(offerings_of, reports)

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return ports that are free here, where they are to lead to engines; each machine's own address is filled in later."""
        found: list[int] = []
        for _ in range(count):
            found.append(free_port(avoid=avoid.union(found)))
        return tuple(ListenAddress(host=MACHINE_ADDRESS, port=port) for port in found)

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Start an engine each; the machine keeps a token to one, whoever asks and however the first asker died."""
        return tuple(await asyncio.gather(*(self._result(each, resolve_secrets) for each in requests)))

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's nodes, those that ended in the last hour included; a silent machine's as they were."""
        as_of = self._clock.now()
        machines = await self._machines()
        nodes, is_complete = await all_nodes(machines, owner, fleet)
        silent = tuple(machine.problem for machine in machines if machine.problem)
        return NodeListing(nodes=nodes, as_of=as_of, is_complete=is_complete, warnings=silent)

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's node, or None. Raises while a machine that may have it does not answer."""
        machines = await self._machines()
        call = {"owner": owner, "token": token}
        answers = (each.connection.call("describe", call, deadline_s=_CALL_DEADLINE_S) for each in machines)
        found = await asyncio.gather(*answers, return_exceptions=True)
        for machine, answer in zip(machines, found, strict=True):
            if not isinstance(answer, BaseException) and answer["node"] is not None:
                return machine.node_of(answer["node"])
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return None

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Have its supervisor end it: SIGTERM now, SIGKILL to all its session after `grace_s`."""
        name, _, rest = node_id.partition("/")
        owner, _, token = rest.partition("/")
        machine = next((each for each in await self._machines() if each.machine.name == name), None)
        if machine is not None and token:
            call = {"owner": owner, "token": token, "grace_s": grace_s}
            await machine.connection.call("stop", call, deadline_s=_CALL_DEADLINE_S)

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what each machine says to these nodes."""
        from fleetctl_ssh.preflight import judge

        return await judge(await self._machines(), nodes)

    async def read_log(self, *, owner: str, fleet: str, replica_id: str, after: int | None, bytes_max: int) -> LogChunk:
        """Return a piece of what a replica's engine wrote, from the machine that it is or was on."""
        call = {"owner": owner, "fleet": fleet, "replica": replica_id, "after": after, "bytes_max": bytes_max}
        machines = await self._machines()
        answers = (each.connection.call("log", call, deadline_s=_CALL_DEADLINE_S) for each in machines)
        found = await asyncio.gather(*answers, return_exceptions=True)
        chunks = [LogChunk(text=each["text"], end=each["end"]) for each in found if not isinstance(each, BaseException)]
        written = next((chunk for chunk in chunks if chunk.end), None)
        fault = next((each for each in found if isinstance(each, BaseException)), None)
        if written is None and fault is not None:
            raise fault
        return written or LogChunk(text="", end=0)

    async def _result(self, request: NodeRequest, resolve_secrets: ResolveSecrets) -> CreateResult:
        try:
            return CreateResult(token=request.token, node=await self._made(request, resolve_secrets))
        except FleetctlError as exc:
            return CreateResult(token=request.token, error=exc)

    async def _made(self, request: NodeRequest, resolve_secrets: ResolveSecrets) -> Node:
        if request.node_count > 1:
            raise ProviderError(
                f"{request.replica_id} spans {request.node_count} machines, and the SSH provider puts it on one",
                hint="leave launch.pipeline_parallel out of the profile",
            )
        machine = await self._machine_of(request)
        call = _order_call(request, machine, resolve_secrets(request.env), expires_s=self._settings.expires_s)
        answer = await machine.connection.call("create", call, deadline_s=_CREATE_DEADLINE_S)
        node = machine.node_of(answer["node"])
        await machine.reach((node,))
        return node

    async def _machine_of(self, request: NodeRequest) -> MachineWatch:
        zone = OfferingKey.parse(request.offering).zone
        machines = await self._machines()
        machine = next((each for each in machines if each.machine.name == zone), None)
        if machine is None:
            names = ", ".join(each.machine.name for each in machines)
            raise ConfigError(f"no machine {zone!r} is in the inventory", hint=f"there are: {names}")
        return machine

    async def _machines(self) -> tuple[MachineWatch, ...]:
        """Return the inventory's, as it is now: a machine that stays in it keeps its connection and what was seen."""
        listed = await asyncio.to_thread(read_inventory, self._settings.inventory)
        before = {each.machine.name: each for each in self._known}
        self._known = tuple(self._watch(machine, before.get(machine.name)) for machine in listed)
        return self._known

    def _watch(self, machine: Machine, before: MachineWatch | None) -> MachineWatch:
        if before is not None and before.machine == machine:
            return before
        return MachineWatch(machine, self._clock, expires_s=self._settings.expires_s)


def _order_call(
    request: NodeRequest, machine: MachineWatch, env: dict[str, str], *, expires_s: float
) -> dict[str, Any]:
    """Return the call that starts an order's engine; secrets go there on the connection, and lie in no file."""
    address = machine.machine.listens_at
    return {
        "token": request.token,
        "owner": request.owner,
        "fleet": request.fleet,
        "replica": request.replica_id,
        "market": request.market.value,
        "offering": request.offering,
        "host": address,
        "port": request.port,
        "expires_s": expires_s,
        "argv": [word.replace(MACHINE_ADDRESS, address) for word in request.argv],
        "env": {name: value.replace(MACHINE_ADDRESS, address) for name, value in env.items()},
        "path": machine.machine.path,
        "gpu_count": request.gpu_count,
        "gpu_memory_fraction": request.gpu_memory_fraction,
    }
