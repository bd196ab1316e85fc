"""The loop: load, decide, apply. Events wake it before its next tick; an error in a tick is journalled and retried."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controller import api
from fleetctl.controller.components import Components
from fleetctl.controller.expiry import end_overrides
from fleetctl.controller.interruptions import ClockWatch, RestartError
from fleetctl.controller.lease import fenced_error, keep_lease
from fleetctl.controller.targets import note_targets
from fleetctl.core.hazard import Hazards
from fleetctl.core.orphaned import orphaned_cost
from fleetctl.core.reconcile.limits import since_s
from fleetctl.core.reconcile.provider import launches_blocked
from fleetctl.core.rollout.in_force import by_source, in_force
from fleetctl.core.slo_feed import slo_feed
from fleetctl.core.status import DECISIONS_SHOWN, FleetKnowledge, fleet_status
from fleetctl.errors import FencedError
from fleetctl.model.action import EntryKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import FLEET, GATEWAY

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.controller.world import World
    from fleetctl.model.decision import Decision
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.model.status import FleetStatus

_log = logging.getLogger("fleetctl.controller")
# Wakes come in bunches; this much is gathered into one tick.
_GATHER_S = 0.05
_FAILED_TICK_S_MAX = 30.0
# A gateway that does not come back for this long: better to refuse clients than to let them wait in the backlog.
_PORT_HELD_S = 30.0
_SETTLE_S = 2.0
# One failed tick may be a moment's bad luck; after so many in a row nobody looks after the fleet.
_FAILED_TICKS_DOUBTED = 3
# All that a tick waits for has deadlines of its own, together about 4 s; what it computes, a busy machine may draw out.
_PART_S_MAX = 15.0
_FIRST_LOOK_S = 1.0
_DEFAULT_TICK_S = 1.0


class Controller:
    """Keeps one fleet. `run` returns when the fleet is down, or forgotten."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._woken = asyncio.Event()
        self._known: FleetKnowledge | None = None
        self._requeue_at: datetime | None = None
        self._tick_s = _DEFAULT_TICK_S
        self._failed_ticks = 0
        self._failing_since: datetime | None = None
        self._part_begun_s: float | None = None  # of a tick; None: none is under way
        self._clock_watch = ClockWatch(world.clock)
        self.broadcast = api.Broadcast()

    @property
    def is_progressing(self) -> bool:
        """Whether the parts of a tick end; one that never does is a bug that only a new process mends."""
        begun_s = self._part_begun_s
        return begun_s is None or self._world.clock.monotonic_s() - begun_s < _PART_S_MAX

    def wake(self) -> None:
        """Decide soon instead of at the next tick."""
        self._woken.set()

    def status(self) -> FleetStatus | None:
        """Return what the last tick saw and decided; None before the first."""
        if self._known is None:
            return None
        return fleet_status(self._known, self._world.store.entries()[-DECISIONS_SHOWN:])

    async def run(self) -> None:
        """Keep the fleet until it is down. Cancelled, it leaves everything running.

        Raises FencedError as soon as another controller has taken the fleet over.
        """
        try:
            await self._world.store.open()
            async with asyncio.TaskGroup() as group:
                store = group.create_task(self._world.store.run())
                while not await self._keep(Components(self._world, group, self.wake)):
                    await self._begin_anew()
                store.cancel()
        except BaseExceptionGroup as failure:
            fenced = fenced_error(failure)
            if fenced is None:
                raise
            raise fenced from failure

    async def _keep(self, components: Components) -> bool:
        """Keep the fleet until it is down: True; False: all that was seen is to be looked at anew."""
        try:
            components.background.start("lease", lambda: keep_lease(self._world), wakes=False)
            await self._look_first(components)
            while not await self._tick_safely(components):
                await self._pause()
        except FencedError:
            components.background.cancel_all()
            raise
        except RestartError as why:
            _log.warning("%s: everything is looked at anew", why)
            return False
        else:
            return True
        finally:
            # What was begun at the provider is given a moment to be noted; else its intent stays open.
            await components.background.settle("create/", within_s=_SETTLE_S)
            await self._world.store.written_soon(_SETTLE_S)
            components.background.cancel_all()

    async def _begin_anew(self) -> None:
        """Return once the state is where it was; serving goes on meanwhile, and nobody decides."""
        store = self._world.store
        while not store.is_in_place:
            if self._known is not None:
                self._known = replace(self._known, lost_store=store.condition)
            self.broadcast.announce()
            await self._world.clock.sleep(self._tick_s)
            await store.refresh()
        if store.is_broken:
            await store.open()
        self._world = self._world.following(store.fleet())

    async def _look_first(self, components: Components) -> None:
        """Give the provider a moment to say what there is; a slow one is not waited for."""
        components.keep_looking()
        try:
            async with asyncio.timeout(_FIRST_LOOK_S):
                while not (components.listing.is_current and components.offerings.latest):
                    await self._woken.wait()
                    self._woken.clear()
        except TimeoutError:
            return

    async def _tick_safely(self, components: Components) -> bool:
        self._begin_part()
        try:
            is_over = await self._tick(components)
        except (FencedError, RestartError):
            raise
        except Exception as exc:  # noqa: BLE001  # a fleet must outlive a bug: journalled below, and tried again
            self._failed_ticks += 1
            components.journal.failed(FLEET, "tick", exc)
            self._note_failed(exc)
            return False
        finally:
            self._part_begun_s = None
        self._failed_ticks = 0
        self._failing_since = None
        return is_over

    def _begin_part(self) -> None:
        """Say that a tick goes on: of a large fleet it computes for longer than a process may that does not say so."""
        self._part_begun_s = self._world.clock.monotonic_s()
        self._world.made_progress()

    def _note_failed(self, exc: Exception) -> None:
        """Say so in the status: once several ticks have failed, what it shows is no longer so."""
        self._failing_since = self._failing_since or self._world.clock.now()
        if self._known is not None:
            since = self._failing_since if self._failed_ticks >= _FAILED_TICKS_DOUBTED else None
            self._known = replace(
                self._known, at=self._world.clock.now(), trouble=f"the last tick failed: {exc}", failing_since=since
            )
        self.broadcast.announce()

    async def _tick(self, components: Components) -> bool:
        """Load, decide, apply. Return whether the fleet is down and nothing is left to do."""
        loaded = await self._load(components)
        if loaded is None:
            return True
        desired, observation = loaded
        self._begin_part()
        decision = self._decide(components, desired, observation)
        self._begin_part()
        stood_on = components.applier.memory
        await self._apply(components, desired, observation, decision)
        self._begin_part()
        await components.shadow.compare(desired, observation, stood_on, decision)
        await self._world.store.refresh_journal()
        self.broadcast.announce()
        # What ended is on record before anybody forgets the fleet.
        return decision.is_down and await self._world.store.written_soon()

    async def _load(self, components: Components) -> tuple[Desired, Observation] | None:
        await self._world.store.refresh()
        self._check_ground(components)
        desired = self._world.store.fleet()
        if desired is None:
            return None
        if self._world.has_moved(desired):
            raise RestartError(f"the fleet goes on at {desired.profile.provider_choice}")
        desired = end_overrides(desired, self._world.store, components.journal, self._world.clock.now())
        desired = await components.revisions.attach(desired, components.applier.memory.rollout)
        self._tick_s = desired.profile.control.tick_s
        components.keep_looking()
        components.records.read()
        components.resolver.resolve(desired)
        components.records.note_nodes(components.observer.node, sold_of=components.offerings.sold_of)
        components.probes.begin(components.records.all)
        components.start_watch.begin(components.records.all)
        self._begin_part()
        refused = components.launcher.take_refused()
        components.observer.gateways_wanted = desired.profile.gateway.processes
        observation = await components.observer.observe(components.records.all, refused=refused)
        self._begin_part()
        components.probes.suspect({r.record.id: r.silent_s for r in observation.replicas})
        components.canaries.begin(in_force(desired, components.applier.memory.rollout), observation)
        condition = self._world.store.condition
        budgets = components.budgets.count(in_force(desired, components.applier.memory.rollout), observation)
        shared = components.shared.observed()
        return desired, replace(observation, shared=shared, store_condition=condition, budgets=budgets)

    def _check_ground(self, components: Components) -> None:
        """Raise RestartError where the state has gone, a write of ours was refused, or the clock was set."""
        step = self._clock_watch.step()
        if not self._world.store.is_in_place:
            raise RestartError("the state directory was deleted or moved; nothing is decided until it is back")
        if self._world.store.is_broken:
            raise RestartError("a write to the state was refused")
        if step is not None:
            self._world.store.shift_clock(step)
            # What is still settled before all begins anew goes on from these records, not from those before the step.
            components.records.read()
            raise RestartError(f"the clock was set by {step.total_seconds():+.0f} s")

    def _decide(self, components: Components, desired: Desired, observation: Observation) -> Decision:
        policy = self._world.policy_of(desired.profile.control.policy)
        return policy(desired, observation, components.applier.memory, observation.at)

    async def _apply(
        self, components: Components, desired: Desired, observation: Observation, decision: Decision
    ) -> None:
        components.interruption_log.note(observation, components.applier.memory, decision.memory)
        records = components.records.all
        await components.cost_log.note(desired, observation, records, is_last=decision.is_down)
        launches = components.applier.apply(desired, observation, decision)
        note_targets(self._world, desired, decision.memory, components.records.all)
        self._begin_part()
        # Whoever leaves rotation leaves it first; only then is a replacement written down.
        await components.publisher.publish(
            desired, components.records.all, decision.memory, gateway=observation.gateway
        )
        self._begin_part()
        components.launcher.block(launches_blocked(observation, observation.at))
        components.launcher.hazards = Hazards(now=observation.at, records=decision.memory.offerings)
        components.launcher.orphaned = orphaned_cost(observation.orphaned_nodes, desired.plan)
        components.launcher.caps = desired.profile.capacity
        for source, actions in by_source(desired, decision.memory.rollout, launches):
            await components.launcher.launch_all(source, actions, on_part=self._begin_part)
        await components.publisher.send_signals(observation)
        self._hold_port(components, observation, decision)
        self._world.gateway_host.watch(self.wake)
        self._requeue_at = decision.requeue_at
        self._known = FleetKnowledge(
            at=observation.at,
            desired=desired,
            records=components.records.all,
            memory=decision.memory,
            observation=observation,
            decision=decision,
            controller_pid=self._world.pid,
            controller_place=self._world.place,
            shared_left=components.shared.left,
            budgets=observation.budgets,
        )
        await components.publisher.send_slo(slo_feed(self._known), gateway=observation.gateway)

    def _hold_port(self, components: Components, observation: Observation, decision: Decision) -> None:
        silent_s = since_s(decision.memory.gateway_missing_since, observation.at)
        if observation.is_any_gateway_alive or not (decision.is_down or silent_s > _PORT_HELD_S):
            return
        if self._world.gateway_host.release_port() and not decision.is_down:
            reason = f"no gateway for {silent_s:.0f} s: the port is closed, so that clients are refused at once"
            components.journal.note(EntryKind.GATEWAY, GATEWAY, "release-port", ReasonCode.GATEWAY_SILENT, reason)

    async def _pause(self) -> None:
        """Wait for the next tick, or for a wake; longer after failures."""
        pause_s = self._tick_s
        if self._failed_ticks:
            pause_s = min(_FAILED_TICK_S_MAX, self._tick_s * 2.0 ** min(self._failed_ticks, 10))
        if self._requeue_at is not None and not self._failed_ticks:
            pause_s = min(pause_s, max(0.0, (self._requeue_at - self._world.clock.now()).total_seconds()))
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            return
        finally:
            self._woken.clear()
        await self._world.clock.sleep(_GATHER_S)
