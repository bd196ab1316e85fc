"""A controller among fakes, on virtual time: provider, engines and gateway all live on one simulated clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from fleetctl.controller.loop import Controller
from fleetctl.controller.store_access import InlineAccess
from fleetctl.controller.world import World
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.core.reconcile import reconcile
from fleetctl.errors import UnavailableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot, ReplicaCuts, ReplicaSnapshot, RoutingTable, SignalFeed
from fleetctl.model.node import NodeState
from fleetctl.model.slo_feed import SloFeed
from fleetctl.paths import FleetPaths
from fleetctl.ports.runtime import Stall, StallKind
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.provider import FakeProvider
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fleetctl.model.desired import Desired
    from fleetctl.model.node import Node
    from fleetctl.model.profile import ControlSpec, Profile
    from fleetctl.model.replica import Replica, ReplicaState
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.policy import Policy
    from fleetctl.ports.store import StateStore

FLEET = "demo"


def behind(store: StateStore, clock: LoopClock) -> WriteBehindStore:
    """Return a controller's way to a store that answers at once."""
    return WriteBehindStore(InlineAccess(store), FLEET, clock)


@dataclass(slots=True)
class FakeEngines:
    """Implements EngineClient over the fake provider's nodes: an engine is healthy `startup_s` after its node runs."""

    provider: FakeProvider
    clock: LoopClock
    owner: str = ""
    startup_s: float = 2.0
    warm_s: float = 0.5
    unhealthy: set[int] = field(default_factory=set)  # ports
    cold: set[int] = field(default_factory=set)  # ports whose completions fail
    hung: set[int] = field(default_factory=set)  # ports whose completions never end
    stuck_after: dict[int, int] = field(default_factory=dict)  # port -> answers with more tokens never end
    pages: dict[int, str] = field(default_factory=dict)  # port -> what it says instead of `page`
    page: str = "running 0\nwaiting 0\nkv_usage 0.0"
    version: str = "1.0.0"  # that engines say they are, whatever was asked for
    completions: list[tuple[float, int]] = field(default_factory=list)
    _up_since: dict[int, float] = field(default_factory=dict)

    async def is_healthy(self, host: str, port: int, path: str) -> bool:
        assert (host, path) == ("127.0.0.1", "/health")
        if not self._runs(port):
            raise UnavailableError(f"nobody listens on {port}")
        since = self._up_since.setdefault(port, self.clock.monotonic_s())
        return port not in self.unhealthy and self.clock.monotonic_s() - since >= self.startup_s

    async def get(self, host: str, port: int, path: str) -> str:
        assert host == "127.0.0.1"
        if not self._runs(port):
            raise UnavailableError(f"nobody listens on {port}")
        if path == "/version":
            return f'{{"version": "{self.version}"}}'
        assert path == "/metrics"
        return self.pages.get(port, self.page)

    async def complete(self, host: str, port: int, path: str, body: bytes) -> None:
        assert host == "127.0.0.1"
        assert path.startswith("/v1/")
        assert body
        is_stuck = msgspec.json.decode(body)["max_tokens"] > self.stuck_after.get(port, 1_000)
        await self.clock.sleep(1e6 if port in self.hung or is_stuck else self.warm_s)
        if port in self.cold or not self._runs(port):
            raise UnavailableError(f"{port} completes nothing")
        self.completions.append((self.clock.monotonic_s(), port))

    def begin_anew(self, node: Node) -> None:
        """Have a node's engine start from the beginning, with nothing wrong."""
        for wrong in (self.hung, self.unhealthy, self.cold):
            wrong.discard(node.port)
        self._up_since.pop(node.port, None)
        self.pages.pop(node.port, None)

    def _runs(self, port: int) -> bool:
        # Not through the port: what is scripted for the controller's calls is not for ours.
        nodes = [self.provider._seen(life) for life in self.provider._lives.values()]
        runs = any(node.port == port and node.state is NodeState.RUNNING for node in nodes)
        if not runs:
            self._up_since.pop(port, None)
        return runs


