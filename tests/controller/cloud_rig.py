"""A controller on a cloud at its worst, on virtual time; it can be killed before or after any write or call."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fleetctl.controller.loop import Controller
from fleetctl.controller.world import World
from fleetctl.core.reconcile import reconcile
from fleetctl.errors import UnavailableError
from fleetctl.model.catalogue import Market
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.node import ProviderPace
from fleetctl.model.profile import CapacitySpec, ControlSpec, ReplicaBounds
from fleetctl.model.replica import ReplicaState
from fleetctl.paths import FleetPaths
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.fault_provider import CloudFaults, FaultProvider
from fleetctl.testing.samples import EPOCH
from tests.controller.rig import FLEET, FakeGateway, behind

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.replica import Replica
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.provider import Provider, SharedResources
    from fleetctl.ports.store import StateStore

_WRITES = (
    "begin_replica", "begin_replicas", "amend_intents", "settle_intent", "settle_intents", "put_replica", "put_memory", "put_ledgers",
    "append",
    "put_shared", "end_shared",
)  # fmt: skip
_CALLS = ("create", "stop", "list_nodes", "describe", "offerings", "listen_addresses", "prepare", "teardown")


class KilledError(BaseException):
    """The controller's process is no more; nothing of it may catch this."""


@dataclass(slots=True)
class Life:
    """One controller process: after so many writes and calls it is killed, at that very step."""

    steps_left: int
    before_effect: bool
    is_over: bool = False

    def step(self, *, is_before: bool) -> None:
        if self.is_over:
            raise KilledError
        if is_before is self.before_effect:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.is_over = True
                raise KilledError


class Mortal:
    """Stands before a store or provider on behalf of one life; a dead process writes, calls and hears nothing."""

    writes: tuple[str, ...] = _WRITES

    def __init__(self, target: object, life: Life) -> None:
        self._target = target
        self._life = life

    def __getattr__(self, name: str) -> Any:  # whatever the target has
        found = getattr(self._target, name)
        if name == "capabilities" and found.shared is not None:
            return replace(found, shared=cast("SharedResources", Mortal(found.shared, self._life)))
        if name in self.writes:
            return self._written(found)
        return self._called(found) if name in _CALLS else found

    def _written(self, write: Any) -> Any:
        def written(*args: object, **named: object) -> object:
            self._life.step(is_before=True)
            answer = write(*args, **named)
            self._life.step(is_before=False)
            return answer

        return written

    def _called(self, call: Any) -> Any:
        async def called(*args: object, **named: object) -> object:
            self._life.step(is_before=True)
            answer = await call(*args, **named)
            self._life.step(is_before=False)
            return answer

        return called


@dataclass(slots=True)
class CloudEngines:
    """Implements EngineClient over the cloud's nodes: an engine answers as soon as its node runs."""

    provider: FaultProvider
    clock: LoopClock
    hosts_probed: set[str]

    async def is_healthy(self, host: str, port: int, path: str) -> bool:
        del port, path
        self.hosts_probed.add(host)
        return self.provider.runs(host)

    async def get(self, host: str, port: int, path: str) -> str:
        del port, path
        self._must_run(host)
        return "running 0\nwaiting 0\nkv_usage 0.0"

    async def complete(self, host: str, port: int, path: str, body: bytes) -> None:
        del port, path, body
        await self.clock.sleep(0.5)
        self._must_run(host)

    def _must_run(self, host: str) -> None:
        if not self.provider.runs(host):
            raise UnavailableError(f"nobody listens on {host}")


