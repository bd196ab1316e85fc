"""One run: a fleet under the real controller, everything of its schedule, then calm, then `down`."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from fleetctl.controller.launch import token_of
from fleetctl.controller.loop import Controller
from fleetctl.controller.publish import table_epoch
from fleetctl.controller.world import World
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.core.reconcile import reconcile
from fleetctl.errors import FencedError, NotFoundError
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.paths import FleetPaths
from fleetctl.ports.lease import LeaseHolder
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.samples import EPOCH
from fleetctl.testing.virtual_time import run_virtual
from tests.torture.checks import Checks, Violation
from tests.torture.cloud import PACES, TortureCloud
from tests.torture.engines import TortureEngines
from tests.torture.faults import Fault, FaultKind, Injector
from tests.torture.gateway import TortureGateway
from tests.torture.happenings import HAPPENINGS, see_to_rollout
from tests.torture.life import FaultyAccess, Life, LifeBorder, LifeProvider, as_provider
from tests.torture.setting import caps_of, setting_of
from tests.torture.wanted import FLEET, LANES, torture_plan, torture_profile

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fleetctl.model.node import Node
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.replica import Replica
    from fleetctl.ports.policy import Policy

HORIZON_S = 60.0
_LOOK_S = 1.0
_QUIET_S = 10.0
_CONVERGED_WITHIN_S = {"near": 420.0, "far": 900.0}
_DOWN_WITHIN_S = {"near": 240.0, "far": 500.0}
# A rollout that fails takes three starts, each to its timeout, and then goes back.
_WIDE_CONVERGED_WITHIN_S = {"near": 1500.0, "far": 4500.0}
_LISTED_S = 60.0
_LATE_EFFECTS_S = 50.0
_REBORN_S = (0.5, 6.0)
_CLOCK_STEPS_S = (3600.0, -3600.0, 30.0, -30.0, 5.0, 900.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run showed."""

    seed: int
    violations: tuple[Violation, ...]
    digest: str  # of everything that was done at the provider and written to the journal
    lives: int
    orders: int
    stops: int
    virtual_s: float
    converged_s: float  # after the last fault
    down_s: float


