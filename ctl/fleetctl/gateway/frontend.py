"""What is behind the public port: routes, keys, the model list, and the way into a lane."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.dispatcher import Dispatcher
from fleetctl.core.dispatch.ordering import order_lanes
from fleetctl.gateway.auth import Authenticator, is_local
from fleetctl.gateway.bounded_exchange import BoundedExchange
from fleetctl.gateway.bounding import BoundsTable
from fleetctl.gateway.classify import parse_request
from fleetctl.gateway.connections import OpenConnections
from fleetctl.gateway.entitlements import Entitlements
from fleetctl.gateway.errors import EarlyRefusals
from fleetctl.gateway.exchange import CHAT_PATH, Exchange
from fleetctl.gateway.measure import fit_context, measure
from fleetctl.gateway.metrics import PageGauges
from fleetctl.gateway.model_names import ModelNames
from fleetctl.gateway.orders import installed_order
from fleetctl.gateway.pages import HEALTH, METRICS, MODEL, LocalPages
from fleetctl.gateway.traces import EndedRequests
from fleetctl.gateway.upstreams import Upstreams
from fleetctl.gateway.workflows import by_table, figures_of
from fleetctl.model.gateway import GatewaySnapshot

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.requests import Request
    from fleetctl.model.gateway import RoutingTable

_log = logging.getLogger("fleetctl.gateway")

_POSTS = frozenset((CHAT_PATH, b"/v1/completions"))
_GETS = frozenset((b"/v1/models", HEALTH, METRICS))
_UNFIT = (Refusal.UNKNOWN_MODEL, Refusal.NOT_ALLOWED)
_BODY_BYTES_BEFORE_TABLE = 1024 * 1024


class Frontend:
    """Serves client connections from one routing table after another."""

    def __init__(
        self, fleet: str, clock: Clock, rng: random.Random, limits: GatewayLimits, *, is_loopback: bool = True
    ) -> None:
        self.limits = limits
        self.clock = clock.monotonic_s
        self.is_stopping, self._takes_requests = False, True  # the first: each answer is its connection's last
        self.body_bytes_max = _BODY_BYTES_BEFORE_TABLE
        self.dispatcher = Dispatcher(self.clock, self._wake_at, rng, limits.dispatch)
        self.upstreams = Upstreams(self.clock, limits)
        self._fleet, self._wall = fleet, clock
        self._started_at: datetime = clock.now()
        self._started_s = clock.monotonic_s()
        self.ended = EndedRequests(clock, self._started_at)
        self.early = EarlyRefusals(clock, self.ended.ids)
        self.gauges = PageGauges(self.clock, limits.sweep_interval_s)
        self._clients = OpenConnections(limits.connections_max)
        self.rested = self._clients.rested
        # A port that others can reach is never open to all.
        self._authenticator = Authenticator(clock, is_open_without_keys=is_loopback)
        self.pages = LocalPages(
            fleet, self.dispatcher, self.upstreams, clients=self._clients,
            gauges=self.gauges, ended=self.ended, started_at=self._started_at,
        )  # fmt: skip
        self.models = self.gauges.models = ModelNames(self.clock)
        self._entitlements, self._bounds = Entitlements(self._authenticator), BoundsTable()
        self._checks: set[asyncio.Task[None]] = set()

    def apply(self, table: RoutingTable) -> bool:
        """Replace the routing table. False: it is older than the one at work."""
        at_work = self.dispatcher.routes.table
        if at_work is not None and table.order < at_work.order:
            return False
        self._authenticator.apply(table.api_key_hashes, {*table.key_generation, *table.key_names, *table.key_tiers})
        self.models.apply(table)
        self._entitlements.apply(table)
        self._bounds.apply(table)
        self.body_bytes_max = table.body_bytes_max
        self.gauges.certificate.apply(table.tls)
        self.upstreams.apply(table)
        self.ended.workflows = by_table(self.ended.workflows, table.workflows, self.clock)
        self.dispatcher.apply(table)
        order_lanes(self.dispatcher, installed_order)
        return True

    def _wake_at(self, at_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        # The loop's timers count whole milliseconds: never wake before the time.
        return asyncio.get_running_loop().call_later(max(0.0, at_s - self.clock()) + 0.001, call)

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._clients)

    @property
    def is_busy(self) -> bool:
        """Whether anybody still waits for an answer."""
        return not self.dispatcher.is_idle

    def snapshot(self, pid: int) -> GatewaySnapshot:
        """Return everything the controller wants to know."""
        now_s = self.clock()
        now, table, evictions = self._wall.now(), self.dispatcher.routes.table, self.dispatcher.evictions
        return GatewaySnapshot(
            fleet=self._fleet,
            at=now,
            started_at=self._started_at,
            uptime_s=now_s - self._started_s,
            table_version=table.version if table is not None else 0,
            table_generation=table.generation if table is not None else 0,
            pid=pid,
            lanes=tuple(lane.snapshot(now_s) for lane in self.dispatcher.routes.lanes.values()),
            replicas=tuple(replica.snapshot(now_s) for replica in self.dispatcher.routes.replicas.values()),
            loop=self.gauges.loop.read(),
            cuts=self.ended.cuts.counts(),
            workflows=figures_of(self.ended.workflows, now_s),
            evictions=evictions.events(now_s, now),
            evictions_seq=evictions.seq,
            is_beside=self.dispatcher.sharing.is_beside,
            certificate=self.gauges.certificate.read(),
        )

    def sweep(self) -> None:
        """Check every deadline that is not urgent."""
        now_s = self.clock()
        self.gauges.sweep(now_s)
        for client in self._clients:
            client.check(now_s)
        self.upstreams.expire()
        self.dispatcher.sweep(now_s)
        if self.ended.workflows is not None:
            self.ended.workflows.tracker.sweep(now_s)

    def stop(self) -> None:
        """Take the requests at hand as the last ones."""
        self.is_stopping, self._takes_requests = True, False
        for client in self._clients:
            client.stop()

    def cut(self) -> None:
        """Break off whoever is still there."""
        for client in self._clients:
            client.cut()

    # Service, for client connections.

    def opened(self, client: ClientConnection) -> bool:
        """Note a connection; False: there are too many."""
        return self._clients.admit(client)

    def closed(self, client: ClientConnection) -> None:
        """Note its end."""
        self._clients.discard(client)

    def admits_body(self, authorization: bytes) -> bool:
        """Whether a body is read of a request with this key: not with one that is known to be wrong, or none."""
        return self._authenticator.check(authorization) is not False

    def serve(self, client: ClientConnection, request: Request) -> None:
        """Answer a request."""
        path = request.path
        allowed = b"POST" if path in _POSTS else b"GET" if path in _GETS or path.startswith(MODEL) else b""
        if not allowed:
            self.early.refuse(client, request, 404, f"no such route: {path.decode('latin-1')}")
        elif request.method != allowed and not (request.method == b"HEAD" and allowed == b"GET"):
            self.early.refuse(client, request, 405, f"this route wants {allowed.decode()}")
        elif path == HEALTH or (path == METRICS and is_local(client.address)):
            # Load balancers ask for health and hold no key; figures are for whoever has one, or is on this machine.
            self.pages.serve(client, request, is_stopping=self.is_stopping)
        else:
            self._authenticate(client, request)

    def _authenticate(self, client: ClientConnection, request: Request) -> None:
        authorization = request.headers.get(b"authorization", b"")
        accepted = self._authenticator.check(authorization)
        if accepted is None:
            check = asyncio.get_running_loop().create_task(self._check_slowly(client, request, authorization))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)
        elif accepted:
            self._accepted(client, request)
        else:
            self.early.refuse_key(client, request)

    async def _check_slowly(self, client: ClientConnection, request: Request, authorization: bytes) -> None:
        accepted = await self._authenticator.check_slowly(authorization, address=client.address)
        if client not in self._clients:
            return
        if accepted is None:
            self.early.postpone_key(client, request)
        elif accepted:
            self._accepted(client, request)
        else:
            self.early.refuse_key(client, request)

    def _accepted(self, client: ClientConnection, request: Request) -> None:
        if request.path not in _POSTS:
            self.pages.serve(client, request, is_stopping=self.is_stopping)
        else:
            self._infer(client, request)

    def _infer(self, client: ClientConnection, request: Request) -> None:
        try:
            parsed = parse_request(request.body)
        except msgspec.DecodeError as exc:
            self.early.refuse(client, request, 400, f"the request body is not valid: {exc}")
            return
        routes = self.dispatcher.routes
        if routes.table is None or not self._takes_requests:
            refusal = Refusal.NO_REPLICA if self._takes_requests else Refusal.STOPPING
            failed = "this gateway serves nothing now"
            self.early.refuse(client, request, 503, failed, kind="server_error", refusal=refusal)
            return
        found = self._bounds.limited_by_key(request, measure(parsed, routes), self._entitlements)
        named = request.headers.get(b"x-fleetctl-lane")
        header = named.decode("latin-1") if named is not None else None
        lane = self.models.lane_of(request, found, routes, header)
        if lane in _UNFIT:
            self.early.refuse_unfit(client, request, parsed.model, self.models.known)
            return
        if isinstance(lane, Refusal):
            prompt_key = "messages" if request.path == CHAT_PATH else "prompt"
            self.early.refuse_without_lane(client, request, lane, found.tokens, routes, header, prompt_key=prompt_key)
            return
        kind, wrong, degradation = Exchange, "", lane.degradation
        if self._entitlements.has_any:
            wrong = self._entitlements.assign(request, lane)
            degradation = request.tier.degradation if request.tier is not None else degradation
        if degradation.context_tokens is not None:
            found = fit_context(request, found, degradation, routes)
        if self._bounds.has_any and not wrong:
            is_bounded, wrong = self._bounds.bound(request, found, lane.route)
            kind = BoundedExchange if is_bounded else Exchange
        if wrong:
            self.early.refuse(client, request, 400, wrong)
            return
        exchange = kind(self.dispatcher, self.upstreams, self.limits, client, request, lane)
        exchange.submit(lane, found, self._authenticator.client_key(request, client.address), self.ended)
