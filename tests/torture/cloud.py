"""The provider of a run: a cloud whose nodes live by true time, and whose calls fare as the schedule says."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from datetime import timedelta
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
from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.node import CreateResult, NodeListing, NodeState
from fleetctl.testing.clocks import SteadyClock
from fleetctl.testing.fault_provider import CloudFaults, FaultProvider
from fleetctl.testing.machines import machines_of
from fleetctl.testing.samples import node_request, offering
from fleetctl.testing.shared import FaultyShared
from tests.torture.faults import FaultKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.ports.provider import ResolveSecrets
    from fleetctl.testing.clocks import LoopClock
    from fleetctl.testing.lives import NodeLife
    from tests.torture.faults import Injector

ZONES = ("zone-a", "zone-b")
_PRICES_USD = {
    (Market.ON_DEMAND, "zone-a"): 1.861,
    (Market.ON_DEMAND, "zone-b"): 1.95,
    (Market.SPOT, "zone-a"): 0.7444,
    (Market.SPOT, "zone-b"): 0.79,
}
SOLD = tuple(
    offering(market=market, zone=zone, price_usd_per_hour=price) for (market, zone), price in _PRICES_USD.items()
)
# Fast and near, and slow with listings that lag: what is declared is what is kept to, whatever the schedule adds.
PACES = {
    "near": CloudFaults(list_s=0.2, list_lag_s=0.0, create_s=1.0, address_s=0.0, boot_s=4.0, stop_s=1.0),
    "far": CloudFaults(list_s=2.0, list_lag_s=12.0, create_s=10.0, address_s=3.0, boot_s=12.0, stop_s=5.0),
}
_CALL_S = 0.2
_SHARED_S = 1.0
_NEVER_S = 1e5
_SLOW = 10.0
_SLOW_BOOT = 6.0
_SLOW_END_S = 45.0
RETRY_AFTER_S = 2.0


class TortureCloud(FaultProvider):
    """Implements Provider; every node made and every stop taken is told to `on_made` and `on_stop`."""

    def __init__(
        self, clock: LoopClock, seed: int, pace: CloudFaults, injector: Injector, *, shared: tuple[str, ...] = ()
    ) -> None:
        calm = replace(pace, throttled=0.0, cut=0.0, partial=0.0, strangers=0)
        super().__init__(SteadyClock(clock), random.Random(f"{seed}/cloud"), calm, sold=SOLD, shared=shared)
        self.shared = FaultyShared(
            SteadyClock(clock),
            random.Random(f"{seed}/shared"),
            shared,
            cut=self._share_cut,
            settles_s=lambda: self.faults.create_s,
            enter=self._enter,
            living=self.living,
        )
        self.shared.call_s = _SHARED_S
        self._wall = clock
        self._injector = injector
        self._redelivered: set[asyncio.Task[None]] = set()
        self.on_made: Callable[[NodeRequest, NodeLife], None] = lambda _request, _life: None
        self.not_ours: dict[str, float] = {}  # token of an orphaned node -> when it was made
        self.on_stop: Callable[[Node], None] = lambda _node: None

    def lives(self) -> dict[str, NodeLife]:
        """Return every node that was ever made, or will be by an order that was taken, by its token."""
        return self._lives

    def make_orphan(self, name: str, *, owner: str, fleet: str) -> None:
        """Make a node with a fleet's tags that its store knows nothing of, as an order of a lost state would."""
        request = node_request(name, owner=owner, fleet=fleet, replica_id=name, offering=SOLD[0].key)
        self.not_ours[name] = self._wall.monotonic_s()
        self._make(request, request.offering)

    def held(self) -> list[Node]:
        """Return the nodes that are there, and those that an order already taken is about to make."""
        now = self._clock.now()
        return [life.node for life in self._lives.values() if not life.is_over(now)]

    def machine_ids(self) -> set[str]:
        """Return the machines under `held`, members of groups included."""
        return {machine for node in self.held() for machine in machines_of(node)}

    def wants(self, host: str) -> tuple[str, ...]:
        """Return what the engine at a host was started with."""
        token = self._by_host.get(host)
        life = self._lives.get(token) if token is not None else None
        order = self.orders.get(life.node.replica_id) if life is not None else None
        return order.argv if order is not None else ()

    def _share_cut(self) -> float:
        """Return the share of calls about shared resources that are cut off after their effect."""
        strikes = self._injector.strikes
        return float(bool(strikes(FaultKind.LOST_REPLY, "prepare") or strikes(FaultKind.LOST_REPLY, "teardown")))

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Take a batch; every order fares for itself."""
        await self._enter("create", 0.0)
        self.shared.check_create()
        for request in requests:
            resolve_secrets(request.env)
        results = tuple(self._one(request) for request in requests)
        if self._injector.strikes(FaultKind.DUPLICATED):
            self._deliver_again([r for r, result in zip(requests, results, strict=True) if result.error is None])
        slow = _SLOW if self._injector.strikes(FaultKind.SLOW, "create") else 1.0
        await self._clock.sleep(self.faults.create_s * slow)
        await self._leave("create")
        return tuple(
            result if result.error else CreateResult(token=result.token, node=self._seen(self._lives[result.token]))
            for result in results
        )

    def _one(self, request: NodeRequest) -> CreateResult:
        fault = self._injector.strikes(FaultKind.PARTIAL_BATCH)
        # A token that has a node yields that node, whatever becomes of the others: the port's own promise.
        if fault is None or request.token in self._lives:
            return self._taken(request)
        errors: tuple[FleetctlError, ...] = (
            ThrottledError("create: rate exceeded", retry_after_s=RETRY_AFTER_S),
            ProviderError("create: internal error"),
            CapacityError("no stock"),
            AmbiguousOutcomeError("create: nobody knows"),
        )
        error = errors[self._dice.randrange(len(errors))]
        if isinstance(error, AmbiguousOutcomeError) and self._dice.random() < 0.5:
            self._taken(request)
        return CreateResult(token=request.token, error=error)

    def _deliver_again(self, requests: list[NodeRequest]) -> None:
        async def later() -> None:
            await self._clock.sleep(self._dice.uniform(0.0, 3.0 * self.faults.create_s))
            for request in requests:
                self._taken(request)

        task = asyncio.ensure_future(later())
        self._redelivered.add(task)
        task.add_done_callback(self._redelivered.discard)

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's nodes: those of a moment ago, or a part of them, where the schedule says so."""
        as_of, lag = self._wall.now(), timedelta(seconds=self.faults.list_lag_s)
        await self._enter("list_nodes", 0.0)
        back = lag * self._dice.random() if self._injector.strikes(FaultKind.STALE_LISTING) else timedelta()
        at = self._clock.now()
        young = at - (lag if self._injector.strikes(FaultKind.STALE_LISTING) else timedelta())
        shown = [life for life in self._kept(owner, fleet) if life.made_at <= young]
        nodes = sorted((self._aged(life, back) for life in shown), key=lambda node: node.id)
        is_partial = self._injector.strikes(FaultKind.PARTIAL_LISTING) is not None
        slow = _SLOW if self._injector.strikes(FaultKind.SLOW, "list_nodes") else 1.0
        await self._clock.sleep(self.faults.list_s * slow)
        await self._leave("list_nodes")
        there = nodes[: self._dice.randint(0, len(nodes))] if is_partial else nodes
        return NodeListing(nodes=tuple(there), as_of=as_of, is_complete=not is_partial)

    def _aged(self, life: NodeLife, back: timedelta) -> Node:
        """Return a node as it was a while ago; when it was told to end is not kept, so that is shown at once."""
        if not back:
            return self._seen(life)
        was = life.at(max(life.made_at, self._clock.now() - back))
        return was if self._seen(life).host else self._seen(life)

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Let a node end after its grace at the latest."""
        await self._enter("stop", _CALL_S)
        self._stop(node_id, grace_s)
        await self._leave("stop")

    async def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield nodes as they change; some changes are never said, and the stream breaks now and then."""
        async for node in super().watch(owner=owner, fleet=fleet):
            if self._injector.strikes(FaultKind.EVENTS_LOST):
                if self._dice.random() < 0.2:
                    raise ProviderError("the stream of events broke")
                continue
            yield node

    async def _enter(self, call: str, takes_s: float) -> None:
        """Let a call fail before its effect, or be slow."""
        self.calls[call] = self.calls.get(call, 0) + 1
        strikes = self._injector.strikes
        if strikes(FaultKind.THROTTLED, call):
            await self._clock.sleep(_CALL_S)
            raise ThrottledError(f"{call}: rate exceeded", retry_after_s=RETRY_AFTER_S)
        if strikes(FaultKind.CREDENTIALS, call):
            raise CredentialsError("the credentials have expired")
        if strikes(FaultKind.REFUSED, call):
            await self._clock.sleep(_CALL_S)
            raise ProviderError(f"{call}: internal error")
        if fault := strikes(FaultKind.LOST_REQUEST, call):
            await self._clock.sleep(fault.draw % 5)
            raise AmbiguousOutcomeError(f"{call}: the connection was cut")
        if (fault := strikes(FaultKind.HUNG, call)) and fault.draw % 2:
            await self._clock.sleep(_NEVER_S)
        slow = _SLOW if strikes(FaultKind.SLOW, call) else 1.0
        await self._clock.sleep(takes_s * slow * self._dice.uniform(0.5, 1.5))

    async def _leave(self, call: str) -> None:
        """Lose the answer of a call that has had its effect."""
        if (fault := self._injector.strikes(FaultKind.HUNG, call)) and not fault.draw % 2:
            await self._clock.sleep(_NEVER_S)
        if self._injector.strikes(FaultKind.LOST_REPLY, call):
            raise AmbiguousOutcomeError(f"{call}: the connection was cut")

    def _choice(self, request: NodeRequest) -> str:
        """Return the first of the order's offerings that can be had. Raises CapacityError, QuotaError."""
        if self._injector.is_open(FaultKind.QUOTA) and request.market is Market.SPOT:
            raise QuotaError("reached", quota="spot-nodes", market=request.market.value)
        short = self._injector.strikes(FaultKind.NO_STOCK)
        if short is None:
            return request.offering
        scarce = ("zone-a", "spot", "")[short.draw % 3]
        for key in (request.offering, *request.alternatives):
            if scarce and scarce not in key:
                return key
        instance_type, zone, market = OfferingKey.parse(request.offering)
        raise CapacityError(f"no stock of {request.offering}", instance_type=instance_type, zone=zone, market=market)

    def _make(self, request: NodeRequest, key: str) -> None:
        super()._make(request, key)
        life = self._lives[request.token]
        if life.runs_at is not None and self._injector.strikes(FaultKind.NO_BOOT):
            life = replace(life, runs_at=None)
        elif life.runs_at is not None and self._injector.strikes(FaultKind.SLOW_BOOT):
            life = replace(life, runs_at=life.made_at + (life.runs_at - life.made_at) * _SLOW_BOOT)
        self._put(request.token, life)
        if life.runs_at is not None:
            self._note_change(request.token, life.runs_at)
        self.on_made(request, life)

    def _stop(self, node_id: str, grace_s: float) -> None:
        token = self._living_token(node_id)
        if token is None:
            return
        if self._lives[token].node.state is not NodeState.STOPPING:
            self.on_stop(self._lives[token].node)
        slow_s = _SLOW_END_S if self._injector.strikes(FaultKind.SLOW_END) else 0.0
        at = self._clock.now() + timedelta(seconds=min(grace_s, self.faults.stop_s) + slow_s)
        self._put(token, self._lives[token].stopping(at))
        self._note_change(token, at)