@dataclass(slots=True)
class FakeGateway:
    """Implements GatewayClient and GatewayHost: a gateway that is there `start_s` after it is started."""

    clock: LoopClock
    start_s: float = 0.5
    up_at: float | None = None
    hangs: bool = False
    dies_at_once: bool = False
    stalled_at: float | None = None
    stops: list[float] = field(default_factory=list)  # within_s of each
    table: RoutingTable | None = None
    tables: list[tuple[float, RoutingTable]] = field(default_factory=list)
    feeds: list[SignalFeed] = field(default_factory=list)
    slo_feeds: list[SloFeed] = field(default_factory=list)
    in_flight: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    good: dict[str, int] = field(default_factory=dict)  # replica -> requests that ended there inside their SLO
    breached: dict[str, dict[str, int]] = field(default_factory=dict)
    cuts: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # replica -> requests cut there, and those lost of them
    errors: dict[str, int] = field(default_factory=dict)  # replica -> answered with nothing else since
    silent_since: dict[str, float] = field(default_factory=dict)  # replica -> nothing was heard of its requests since
    stalled: set[str] = field(default_factory=set)  # replicas all of whose requests stood still
    prefill_allowance_s: float = 0.0
    lanes: tuple[LaneSnapshot, ...] = ()
    starts: list[float] = field(default_factory=list)
    port_held: bool = False
    on_exit: Callable[[], None] | None = None

    def numbered(self, number: int) -> FakeGateway:
        assert number == 1
        return self

    def living(self) -> tuple[int, ...]:
        return (1,) if self.is_alive() else ()

    def watch(self, on_exit: Callable[[], None]) -> None:
        self.on_exit = on_exit if self.is_alive() else None

    def is_alive(self) -> bool:
        return self.up_at is not None

    def stall(self) -> Stall | None:
        if self.stalled_at is None or not self.is_alive():
            return None
        return Stall(pid=4242, kind=StallKind.STOPPED, for_s=self.clock.monotonic_s() - self.stalled_at)

    def is_beating(self) -> bool:
        return self.stalled_at is None

    def lost_s(self) -> float:
        return 0.0

    def start(self, desired: Desired) -> int:
        assert not self.is_alive(), "a second gateway was started"
        assert desired.fleet == FLEET
        self.starts.append(self.clock.monotonic_s())
        self.port_held = True
        if not self.dies_at_once:
            self.up_at = self.clock.monotonic_s() + self.start_s
        return 4242

    async def stop(self, *, within_s: float) -> None:
        self.stops.append(within_s)
        await self.clock.sleep(min(1.0, within_s))
        self.kill()

    def kill(self) -> None:
        self.up_at, self.table, self.hangs, self.stalled_at = None, None, False, None
        if self.on_exit is not None:
            self.on_exit()

    def release_port(self) -> bool:
        held, self.port_held = self.port_held, False
        return held

    async def snapshot(self) -> GatewaySnapshot:
        self._must_answer()
        now = self.clock.now()
        known = self.table.replicas if self.table else ()
        return GatewaySnapshot(
            fleet=FLEET,
            at=now,
            started_at=EPOCH + timedelta(seconds=self.up_at or 0.0),
            table_version=self.table.version if self.table else 0,
            pid=4242,
            lanes=self.lanes,
            cuts=tuple(ReplicaCuts(id=name, cut=cut, lost=lost) for name, (cut, lost) in self.cuts.items()),
            replicas=tuple(
                ReplicaSnapshot(
                    id=route.id,
                    in_flight=self.in_flight.get(route.id, 0),
                    failures=self.failures.get(route.id, 0) + (route.id in self.stalled),
                    is_stalled=route.id in self.stalled,
                    consecutive_failures=self.failures.get(route.id, 0),
                    errors_in_a_row=self.errors.get(route.id, 0),
                    silent_s=self._silent_s(route.id),
                    prefill_allowance_s=self.prefill_allowance_s,
                    good=self.good.get(route.id, 0),
                    breached=self.breached.get(route.id, {}),
                )
                for route in known
            ),
        )

    async def put_table(self, table: RoutingTable) -> int:
        self._must_answer()
        if self.table is not None and table.version <= self.table.version:
            return self.table.version
        self.table = table
        self.tables.append((self.clock.monotonic_s(), table))
        return table.version

    async def put_signals(self, feed: SignalFeed) -> None:
        self._must_answer()
        self.feeds.append(feed)

    async def put_slo(self, feed: SloFeed) -> None:
        self._must_answer()
        self.slo_feeds.append(feed)

    def _silent_s(self, replica_id: str) -> float:
        since_s = self.silent_since.get(replica_id)
        return 0.0 if since_s is None else self.clock.monotonic_s() - since_s

    def _must_answer(self) -> None:
        if self.up_at is None or self.hangs or self.clock.monotonic_s() < self.up_at:
            raise UnavailableError("the gateway does not answer")


class Rig:
    """One fleet's world, and controllers that come and go in it."""

    def __init__(self, home: Path, policy: Policy = reconcile, *, restarts: bool = False) -> None:
        self.clock = LoopClock(EPOCH)
        self.provider = FakeProvider(self.clock, boot_s=1.0, stop_s=1.0, restarts=restarts)
        self.store = SqliteStore(home / "state.db", clock=self.clock)
        self.engines = FakeEngines(self.provider, self.clock, owner=self.store.owner)
        self.provider.on_restart = self.engines.begin_anew
        self.gateway = FakeGateway(self.clock)
        self.world = World(
            fleet=FLEET,
            paths=FleetPaths(fleet=FLEET),
            store=behind(self.store, self.clock),
            provider=self.provider,
            engine_of=lambda _: FakeEngine(),
            policy_of=lambda _: policy,
            engines=self.engines,
            gateway=self.gateway,
            gateway_host=self.gateway,
            clock=self.clock,
            pid=1,
        )

    def up(self, profile: Profile | None = None, *, control: ControlSpec | None = None) -> None:
        """Store desired state; the sample has four replicas in the lanes short (2) and long (1 + 1 spot)."""
        profile = profile or samples.profile(FLEET)
        profile = replace(profile, control=control or profile.control)
        self.store.put_fleet(profile, samples.plan(FLEET), now=self.clock.now())

    @asynccontextmanager
    async def controller(self) -> AsyncIterator[Controller]:
        """Have a controller at work for a block; leaving it kills the controller where it stands."""
        controller = Controller(self.world)
        task = asyncio.ensure_future(controller.run())
        try:
            yield controller
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self, seconds: float) -> FleetStatus | None:
        """Have a controller at work for so long; return its last status."""
        async with self.controller() as controller:
            await self.clock.sleep(seconds)
            return controller.status()

    def replicas(self, state: ReplicaState | None = None) -> list[Replica]:
        found = [r for r in self.store.replicas(FLEET) if r.state.is_live]
        return [r for r in found if state is None or r.state is state]

    def token(self, replica_id: str) -> str:
        """Return the token of a replica's node."""
        node_id = next(r.node_id for r in self.store.replicas(FLEET) if r.id == replica_id)
        return next(token for token in self.provider.live_tokens if token in node_id)

    def down(self) -> None:
        self.store.set_phase(FLEET, DesiredPhase.DOWN, now=self.clock.now())

    def journal(self, action: str = "") -> list[str]:
        entries = self.store.journal(FLEET, limit=10_000)
        return [f"{e.action} {e.subject}: {e.reason}" for e in entries if not action or e.action == action]