class Run:
    """A fleet, what goes wrong with it, and who watches."""

    def __init__(self, seed: int, faults: tuple[Fault, ...], *, horizon_s: float, policy: Policy = reconcile) -> None:
        dice = random.Random(f"{seed}/world")
        self.seed = seed
        self.faults = faults
        self.horizon_s, self.policy = horizon_s, policy
        self.dice = random.Random(f"{seed}/luck")
        self.clock = LoopClock(EPOCH)
        self.injector = Injector(faults, self.clock.monotonic_s)
        self.pace = dice.choice(("near", "near", "far"))
        self.start_timeout_s = 60.0 if self.pace == "near" else 200.0
        self.tick_s = dice.choice((1.0, 2.0, 3.0, 5.0))
        self.plans = {lane: (dice.randint(1, 2), dice.randint(0, 1 if lane == "short" else 2)) for lane in LANES}
        self.setting = setting_of(seed)
        self.flags, self.is_shadow = dict[str, str](), False
        self.revisions: list[tuple[Profile, Plan]] = []  # every revision that people asked for
        self.caps = caps_of(self.setting, self.plans, dice)
        self.store = SqliteStore(None, clock=self.clock)
        self.store._owner = f"owner-{seed}"
        self.paths = FleetPaths(fleet=FLEET)
        self.cloud = TortureCloud(self.clock, seed, PACES[self.pace], self.injector, shared=self.setting.shared)
        self.gateway = TortureGateway(self.clock, self.injector, self.paths.routing_table)
        self.engine = FakeEngine()
        self.engines = TortureEngines(self.cloud, self.clock, self.injector)
        self.checks = Checks(self)
        self.cloud.on_made, self.cloud.on_stop = self.checks.made, self.checks.stopping
        self.gateway.on_table = self.checks.table_taken
        self.lives: list[Life] = []
        self.epoch, self.fenced_at_s = 0, 0.0
        self.settled_since_s = 0.0
        self.bounds_changed_s = -1e9
        self.drains: set[str] = set()  # replicas that people asked to leave
        self.overrides = Overrides()  # as people last asked
        self.is_down = self.is_ending = False
        self.due_crashes: list[Fault] = []
        self._tasks, self._births = list[asyncio.Task[None]](), 0

    # What the checks ask

    @property
    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def phase(self) -> DesiredPhase | None:
        desired = self.store.fleet(FLEET)
        return desired.phase if desired is not None else None

    @property
    def life(self) -> Life | None:
        """The newest controller, if it lives."""
        return self.lives[-1] if self.lives and not self.lives[-1].is_over else None

    def records(self) -> tuple[Replica, ...]:
        """Return the records as the living controller has them."""
        life = self.life
        if life is not None and life.world is not None:
            return life.world.store.replicas()
        return self.store.replicas(FLEET)

    def record_of(self, node: Node) -> Replica | None:
        return next((r for r in self.records() if token_of(self.store.owner, r) == node.token), None)

    def is_unwell(self, node: Node) -> bool:
        return self.engines.is_unwell(node.host)

    def is_settled(self, seconds: float) -> bool:
        """Whether a controller has been at work for so long, and its store and gateway answered."""
        return self.life is not None and self.now_s - self.settled_since_s >= seconds

    def is_at_cap(self) -> bool:
        """Whether the caps leave no room for another node."""
        cost = sum(node.price_usd_per_hour or 0.0 for node in self.cloud.held())
        cap, more = self.caps.max_cost_usd_per_hour, self.setting.machines_max
        is_full = len(self.cloud.machine_ids()) + more > self.caps.max_nodes
        return is_full or (cap is not None and cost + 1.95 * more > cap)

    # The run

    async def report(self) -> RunReport:
        """Live through it all."""
        self.up()
        keeper = self.begin(self._keep_controller())
        self.begin(self._look())
        for fault in self.faults:
            if fault.kind in HAPPENINGS:
                self.begin(self._happen(fault))
        await self._wait(self.horizon_s)
        see_to_rollout(self)
        converged_s = down_s = 0.0
        if not self.checks.violations:
            converged_s = await self._converge()
        if not self.checks.violations:
            down_s = await self._go_down(keeper)
        virtual_s = self.now_s
        await self._end()
        return RunReport(
            seed=self.seed,
            violations=tuple(self.checks.violations),
            digest=self._digest(),
            lives=len(self.lives),
            orders=self.checks.orders,
            stops=self.checks.stops,
            virtual_s=virtual_s,
            converged_s=converged_s,
            down_s=down_s,
        )

    def up(self, shift: int = 0) -> None:
        """Want the fleet; with a shift, other counts and settings than before."""
        counts = {lane: (max(1, on_demand + shift), spot) for lane, (on_demand, spot) in self.plans.items()}
        if shift > 0:
            counts["long"] = self.plans["long"]
        profile = torture_profile(
            {lane: sum(self.plans[lane]) + 1 + max(0, shift) for lane in LANES},
            capacity=self.caps,
            tick_s=self.tick_s,
            start_timeout_s=self.start_timeout_s,
            rollout=self.setting.rollout,
            is_shadow=self.is_shadow,
        )
        self.put_revision(profile, torture_plan(counts, machines=self.setting.machines, flags=self.flags))

    def put_revision(self, profile: Profile, plan: Plan) -> None:
        """Want a revision, as people do."""
        self.checks.wide.acts_again()
        self.bounds_changed_s, self.overrides = self.now_s, Overrides()
        self.revisions.append((profile, plan))
        self.store.put_fleet(profile, plan, now=self.clock.now())

    def begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Have something go on beside the run, until its end."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def _wait(self, until_s: float) -> None:
        while self.now_s < until_s and not self.checks.violations:
            await self.clock.sleep(min(_LOOK_S, until_s - self.now_s))

    async def _converge(self) -> float:
        """Wait until the fleet is what was asked for and nobody does anything any more."""
        began_s, still_since_s, seen = self.now_s, self.now_s, self._signature()
        within_s = (_WIDE_CONVERGED_WITHIN_S if self.setting.is_wide else _CONVERGED_WITHIN_S)[self.pace]
        while not self.checks.violations:
            await self.clock.sleep(2.0)
            if (now := self._signature()) != seen or any(self.checks.open_at_the_end()):
                still_since_s, seen = self.now_s, now
            if self.now_s - still_since_s >= _QUIET_S:
                return self.now_s - began_s
            if self.now_s - began_s > within_s:
                open_ = "; ".join(self.checks.open_at_the_end()) or "it goes on and on"
                self.checks.violated("convergence", f"not {within_s:g} s after the last fault: {open_}")
        return 0.0

    def _signature(self) -> object:
        states = frozenset((r.id, r.state) for r in self.store.replicas(FLEET))
        return states, self.checks.orders, self.checks.stops

    async def _go_down(self, keeper: asyncio.Task[None]) -> float:
        began_s, self.is_ending = self.now_s, True
        if self.phase() is not None:
            self.store.set_phase(FLEET, DesiredPhase.DOWN, now=self.clock.now())
        self.wake()
        while not keeper.done() and not self.checks.violations:
            await self.clock.sleep(2.0)
            if self.now_s - began_s > _DOWN_WITHIN_S[self.pace]:
                left = ", ".join(f"{r.id} {r.state}" for r in self.store.replicas(FLEET) if r.state.is_live)
                self.checks.violated("down", f"not over after {self.now_s - began_s:.0f} s: {left or 'nothing lives'}")
        down_s = self.now_s - began_s
        if not self.checks.violations:
            await self.clock.sleep(_LATE_EFFECTS_S)
            self.check_nothing_is_left()
        return down_s

    def check_nothing_is_left(self) -> None:
        """Look at the provider's own truth; what a tombstone names is looked for by `gc`."""
        self.checks.check_stops_journalled()
        buried = {stone.token for stone in self.store.tombstones(FLEET)}
        kinds = {s.shared.kind for s in self.store.tombstones(FLEET) if s.shared is not None}
        if self.phase() is DesiredPhase.DOWN and (left := set(self.cloud.shared.there()) - kinds):
            self.checks.violated("leak", f"what nodes share outlives their fleet: {', '.join(sorted(left))}")
        for node in self.cloud.held():
            # What appears behind the last listing is for `gc` to find, as only it looks again.
            is_new = node.token in self.cloud.not_ours and self.now_s - self.cloud.not_ours[node.token] < _LISTED_S
            if node.token not in buried and not is_new:
                self.checks.violated("leak", f"{node.id} of {node.replica_id} outlives its fleet")
        if self.phase() is DesiredPhase.DOWN and self.store.open_intents(FLEET):
            self.checks.violated("stuck-intent", "an intent outlives its fleet")
        if (
            live := [r.id for r in self.store.replicas(FLEET) if r.state.is_live]
        ) and self.phase() is DesiredPhase.DOWN:
            self.checks.violated("down", f"the controller went, and {', '.join(live)} live")

    async def _end(self) -> None:
        for life in self.lives:
            life.kill()
        tasks = [*self._tasks, *(life.task for life in self.lives if life.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.paths.routing_table.unlink(missing_ok=True)

    def _digest(self) -> str:
        lines = [f"{e.at} {e.action} {e.subject} {e.reason}" for e in self.store.journal(FLEET, limit=100_000)]
        nodes = [
            f"{life.node.id} {life.node.replica_id} {life.made_at} {life.ends_at}"
            for life in self.cloud.lives().values()
        ]
        text = "\n".join([*lines, *nodes, str(sorted(self.cloud.calls.items()))])
        self.store.close()
        return f"{random.Random(text).getrandbits(64):016x}"

    # Controllers

    async def _keep_controller(self) -> None:
        """Have a controller at work until one has ended well."""
        while not (self.is_ending and self.is_down):
            if self.is_down:  # until somebody wants it up again
                await self.clock.sleep(_LOOK_S)
                continue
            life = await self.born()
            await life.died.wait()
            self.settled_since_s = self.now_s + 1e6  # not before another is at work
            await self.clock.sleep(self.dice.uniform(*_REBORN_S))

    async def born(self) -> Life:
        """Start a controller process, which takes the fleet over as soon as the state can be written."""
        while self.injector.strikes(FaultKind.STORE_LOCKED) or self.injector.strikes(FaultKind.STORE_FULL):
            await self.clock.sleep(1.0)
        self._births += 1
        holder = LeaseHolder(pid=self._births, host="here", boot_id="boot", started_at=self.clock.now())
        after = table_epoch(self.paths.routing_table)
        lease = self.store.acquire_lease(FLEET, holder, now=self.clock.now(), after=after)
        life = Life(epoch=lease.epoch, died=asyncio.Event(), began_s=self.now_s)
        if self.due_crashes:
            self.arm(life, self.due_crashes.pop())
        access = FaultyAccess(self.store.under(lease), life, self.checks, self.injector, self.clock)
        gateway = LifeBorder(self.gateway, life)
        life.world = World(
            fleet=FLEET,
            paths=self.paths,
            store=WriteBehindStore(access, FLEET, self.clock),
            epoch=lease.epoch,
            provider=as_provider(LifeProvider(self.cloud, life, self.checks, self.clock)),
            engine_of=lambda _: self.engine,
            policy_of=lambda _: self.policy,
            engines=cast("TortureEngines", LifeBorder(self.engines, life)),
            gateway=cast("TortureGateway", gateway),
            gateway_host=cast("TortureGateway", gateway),
            clock=self.clock,
            pid=self._births,
            variable=lambda _name: "",
        )
        if self.lives and not self.lives[-1].is_over:
            self.lives[-1].is_fenced, self.fenced_at_s = True, self.now_s
        self.epoch = lease.epoch
        self.settled_since_s = self.now_s
        self.lives.append(life)
        life.controller = Controller(life.world)
        life.task = asyncio.ensure_future(life.controller.run())
        life.task.add_done_callback(partial(self._ended, life))
        return life

    def _ended(self, life: Life, task: asyncio.Task[None]) -> None:
        if life.is_over or task.cancelled():
            life.kill()
            return
        life.kill()
        error = task.exception()
        if error is None:
            self._forget()
        elif not isinstance(error, FencedError):
            self.checks.violated("ended", f"the controller broke: {error!r}")
        elif life.epoch >= self.epoch:
            self.checks.violated("ended", f"the controller with the newest lease was fenced: {error}")

    def _forget(self) -> None:
        """Forget the fleet that is down, as the last act of its controller; unless it is wanted up again meanwhile."""
        self.check_nothing_is_left()
        if self.phase() is DesiredPhase.DOWN:
            self.store.remove_fleet(FLEET)
            self.paths.routing_table.unlink(missing_ok=True)
            self.is_down = True

    def arm(self, life: Life, fault: Fault) -> None:
        life.steps_left = 1 + fault.draw % 40
        life.before_effect = bool(fault.draw // 40 % 2)

    def override(self, overrides: Overrides) -> None:
        """Have people ask for other replicas or steps."""
        self.checks.wide.acts_again()
        self.store.set_overrides(FLEET, overrides, now=self.clock.now())
        self.overrides, self.bounds_changed_s = overrides, self.now_s
        self.wake()

    def wake(self) -> None:
        if self.life is not None and self.life.controller is not None:
            self.life.controller.wake()

    async def _look(self) -> None:
        while True:
            await self.clock.sleep(_LOOK_S)
            is_troubled = self.injector.is_open(FaultKind.STORE_LOCKED) or self.injector.is_open(FaultKind.STORE_FULL)
            is_troubled |= self.injector.is_open(FaultKind.STORE_SLOW) or not self.gateway.answers
            if is_troubled:
                self.settled_since_s = self.now_s
            self.checks.look()

    # What happens

    async def _happen(self, fault: Fault) -> None:
        await self.clock.sleep(fault.at_s)
        with suppress(NotFoundError):
            await HAPPENINGS[fault.kind](self, fault)


def run_once(
    seed: int, faults: tuple[Fault, ...], *, horizon_s: float = HORIZON_S, policy: Policy = reconcile
) -> RunReport:
    """Return what a seed's world shows under these faults."""

    async def whole() -> RunReport:
        return await Run(seed, faults, horizon_s=horizon_s, policy=policy).report()

    return run_virtual(whole())
