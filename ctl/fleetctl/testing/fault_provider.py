"""A cloud at its worst, in memory and seeded: slow, late, throttling, cutting answers off, out of stock."""

from __future__ import annotations

import bisect
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
    NoticeKind,
    ProviderPace,
)
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl.testing.samples import offering
from fleetctl.testing.shared import FaultyShared

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

    from fleetctl.clock import Clock
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.ports.provider import ResolveSecrets

_ENDED_KEPT = timedelta(hours=1)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _CloudNode:
    node: Node
    made_at: datetime  # before this there is nothing, though the create has been taken
    runs_at: datetime
    ends_at: datetime | None = None
    end_reason: str = ""


class FaultProvider:
    """Implements Provider, NodeEvents, Interruptions and Preflight on a Clock. What was taken has its effect, whoever waits for it."""

    name = "fault"

    def __init__(
        self,
        clock: Clock,
        dice: random.Random,
        faults: CloudFaults | None = None,
        *,
        sold: tuple[Offering, ...] = (),
        shared: tuple[str, ...] = (),
    ) -> None:
        self.faults = faults or CloudFaults()
        self.calls: dict[str, int] = {}
        self.shortages: set[tuple[str, str, str]] = set()  # type, zone, market; "" stands for every value
        self.quotas: dict[str, int] = {}  # quota, which is named after the market it limits -> nodes
        self.has_credentials = True
        self.found: tuple[Finding, ...] = ()  # what its preflight finds
        self._clock = clock
        self._dice = dice
        self._sold = sold or tuple(offering(market=market) for market in Market)
        self._lives: dict[str, _CloudNode] = {}  # by token
        self._by_host: dict[str, str] = {}  # -> token
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
        """Its own account of the faults it was given."""
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
            batch_max=20, alternatives_max=2, events=self, interruptions=self, shared=shared, preflight=self
        )

    # The truth, which no caller of the port sees at once

    def living(self) -> list[Node]:
        """Return the nodes that are there and billed now."""
        now = self._clock.now()
        nodes = [self._seen(life) for life in self._lives.values() if life.made_at <= now]
        return [node for node in nodes if node.state is not NodeState.GONE]

    def runs(self, host: str) -> bool:
        """Whether the node of this address runs."""
        token = self._by_host.get(host)
        return token is not None and self._seen(self._lives[token]).state in (NodeState.RUNNING, NodeState.STOPPING)

    def end(self, token: str, reason: str = "terminated") -> None:
        """Let a node end now, by its own doing."""
        self._change(token, replace(self._lives[token], ends_at=self._clock.now(), end_reason=reason))

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
        mine = sorted(
            (life for life in self._lives.values() if (life.node.owner, life.node.fleet) == (owner, fleet)),
            key=lambda life: life.node.id,
        )
        lag = timedelta(seconds=self.faults.list_lag_s)
        shown = [life for life in mine if life.made_at + lag <= as_of]
        nodes = [self._seen(life) for life in shown if life.ends_at is None or life.ends_at > as_of - _ENDED_KEPT]
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
        """Give notice on a living spot node."""
        token = self._token_of(node_id)
        if token is None or self._seen(self._lives[token]).state is NodeState.GONE:
            raise ProviderError(f"no living node {node_id}")
        if self._lives[token].node.market is not Market.SPOT:
            raise ProviderError(f"{node_id} is not a spot node, and only spot nodes are interrupted")
        deadline = self._clock.now() + timedelta(seconds=notice_s)
        self.notify(token, Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True))
        self._end_by(token, deadline, "interrupted")

    def notify(self, token: str, notice: Notice | None) -> None:
        """Put a notice on a node, or take it off; what it announces is up to the caller."""
        life = self._lives[token]
        self._change(token, replace(life, node=replace(life.node, notice=notice)))

    async def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield nodes as they change, within a fraction of a second."""
        seen_until = self._clock.now()
        while True:
            await self._clock.sleep(_EVENT_S)
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
            if request.token in self._lives:
                known = self._lives[request.token].node
                if known.replica_id != request.replica_id:
                    raise ProviderError(f"token {request.token} already made {known.replica_id}")
            else:
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
            price_usd_per_hour=next((o.price_usd_per_hour for o in self._sold if o.key == key), None),
            pending_reason="provisioning",
            boot=BootProgress(phase="provisioning"),
        )
        runs_at = made_at + timedelta(seconds=self.faults.boot_s * self._dice.uniform(0.8, 1.0))
        self._by_host[node.host] = node.token
        self._change(request.token, _CloudNode(node=node, made_at=made_at, runs_at=runs_at), at=made_at)
        for at in (runs_at, self._addressed_at(made_at)):
            bisect.insort(self._changes, (at, request.token))

    def _stop(self, node_id: str, grace_s: float) -> None:
        token = self._token_of(node_id)
        if token is not None and self._seen(self._lives[token]).state is not NodeState.GONE:
            life = self._lives[token]
            self._change(token, replace(life, node=replace(life.node, state=NodeState.STOPPING)))
            self._end_by(token, self._clock.now() + timedelta(seconds=min(grace_s, self.faults.stop_s)), "stopped")

    def _end_by(self, token: str, at: datetime, reason: str) -> None:
        life = self._lives[token]
        if life.ends_at is None or at < life.ends_at:
            self._change(token, replace(life, ends_at=at, end_reason=reason))
            bisect.insort(self._changes, (at, token))

    def _change(self, token: str, life: _CloudNode, *, at: datetime | None = None) -> None:
        self._lives[token] = life
        # A moment later than now: whoever watches may have looked in this very instant.
        bisect.insort(self._changes, ((at or self._clock.now()) + timedelta(microseconds=1), token))

    def _token_of(self, node_id: str) -> str | None:
        return next((token for token, life in self._lives.items() if life.node.id == node_id), None)

    def _seen(self, life: _CloudNode) -> Node:
        now = self._clock.now()
        if life.ends_at is not None and life.ends_at <= now:
            return replace(life.node, state=NodeState.GONE, exit_reason=life.end_reason)
        node = life.node
        if node.state is NodeState.STARTING and life.runs_at <= now:
            node = replace(node, state=NodeState.RUNNING, pending_reason="", boot=None)
        if now < self._addressed_at(life.made_at):
            node = replace(node, host="", offering="", price_usd_per_hour=None)
        return node

    def _addressed_at(self, made_at: datetime) -> datetime:
        return made_at + timedelta(seconds=self.faults.address_s)
