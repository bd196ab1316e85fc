"""A cloud at its worst, in memory and seeded: slow, late, throttling, cutting answers off, out of stock."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import (
    AmbiguousOutcomeError,
    CapacityError,
    CredentialsError,
    FleetctlError,
    ProviderError,
    QuotaError,
    ThrottledError,
)
from fleetctl.model.catalogue import Market, Offering, OfferingKey
from fleetctl.model.node import (
    BootProgress,
    CreateResult,
    Node,
    NodeListing,
    NodeRequest,
    NodeState,
    Notice,
    ProviderPace,
)
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl.testing.lives import NodeLife, NodeLives, interruption
from fleetctl.testing.machines import MachineShare, machine_share, machines_of
from fleetctl.testing.samples import offering
from fleetctl.testing.shared import FaultyShared

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

    from fleetctl.clock import Clock
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.ports.provider import ResolveSecrets

_PORT = 8000
_CALL_S = 0.2
_EVENT_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFaults:
    """How bad it is. Durations in seconds, shares from 0 to 1."""

    list_s: float = 6.0
    list_lag_s: float = 45.0  # after its creation a node is in no listing for this long
    create_s: float = 70.0  # until a create answers; its node is there somewhen before that
    address_s: float = 30.0  # after its creation nobody can say where a node is reached, what it is and costs
    boot_s: float = 600.0  # until the node runs
    stop_s: float = 20.0  # until a stopped node has ended, if its grace is not over sooner
    throttled: float = 0.3  # of calls
    retry_after_s: float = 2.0
    cut: float = 0.05  # of creates and stops, half of them after their effect
    partial: float = 0.1  # of listings
    page_size: int = 100
    strangers: int = 700  # other nodes of the account that listings page through


class FaultProvider(NodeLives):
    """Implements Provider, NodeEvents, Interruptions and Preflight on a Clock: what was taken has its effect, in any case.

    Replicas share machines by their GPUs, or span several; what happens to a machine happens to every node on it.
    """

    name = "fault"

    def __init__(
        self,
        clock: Clock,
        dice: random.Random,
        faults: CloudFaults | None = None,
        *,
        sold: tuple[Offering, ...] = (),
        shared: tuple[str, ...] = (),
        declared: ProviderPace | None = None,
    ) -> None:
        super().__init__(clock)
        self.faults = faults or CloudFaults()
        self.declared = declared  # what it says of its pace, whatever is so; None: the truth
        self.calls: dict[str, int] = {}
        self.orders: dict[str, NodeRequest] = {}  # taken, by replica
        self.shortages: set[tuple[str, str, str]] = set()  # type, zone, market; "" stands for every value
        self.quotas: dict[str, int] = {}  # quota, which is named after the market it limits -> nodes
        self.has_credentials = True
        self.events_fault = ""  # why it can tell of nothing by itself; empty: it can
        self.found: tuple[Finding, ...] = ()  # what its preflight finds
        self._dice = dice
        self._sold = sold or tuple(offering(market=market) for market in Market)
        self._by_host: dict[str, str] = {}  # -> token
        self._machines = itertools.count(1)
        self.shared = FaultyShared(  # given kinds, nodes need them
            clock,
            dice,
            shared,
            cut=lambda: self.faults.cut,
            settles_s=lambda: self.faults.create_s,
            enter=self._enter,
            living=self.living,
        )
        self._changes: list[tuple[datetime, str]] = []  # when something of a token's node changes, sorted

    @property
    def pace(self) -> ProviderPace:
        """Its own account of the faults it was given, unless another was declared."""
        if self.declared is not None:
            return self.declared
        faults = self.faults
        return ProviderPace(
            list_interval_s=5.0,
            list_latency_s=faults.list_s,
            consistency_lag_s=faults.list_lag_s,
            list_deadline_s=5 * faults.list_s + 10.0,
            create_deadline_s=2 * faults.create_s + 10.0,
            create_settles_s=faults.create_s,
            stop_deadline_s=30.0,
        )

    @property
    def capabilities(self) -> ProviderCapabilities:
        """Batches, alternatives, events and drills; shared resources if there are any."""
        shared = self.shared if self.shared.kinds else None
        return ProviderCapabilities(
            batch_max=20,
            alternatives_max=2,
            node_groups=True,
            events=self,
            interruptions=self,
            shared=shared,
            preflight=self,
        )

    # The truth, which no caller of the port sees at once

    def machines(self) -> set[str]:
        """Return the ids of the machines that are there and billed now, every member of a group included."""
        return {machine for node in self.living() for machine in machines_of(node)}

    def runs(self, host: str) -> bool:
        """Whether the node of this address runs."""
        token = self._by_host.get(host)
        return token is not None and self._seen(self._lives[token]).state in (NodeState.RUNNING, NodeState.STOPPING)

    def end_machine(self, machine_id: str, reason: str = "terminated") -> None:
        """Let a machine end now, and with it every node that has a part in it."""
        for token in self._tokens_on(machine_id):
            is_member = machine_id in self._lives[token].node.members
            self.end(token, f"member {machine_id} ended: {reason}" if is_member else reason)

    def notify_machine(self, machine_id: str, notice: Notice) -> None:
        """Put a notice on a machine, which every node on it shows."""
        for token in self._tokens_on(machine_id):
            self.notify(token, notice)

    # The port

    async def offerings(self) -> tuple[Offering, ...]:
        """Return what was given to the constructor, or an L40S on-demand and spot."""
        await self._enter("offerings", 4.0)
        return self._sold

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return the same port for all: every node has an address of its own."""
        del avoid
        await self._enter("listen_addresses", 4.0)
        return (ListenAddress(host="0.0.0.0", port=_PORT),) * count  # noqa: S104  # a node's own network

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Take a batch; every order fares for itself."""
        await self._enter("create", 0.0)
        self.shared.check_create()
        cut = self._dice.random() < self.faults.cut
        if cut and self._dice.random() < 0.5:
            await self._clock.sleep(self._dice.uniform(0.0, self.faults.create_s))
            raise AmbiguousOutcomeError("create: the connection was cut")
        for request in requests:
            resolve_secrets(request.env)
        results = tuple(self._taken(request) for request in requests)
        await self._clock.sleep(self.faults.create_s * (self._dice.random() if cut else 1.0))
        if cut:
            raise AmbiguousOutcomeError("create: the connection was cut")
        return tuple(
            result if result.error else CreateResult(token=result.token, node=self._seen(self._lives[result.token]))
            for result in results
        )

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's nodes page by page; sometimes the later pages are missing, and young nodes always are."""
        as_of = self._clock.now()
        lag = timedelta(seconds=self.faults.list_lag_s)
        shown = [life for life in self._kept(owner, fleet) if life.made_at + lag <= as_of]
        nodes = sorted((self._seen(life) for life in shown), key=lambda node: node.id)
        await self._enter("list_nodes", 0.0)
        pages = 1 + (len(nodes) + self.faults.strangers) // self.faults.page_size
        there = self._dice.randrange(pages) if self._dice.random() < self.faults.partial else pages
        await self._clock.sleep(self.faults.list_s * there / pages)
        return NodeListing(
            nodes=tuple(nodes[: round(len(nodes) * there / pages)]), as_of=as_of, is_complete=there == pages
        )

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's node as it is now."""
        await self._enter("describe", _CALL_S)
        life = self._lives.get(token)
        if life is None or life.node.owner != owner or life.made_at > self._clock.now():
            return None
        return self._seen(life)

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Let a node end after `stop_s` or its grace, whichever is sooner; sometimes nobody learns that it was taken."""
        await self._enter("stop", _CALL_S)
        is_cut = self._dice.random() < self.faults.cut
        if not is_cut or self._dice.random() < 0.5:
            self._stop(node_id, grace_s)
        if is_cut:
            raise AmbiguousOutcomeError("stop: the connection was cut")

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Give notice on a living spot node, and so on its machine: whoever shares that goes with it."""
        machine_id = self._lives[self._interruptible(node_id)].node.machine_id
        deadline = self._clock.now() + timedelta(seconds=notice_s)
        self.notify_machine(machine_id, interruption(deadline))
        for token in self._tokens_on(machine_id):
            self._end_by(token, deadline, "interrupted")

    async def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield nodes as they change, within a fraction of a second."""
        seen_until = self._clock.now()
        while True:
            await self._clock.sleep(_EVENT_S)
            if self.events_fault:
                raise ProviderError(self.events_fault)
            now = self._clock.now()
            first = bisect.bisect_right(self._changes, (seen_until, "~"))
            last = bisect.bisect_right(self._changes, (now, "~"))
            seen_until = now
            for token in dict.fromkeys(token for _, token in self._changes[first:last]):
                life = self._lives[token]
                if (life.node.owner, life.node.fleet) == (owner, fleet) and life.made_at <= now:
                    yield self._seen(life)

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what `found` was set to."""
        del nodes
        await self._enter("findings", _CALL_S)
        return self.found

    # What becomes of a call

    async def _enter(self, call: str, takes_s: float) -> None:
        self.calls[call] = self.calls.get(call, 0) + 1
        if self._dice.random() < self.faults.throttled:
            await self._clock.sleep(_CALL_S)
            raise ThrottledError(f"{call}: rate exceeded", retry_after_s=self.faults.retry_after_s)
        if not self.has_credentials:
            raise CredentialsError("the credentials have expired", hint="log in again")
        await self._clock.sleep(takes_s * self._dice.uniform(0.5, 1.5))

    def _taken(self, request: NodeRequest) -> CreateResult:
        try:
            if self._known(request) is None:
                self._make(request, self._choice(request))
        except FleetctlError as exc:
            return CreateResult(token=request.token, error=exc)
        return CreateResult(token=request.token)

    def _choice(self, request: NodeRequest) -> str:
        """Return the first of the order's offerings that can be had. Raises CapacityError, QuotaError."""
        quota = f"{request.market}-nodes"
        if quota in self.quotas and sum(n.market is request.market for n in self.living()) >= self.quotas[quota]:
            raise QuotaError("reached", quota=quota, market=request.market.value)
        for key in (request.offering, *request.alternatives):
            if not self._is_short(*OfferingKey.parse(key)):
                return key
        instance_type, zone, market = OfferingKey.parse(request.offering)
        raise CapacityError(f"no stock of {request.offering}", instance_type=instance_type, zone=zone, market=market)

    def _is_short(self, instance_type: str, zone: str, market: str) -> bool:
        return any(t in ("", instance_type) and z in ("", zone) and m in ("", market) for t, z, m in self.shortages)

    def _make(self, request: NodeRequest, key: str) -> None:
        made_at = self._clock.now() + timedelta(seconds=self._dice.uniform(0.0, self.faults.create_s))
        number = len(self._lives) + 1
        share = self._share(request, key)
        self.orders[request.replica_id] = request
        node = Node(
            id=f"i-{number:08x}",
            token=request.token,
            owner=request.owner,
            fleet=request.fleet,
            replica_id=request.replica_id,
            state=NodeState.STARTING,
            market=request.market,
            host=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            port=_PORT,
            created_at=made_at,
            offering=key,
            price_usd_per_hour=share.price_usd_per_hour,
            machine_id=share.machine_id,
            gpu_indices=share.gpu_indices,
            members=share.members,
            pending_reason="provisioning",
            boot=BootProgress(phase="provisioning"),
        )
        runs_at = made_at + timedelta(seconds=self.faults.boot_s * self._dice.uniform(0.8, 1.0))
        self._by_host[node.host] = node.token
        self._put(request.token, NodeLife(node=node, made_at=made_at, runs_at=runs_at))
        for at in (made_at, runs_at, self._addressed_at(made_at)):
            self._note_change(request.token, at)

    def _share(self, request: NodeRequest, key: str) -> MachineShare:
        sold = {offering.key: offering for offering in self._sold}
        if key not in sold:
            raise ProviderError(f"{key} is not sold here")
        now = self._clock.now()
        taken = (life.node for life in self._lives.values() if not life.is_over(now))
        return machine_share(request, sold[key], taken, lambda: f"m-{next(self._machines):06x}")

    def _stop(self, node_id: str, grace_s: float) -> None:
        token = self._living_token(node_id)
        if token is not None:
            at = self._clock.now() + timedelta(seconds=min(grace_s, self.faults.stop_s))
            self._put(token, self._lives[token].stopping(at))
            self._note_change(token, at)

    def _end_by(self, token: str, at: datetime, reason: str) -> None:
        self._put(token, self._lives[token].ending(at, reason))
        self._note_change(token, at)

    def _put(self, token: str, life: NodeLife) -> None:
        super()._put(token, life)
        self._note_change(token, self._clock.now())

    def _note_change(self, token: str, at: datetime) -> None:
        # A moment later: whoever watches may have looked in this very instant.
        bisect.insort(self._changes, (at + timedelta(microseconds=1), token))

    def _tokens_on(self, machine_id: str) -> list[str]:
        return [node.token for node in self.living() if machine_id in machines_of(node)]

    def _seen(self, life: NodeLife) -> Node:
        now, node = self._clock.now(), super()._seen(life)
        if node.state is NodeState.GONE or now >= self._addressed_at(life.made_at):
            return node
        return replace(node, host="", offering="", price_usd_per_hour=None)

    def _addressed_at(self, made_at: datetime) -> datetime:
        return made_at + timedelta(seconds=self.faults.address_s)
