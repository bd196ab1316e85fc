"""The caps on nodes and money hold, whatever people, rollouts, crashes and the controller ask for, in whatever order."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.controller.loop import Controller
from fleetctl.core.orphaned import OrphanedCost
from fleetctl.core.pending import pending_replica
from fleetctl.core.placement import next_offering
from fleetctl.core.rollout.in_force import lower_caps
from fleetctl.core.transitions import node_created
from fleetctl.errors import CapacityError, FleetctlError, ProviderError
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.decision import LaunchReplica
from fleetctl.model.node import Node, NodeState
from fleetctl.model.profile import CapacitySpec, ControlSpec, ReplicaBounds, RolloutSpec, SpotPolicy
from fleetctl.model.reason import ReasonCode
from fleetctl.operations import drains, freezing, interrupting, lifecycle, overrides, replicas, rollouts
from fleetctl.operations.interrupting import NodeSelection
from fleetctl.operations.site import Site
from fleetctl.operations.stored_status import stored_status
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.host import FakeHost
from fleetctl.testing.provider import FakeProvider, Fault
from fleetctl.testing.virtual_time import VirtualTimeLoop
from tests.controller.rig import FLEET, Rig, behind
from tests.reconcile.worlds import traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from fleetctl.model.node import NodeRequest
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.provider import ProviderCapabilities

LANES = ("short", "long")
SEEDS, ACTS = range(int(os.environ.get("CAPS_SEEDS", "8"))), 40
# An order may be under way while somebody lowers a cap.
UNDER_WAY_S = 4.0
# So long a node that no record knows may be in no listing that was read.
SEEN_S = 10.0


class CommandClock(LoopClock):
    """A loop's clock that commands read too, while the loop stands still."""

    def __init__(self, start: datetime, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(start)
        self._loop = loop

    def monotonic_s(self) -> float:
        return self._loop.time()

    def sleep_blocking(self, seconds: float) -> None:
        raise AssertionError(f"no command waits here, and one did for {seconds:g} s")


def sold() -> tuple[Offering, ...]:
    """Return one node type in three zones under both markets, each at a price of its own."""
    prices = {"zone-a": 1.861, "zone-b": 2.4, "zone-c": 3.1}
    return tuple(
        samples.offering(market=market, zone=zone, price_usd_per_hour=price * (0.4 if market is Market.SPOT else 1.0))
        for zone, price in prices.items()
        for market in Market
    )


class CapWatchingProvider(FakeProvider):
    """Takes whichever of an order's offerings it likes, and looks at the caps with each node it makes."""

    def __init__(self, clock: LoopClock, dice: random.Random) -> None:
        super().__init__(clock, sold=sold(), boot_s=1.0, stop_s=3.0)
        self.capabilities: ProviderCapabilities = replace(self.capabilities, alternatives_max=2)
        self.caps: list[tuple[float, CapacitySpec]] = []  # since when, as people last asked
        self.crossed: list[str] = []
        self.lost_at_s: dict[str, float] = {}  # nodes that no record knows, since when
        self.made = 0
        self._dice = dice
        self._prices = {each.key: each.price_usd_per_hour for each in self._sold}

    def usd_per_hour(self) -> float:
        return sum(self._prices[node.offering] for node in self._known_to_all())

    def _known_to_all(self) -> list[Node]:
        """Return what lives, but for what nobody can have seen yet."""
        now_s = self._wall.monotonic_s()
        return [node for node in self.living() if now_s - self.lost_at_s.get(node.token, -1e9) > SEEN_S]

    def _create(self, request: NodeRequest) -> Node:
        had = [key for key in (request.offering, *request.alternatives) if self.stock.get(key, 1) > 0]
        if not had:
            raise CapacityError(f"no stock of {request.offering}", hint="try elsewhere")
        is_new = request.token not in self._lives
        node = super()._create(replace(request, offering=self._dice.choice(had)))
        if is_new:
            self.made += 1
            self._look(node)
        return node

    def _look(self, node: Node) -> None:
        now_s = self._wall.monotonic_s()
        lately = [cap for since_s, cap in self.caps if since_s >= now_s - UNDER_WAY_S]
        lately += [cap for since_s, cap in self.caps if since_s < now_s - UNDER_WAY_S][-1:]
        count, cost = len(self._known_to_all()), self.usd_per_hour()
        if count > max(cap.max_nodes for cap in lately):
            names = ", ".join(f"{each.id[:9]} {each.replica_id} {each.state}" for each in self._known_to_all())
            self.crossed.append(
                f"{now_s:.1f}: {count} nodes with {node.replica_id}, caps {[c.max_nodes for c in lately]}: {names}"
            )
        if cost > max(cap.max_cost_usd_per_hour or 1e9 for cap in lately) + 1e-6:
            limits = [c.max_cost_usd_per_hour for c in lately]
            self.crossed.append(f"${cost:.3f} an hour with {node.replica_id} on {node.offering}, caps {limits}")


class Life:
    """A fleet, and everybody who may change how many nodes it has."""

    def __init__(self, home: Path, seed: int, runner: asyncio.Runner) -> None:
        self.dice = random.Random(seed)
        self.runner = runner
        self.rig = Rig(home)
        clock = CommandClock(samples.EPOCH, runner.get_loop())
        self.provider = CapWatchingProvider(clock, self.dice)
        rig = self.rig
        rig.clock, rig.provider = clock, self.provider
        rig.store._clock = clock
        rig.store._owner = rig.engines.owner = f"owner-{seed}"
        rig.engines.provider, rig.engines.clock, rig.gateway.clock = self.provider, clock, clock
        rig.world = replace(rig.world, provider=self.provider, clock=clock, store=behind(rig.store, clock))
        host = FakeHost(clock=clock)
        self.site = Site(
            store=rig.store, host=host, providers=lambda _: self.provider, engines=lambda _: FakeEngine(), clock=clock
        )
        host.controllers[FLEET] = self._status
        self.task: asyncio.Task[None] | None = None
        self.flags = 0
        self.happened: list[str] = []

    def _status(self) -> FleetStatus:
        desired = self.rig.store.fleet(FLEET)
        assert desired is not None
        return stored_status(self.site, desired)

    # What may happen

    def up(self) -> None:
        """Bring it up, or up otherwise: other flags, counts and caps."""
        self.flags += self.dice.random() < 0.6
        profile, plan = self.wanted()
        with suppress(FleetctlError):
            lifecycle.up(self.site, profile, plan, findings=(), override_freeze=True)
        self.note_caps()

    def wanted(self) -> tuple[Profile, Plan]:
        counts = {lane: (self.dice.randint(1, 2), self.dice.randint(0, 2)) for lane in LANES}
        lanes = tuple(samples.lane_plan(lane, on_demand=a, spot=b) for lane, (a, b) in counts.items())
        lanes = tuple(replace(p, launch=replace(p.launch, extra_args=(f"--new{self.flags}",))) for p in lanes)
        cost = sum(lane.cost_usd_per_hour for lane in lanes)
        plan = replace(samples.plan(FLEET), lanes=lanes, cost_usd_per_hour=cost)
        base = samples.profile(FLEET, control=ControlSpec(tick_s=1.0, rollout=RolloutSpec(bake_s=6.0)))
        specs = tuple(replace(spec, replicas=ReplicaBounds(min=0, max=6), spot=SpotPolicy.BURST) for spec in base.lanes)
        capacity = CapacitySpec(
            max_nodes=plan.nodes + self.dice.randint(0, 3),
            max_cost_usd_per_hour=self.dice.choice((None, cost, cost + 1.0, cost + 3.0)),
        )
        return replace(base, lanes=specs, capacity=capacity), plan

    def scale(self) -> None:
        lane, count = self.dice.choice(LANES), self.dice.choice((None, 0, 1, 2, 3, 4, 5, 6))
        overrides.scale(self.site, FLEET, lane, count, override_freeze=True)

    def drain(self) -> None:
        if live := self.live():
            replicas.drain(self.site, FLEET, self.dice.choice(live), override_freeze=True, force=True)

    def drain_zone(self) -> None:
        zone = self.dice.choice(("zone-a", "zone-b", "zone-c"))
        drains.drain_zone(
            self.site, FLEET, zone, is_immediate=self.dice.random() < 0.5, override_freeze=True, force=True
        )

    def undrain(self) -> None:
        desired = self.rig.store.fleet(FLEET)
        targets = [*(desired.overrides.cordons if desired else ()), *self.live()]
        if targets:
            drains.undrain(self.site, FLEET, self.dice.choice(targets))

    def interrupt(self) -> None:
        zone = self.dice.choice(("zone-a", "zone-b", "zone-c"))
        notice_s = self.dice.choice((0.0, 5.0, 120.0))
        interrupting.interrupt_all(
            self.site, FLEET, NodeSelection(zone=zone), notice_s=notice_s, override_freeze=True, force=True
        )

    def hold(self) -> None:
        self.dice.choice((
            lambda: rollouts.pause(self.site, FLEET),
            lambda: rollouts.resume(self.site, FLEET),
            lambda: rollouts.undo(self.site, FLEET, override_freeze=True),
            lambda: freezing.freeze(self.site, FLEET, reason="launch"),
            lambda: freezing.thaw(self.site, FLEET),
        ))()  # fmt: skip
        self.note_caps()

    def load(self) -> None:
        rps = {lane: self.dice.choice((0.2, 2.0, 12.0, 40.0)) for lane in LANES}
        self.rig.gateway.lanes = tuple(traffic(lane, rps=each, ttft_s=0.2) for lane, each in rps.items())

    def die(self) -> None:
        if tokens := self.provider.live_tokens:
            self.provider.end(self.dice.choice(tokens))

    def sicken(self) -> None:
        ports = [node.port for node in self.provider.living()]
        engines = self.rig.engines
        if engines.cold or not ports:
            engines.cold, engines.unhealthy = set(), set()
        elif self.dice.random() < 0.5:
            engines.cold = set(range(20_000, 20_100)) - set(ports)  # whatever is started from now on
        else:
            engines.unhealthy = {self.dice.choice(ports)}

    def fail_calls(self) -> None:
        self.dice.choice((
            lambda: self.provider.script_lost_answer("create"),
            lambda: self.provider.script("create", Fault(error=ProviderError("refused"))),
            lambda: self.provider.script("stop", Fault(error=ProviderError("refused"))),
            lambda: self.provider.script("list_nodes", Fault(error=ProviderError("refused"))),
        ))()  # fmt: skip

    def sell_out(self) -> None:
        key = self.dice.choice([each.key for each in sold()])
        if self.provider.stock.pop(key, None) is None:
            self.provider.stock[key] = 0

    def lose_record(self) -> None:
        """Have a node that no record knows: what a restored copy of the state leaves behind."""
        if live := self.provider.living():
            life = self.provider._lives[self.dice.choice(live).token]
            token = f"lost-{len(self.provider.lost_at_s)}"
            lost = replace(life.node, token=token, id=f"fake-{token}", replica_id="r999")
            self.provider._lives[token] = replace(life, node=lost)
            self.provider.lost_at_s[token] = self.rig.clock.monotonic_s()

    def crash(self) -> None:
        self.runner.run(self._restart())

    def down_and_up(self) -> None:
        lifecycle.down(self.site, FLEET, override_freeze=True)
        self.runner.run(self.rig.clock.sleep(self.dice.choice((0.5, 3.0))))
        self.up()

    # How it goes

    def live(self) -> list[str]:
        return [r.id for r in self.rig.store.replicas(FLEET) if r.state.is_live]

    def note_caps(self) -> None:
        desired = self.rig.store.fleet(FLEET)
        assert desired is not None
        self.provider.caps.append((self.rig.clock.monotonic_s(), desired.profile.capacity))

    async def _restart(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        await self.rig.clock.sleep(self.dice.choice((0.0, 2.0)))
        self.rig.world = replace(self.rig.world, store=behind(self.rig.store, self.rig.clock))
        self.task = asyncio.ensure_future(Controller(self.rig.world).run())

    def act(self) -> None:
        acts: list[Callable[[], None]] = [
            self.up, self.scale, self.scale, self.drain, self.drain_zone, self.undrain, self.interrupt, self.hold,
            self.load, self.load, self.die, self.sicken, self.fail_calls, self.sell_out, self.crash, self.down_and_up,
            self.lose_record,
        ]  # fmt: skip
        act = self.dice.choice(acts)
        self.happened.append(f"{self.rig.clock.monotonic_s():.1f} {act.__name__}")
        with suppress(FleetctlError):
            act()
        self.runner.run(self.rig.clock.sleep(self.dice.choice((0.3, 2.0, 8.0, 30.0))))
        self.note_caps()
        if self.task is None or self.task.done():
            self.crash()

    def live_on(self) -> None:
        self.up()
        self.crash()
        for _ in range(ACTS):
            self.act()
            assert not self.provider.crossed, "\n".join([*self.provider.crossed, *self.happened[-8:]])

    def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            self.runner.run(_over(self.task))
        self.rig.store.close()


async def _over(task: asyncio.Task[None]) -> None:
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_node_is_made_beyond_a_cap_whoever_orders_it(tmp_path: Path, seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        life = Life(tmp_path, seed, runner)
        try:
            life.live_on()
        finally:
            life.end()
    assert life.provider.made > 3


@pytest.mark.parametrize(
    ("stable", "failed", "nodes", "usd"),
    [
        ((4, 8.0), (9, None), 4, 8.0),
        ((9, None), (4, 8.0), 4, 8.0),
        ((4, 8.0), (3, 9.0), 3, 8.0),
        ((2, None),) * 2 + (2, None),
    ],
)
def test_a_rollback_by_itself_raises_no_cap(stable, failed, nodes, usd):
    one, other = (CapacitySpec(max_nodes=n, max_cost_usd_per_hour=cap) for n, cap in (stable, failed))
    found = lower_caps(replace(one, zones=("zone-a",)), other)
    assert (found.max_nodes, found.max_cost_usd_per_hour, found.zones) == (nodes, usd, ("zone-a",))


def test_an_orphaned_node_takes_its_room_from_a_retry_elsewhere_too():
    plan, capacity = samples.lane_plan("short"), CapacitySpec(max_nodes=2, max_cost_usd_per_hour=4.0)
    head = OrphanedCost(head_usd_per_hour=2.5)
    for orphaned in (OrphanedCost(machines=2), OrphanedCost(machines=1, usd_per_hour=2.5), head):
        placed = next_offering(plan, (), Market.ON_DEMAND, sold(), capacity=capacity, orphaned=orphaned)
        assert placed.offering is None


def test_an_order_counts_as_the_dearest_of_the_offerings_it_may_be_filled_from():
    cheap, dear = (samples.offering(zone=zone, price_usd_per_hour=usd) for zone, usd in (("a", 1.0), ("b", 3.0)))
    action = LaunchReplica(lane="short", market=Market.ON_DEMAND, code=ReasonCode.REPLICA_LACKING, reason="")
    desired = SqliteStore(None).put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    record = pending_replica("r1", desired, action, (cheap, dear), continues_streams=False, now=samples.EPOCH)
    assert (record.offering, record.price_usd_per_hour, record.is_price_known) == (cheap.key, 3.0, False)
    node = Node(
        id="n1", token="t" * 3, owner="o", fleet="demo", replica_id="r1", state=NodeState.STARTING,
        market=Market.ON_DEMAND, host="h", port=1, created_at=samples.EPOCH, offering=cheap.key,
    )  # fmt: skip
    seen = node_created(record, node, reason="", now=samples.EPOCH, sold=cheap)
    assert (seen.price_usd_per_hour, seen.is_price_known) == (1.0, True)
