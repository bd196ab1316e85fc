"""A provider in memory: it implements the port, fails as scripted, and remembers every call."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import AmbiguousOutcomeError, CapacityError, FleetctlError, ProviderError
from fleetctl.model.catalogue import Market, Offering, OfferingKey
from fleetctl.model.node import (
    CreateResult,
    Node,
    NodeListing,
    NodeProcess,
    NodeRequest,
    NodeState,
    ProviderPace,
)
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl.testing.clocks import SteadyClock
from fleetctl.testing.lives import NodeLife, NodeLives, interruption
from fleetctl.testing.samples import offering, shared_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.model.provider_setting import ProviderSetting, SettingValue
    from fleetctl.model.shared import SharedResource
    from fleetctl.ports.provider import ResolveSecrets

_FIRST_PORT = 20000


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as it came in; `subject` is a token, a node id, or a fleet."""

    at: datetime
    name: str
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A scripted fault of one call: it is delayed, then fails, before or after its effect."""

    error: FleetctlError | None = None
    delay_s: float = 0.0
    has_effect: bool = False  # the failed call was carried out all the same


class FakeProvider(NodeLives):
    """Implements Provider, Interruptions, Preflight, NodeProcesses and, as it is told, EngineRestarts, SharedResources and ProviderSettings on a Clock.

    Nodes boot, stop and are taken as its time passes.
    """

    name = "fake"

    def __init__(  # noqa: PLR0913  # what it may be, each named
        self,
        clock: Clock,
        *,
        sold: tuple[Offering, ...] = (),
        boot_s: float = 0.0,
        stop_s: float = 0.0,
        shared: tuple[str, ...] = (),
        declared: tuple[ProviderSetting, ...] = (),
        restarts: bool = False,
    ) -> None:
        # Its nodes live by their own time, whatever this machine's clock is set to.
        super().__init__(SteadyClock(clock))
        self._wall = clock
        self.pace = ProviderPace()
        self.shared_kinds = shared  # what its nodes need around them, in order
        self.shared: dict[str, SharedResource] = {}  # by token: what is there
        self.declared = declared  # what a profile may say to it
        self.settings: Mapping[str, SettingValue] = {}  # what one has said
        self.capabilities = ProviderCapabilities(
            interruptions=self, shared=self if shared else None, preflight=self, processes=self,
            settings=self if declared else None, restarts=self if restarts else None,
        )  # fmt: skip
        self.on_restart: Callable[[Node], object] = lambda _: None  # told of the node whose engine is started anew
        self.node_processes: dict[str, tuple[NodeProcess, ...]] = {}  # by token: what it says of living nodes
        self.found: tuple[Finding, ...] = ()  # what its preflight finds
        self.looked_at: list[tuple[PlannedNodes, ...]] = []  # what its preflights were made for
        self.calls: list[Call] = []
        self.orders: list[NodeRequest] = []  # as they came in with `create`
        self.environments: list[dict[str, str]] = []  # of the engines started, secrets resolved
        self.stock: dict[str, int] = {}  # Offering.key -> nodes still to be had; an absent key has no limit
        self.boot_s = boot_s  # until a created node runs
        self.stop_s = stop_s  # until a stopped node has ended, if its grace is not over sooner
        self.never_boots: set[str] = set()  # lanes whose new nodes stay STARTING
        self.without_room: set[str] = (
            set()
        )  # Offering.keys whose new nodes stay STARTING, and say that they wait in vain
        self._sold = sold or tuple(offering(market=market) for market in Market)
        self._faults: dict[str, deque[Fault]] = {}

    def configured(self, given: Mapping[str, SettingValue]) -> FakeProvider:
        """Return itself: there is one of it, whatever is said to it; `settings` are those of the last call."""
        self.settings = given
        return self

    def script(self, call: str, *faults: Fault) -> None:
        """Let the next calls of this name ("create", "list_nodes", ...) fare so, one fault each."""
        self._faults.setdefault(call, deque()).extend(faults)

    def script_lost_answer(self, call: str) -> None:
        """Let the next call be carried out, and its answer be lost."""
        self.script(call, Fault(error=AmbiguousOutcomeError(f"{call}: the connection was cut"), has_effect=True))

    @property
    def live_tokens(self) -> list[str]:
        """Tokens of nodes that have not ended, in the order of their creation."""
        return [node.token for node in self.living()]

    async def offerings(self) -> tuple[Offering, ...]:
        """Return what was given to the constructor, or an L40S on-demand and spot."""
        await self._enter("offerings")
        return self._sold

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return the lowest ports from 20000 that no living node has."""
        await self._enter("listen_addresses")
        taken = avoid | {node.port for node in self.living()}
        free = (port for port in range(_FIRST_PORT, 65536) if port not in taken)
        return tuple(ListenAddress(host="127.0.0.1", port=next(free)) for _ in range(count))

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Make a node for each order, once per token; scripted faults are the orders', one each."""
        return tuple([await self._result(request, resolve_secrets) for request in requests])

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's nodes, those that ended in the last hour included."""
        as_of = self._wall.now()
        await self._enter("list_nodes", fleet)
        return NodeListing(nodes=tuple(self._seen(life) for life in self._kept(owner, fleet)), as_of=as_of)

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's node, or None."""
        await self._enter("describe", token)
        life = self._lives.get(token)
        return self._seen(life) if life is not None and life.node.owner == owner else None

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Let a node end after `stop_s` or its grace, whichever is sooner."""
        await self._enter("stop", node_id)
        token = self._living_token(node_id)
        if token is not None:
            ends_at = self._clock.now() + timedelta(seconds=min(grace_s, self.stop_s))
            self._put(token, self._lives[token].stopping(ends_at))

    async def restart(self, node_id: str, *, started_before: datetime) -> None:
        """Have `on_restart` start a living node's engine anew, whatever its age."""
        del started_before
        fault = await self._enter("restart", node_id, before_effect=True)
        token = self._living_token(node_id)
        if token is None:
            raise ProviderError(f"no node {node_id} runs")
        self.on_restart(self._seen(self._lives[token]))
        if fault is not None and fault.error is not None:
            raise fault.error

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Give notice on a living spot node."""
        await self._enter("interrupt", node_id)
        token = self._interruptible(node_id)
        deadline = self._clock.now() + timedelta(seconds=notice_s)
        self._put(token, self._lives[token].noticed(interruption(deadline)).ending(deadline, "interrupted"))

    async def processes(self, *, owner: str, fleet: str) -> dict[str, tuple[NodeProcess, ...]]:
        """Return what `node_processes` holds of the fleet's living nodes."""
        await self._enter("processes", fleet)
        mine = [node.token for node in self.living() if (node.owner, node.fleet) == (owner, fleet)]
        return {token: self.node_processes[token] for token in mine if token in self.node_processes}

    def needed(self, *, owner: str, fleet: str) -> tuple[SharedResource, ...]:
        """Return one resource of each kind given to the constructor."""
        return shared_resources(self.shared_kinds, owner=owner, fleet=fleet)

    async def prepare(self, resource: SharedResource) -> None:
        """Have it there."""
        fault = await self._enter("prepare", resource.token, before_effect=True)
        self.shared[resource.token] = resource
        if fault is not None and fault.error is not None:
            raise fault.error

    async def teardown(self, resource: SharedResource) -> None:
        """Have it gone."""
        fault = await self._enter("teardown", resource.token, before_effect=True)
        self.shared.pop(resource.token, None)
        if fault is not None and fault.error is not None:
            raise fault.error

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what `found` was set to."""
        self.looked_at.append(nodes)
        await self._enter("findings")
        return self.found

    async def _result(self, request: NodeRequest, resolve_secrets: ResolveSecrets) -> CreateResult:
        self.orders.append(request)
        try:
            fault = await self._enter("create", request.token, before_effect=True)
            self.environments.append(resolve_secrets(request.env))
            node = self._create(request)
            if fault is not None and fault.error is not None:
                raise fault.error
        except FleetctlError as exc:
            return CreateResult(token=request.token, error=exc)
        return CreateResult(token=request.token, node=node)

    async def _enter(self, call: str, subject: str = "", *, before_effect: bool = False) -> Fault | None:
        """Note the call and let its fault happen; one that comes after the effect is returned to the caller."""
        self.calls.append(Call(at=self._clock.now(), name=call, subject=subject))
        queue = self._faults.get(call)
        fault = queue.popleft() if queue else None
        if fault is None:
            return None
        if fault.delay_s:
            await self._clock.sleep(fault.delay_s)
        if fault.error is not None and not (before_effect and fault.has_effect):
            raise fault.error
        return fault

    def _create(self, request: NodeRequest) -> Node:
        if (known := self._known(request)) is not None:
            return self._seen(known)
        if request.node_count > 1:
            raise ProviderError(
                f"{request.replica_id} spans {request.node_count} machines, and here are no groups of them"
            )
        if self.stock.get(request.offering, 1) <= 0:
            instance_type, zone, market = OfferingKey.parse(request.offering)
            raise CapacityError(
                f"{request.offering} is out of stock", instance_type=instance_type, zone=zone, market=market,
                hint="try another zone or type",
            )  # fmt: skip
        if request.offering in self.stock:
            self.stock[request.offering] -= 1
        now = self._clock.now()
        node = Node(
            id=f"fake-{request.token}",
            token=request.token,
            owner=request.owner,
            fleet=request.fleet,
            replica_id=request.replica_id,
            state=NodeState.STARTING,
            market=request.market,
            host=request.host,
            port=request.port,
            created_at=now,
            offering=request.offering,
        )
        waits = request.offering in self.without_room
        if waits:
            node = replace(node, pending_reason="Unschedulable", is_out_of_stock=True)
        never = waits or request.lane in self.never_boots
        runs_at = None if never else now + timedelta(seconds=self.boot_s)
        self._put(request.token, NodeLife(node=node, made_at=now, runs_at=runs_at))
        return self._seen(self._lives[request.token])