@dataclass
class Cloud:
    """One fleet on a cloud, and controllers that come and are killed."""

    home: Path
    seed: int
    slots: int
    faults: CloudFaults = field(default_factory=CloudFaults)
    sold: tuple[Any, ...] = ()
    tick_s: float = 1.0
    shared: tuple[str, ...] = ()
    declared: ProviderPace | None = None  # what the provider says of its pace; None: the truth

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.clock = LoopClock(EPOCH)
        self.provider = FaultProvider(
            self.clock,
            random.Random(self.seed + 1),
            self.faults,
            sold=self.sold,
            shared=self.shared,
            declared=self.declared,
        )
        self.store = SqliteStore(self.home / "state.db", clock=self.clock)
        self.store._owner = f"owner-{self.seed}"  # tokens are derived from it: the same seed lives the same life
        self.gateway = FakeGateway(self.clock)
        self.engine = FakeEngine()
        self.life = Life(steps_left=0, before_effect=True, is_over=True)
        self.living_most = 0
        self.out_of_rotation_s: list[float] = []
        self.status: FleetStatus | None = None
        self.kills = 0
        self.hosts_probed: set[str] = set()

    def up(self, *, spot: int = 0) -> None:
        """Want so many replicas: a sixth in `short`, the rest in `long`, of which `spot` on spot nodes."""
        short = max(1, self.slots // 6)
        profile = samples.profile(FLEET)
        bounds = ReplicaBounds(min=0, max=self.slots)
        profile = replace(
            profile,
            lanes=tuple(replace(lane, replicas=bounds) for lane in profile.lanes),
            capacity=CapacitySpec(max_nodes=2 * self.slots),
            control=ControlSpec(start_timeout_s=1200.0, scale_down_after_s=1e6, tick_s=self.tick_s),
        )
        plans = (
            samples.lane_plan("short", on_demand=short),
            samples.lane_plan("long", on_demand=self.slots - short - spot, spot=spot),
        )
        self.store.put_fleet(profile, replace(samples.plan(FLEET), lanes=plans), now=self.clock.now())

    def down(self) -> None:
        self.store.set_phase(FLEET, DesiredPhase.DOWN, now=self.clock.now())

    async def live(self, seconds: float, *, steps: int = 10**9, until: Callable[[], bool] = lambda: False) -> bool:
        """Have a controller at work until it has ended, time is up, it is killed, or `until` holds.

        Return whether it ended by itself.
        """
        life = self.life = Life(steps_left=steps, before_effect=self.dice.random() < 0.5)
        world = World(
            fleet=FLEET,
            paths=FleetPaths(fleet=FLEET),
            store=behind(cast("StateStore", Mortal(self.store, life)), self.clock),
            provider=cast("Provider", Mortal(self.provider, life)),
            engine_of=lambda _: self.engine,
            policy_of=lambda _: reconcile,
            engines=CloudEngines(self.provider, self.clock, self.hosts_probed),
            gateway=self.gateway,
            gateway_host=self.gateway,
            clock=self.clock,
            pid=1,
        )
        controller = Controller(world)
        task = asyncio.ensure_future(controller.run())
        until_s = self.clock.monotonic_s() + seconds
        while not task.done() and self.clock.monotonic_s() < until_s and not until():
            await asyncio.wait([task], timeout=min(2.0, until_s - self.clock.monotonic_s()))
            self.living_most = max(self.living_most, len(self._unnoticed()))
        ended = task.done() and not task.cancelled() and task.exception() is None
        if not ended:
            self.kills += 1
        self.status = controller.status() if not life.is_over else self.status
        life.is_over = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ended

    def _unnoticed(self) -> list[str]:
        """Return the tokens of nodes that are there to stay."""
        return [n.token for n in self.provider.living() if n.notice is None and n.state.value != "stopping"]

    async def notice_now_and_then(self, every_s: float, notice_s: float) -> None:
        """Take spot replicas in rotation for ever, and note how long each stays in the routing table."""
        while True:
            await self.clock.sleep(self.dice.uniform(0.5, 1.5) * every_s)
            ready = [
                r for r in self.replicas(ReplicaState.READY) if r.market is Market.SPOT and r.notice_deadline is None
            ]
            routed = {r.id for r in self.gateway.table.replicas if r.in_rotation} if self.gateway.table else set()
            living = {node.id for node in self.provider.living()}  # one may have ended and nobody have seen it yet
            ready = [r for r in ready if r.id in routed and r.node_id in living]
            if ready and not self.life.is_over:
                await self._notice(self.dice.choice(sorted(ready, key=lambda r: r.id)), notice_s)

    async def _notice(self, replica: Replica, notice_s: float) -> None:
        life, at_s = self.life, self.clock.monotonic_s()
        await self.provider.interrupt(replica.node_id, notice_s=notice_s)
        while self._is_routed(replica.id):
            await self.clock.sleep(0.05)
            if life.is_over:
                return  # killed in between: nobody was there to act on it
        self.out_of_rotation_s.append(self.clock.monotonic_s() - at_s)

    def _is_routed(self, replica_id: str) -> bool:
        table = self.gateway.table
        return table is not None and any(r.id == replica_id and r.in_rotation for r in table.replicas)

    def replicas(self, state: ReplicaState | None = None) -> list[Replica]:
        found = [r for r in self.store.replicas(FLEET) if r.state.is_live]
        return [r for r in found if state is None or r.state is state]
