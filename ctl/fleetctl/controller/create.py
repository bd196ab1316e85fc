"""Carries out intents at the provider, in batches, and settles each by its own result."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.controller.keys import with_secrets
from fleetctl.core.transitions import create_refused, node_created
from fleetctl.engine_kit.containers import container_launch, local_command
from fleetctl.engine_kit.cpu_shares import cpu_share
from fleetctl.errors import AmbiguousOutcomeError, EngineMissingError, FleetctlError, ThrottledError, UnobtainableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.node import CreateResult
from fleetctl.model.remote_weights import remote_weights
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, Subject
from fleetctl.ports.store import IntentState, Settlement
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.node_cache import NodeCache
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.records import Records
    from fleetctl.controller.world import World
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.desired import Desired
    from fleetctl.model.node import Node
    from fleetctl.model.pinned_image import PinnedImage
    from fleetctl.model.replica import Replica
    from fleetctl.ports.provider import ListenAddress
    from fleetctl.ports.store import Intent

_KEY = "create/"


class Creator:
    """Sends orders to the provider, and keeps which are on their way and which may have reached it."""

    def __init__(  # what it works with, each named
        self,
        world: World,
        *,
        calls: ProviderCalls,
        cache: NodeCache,
        records: Records,
        background: BackgroundTasks,
        journal: Journal,
    ) -> None:
        self._world = world
        self._calls = calls
        self._cache = cache
        self._records = records
        self._background = background
        self._journal = journal
        self._started_at = world.clock.now()
        self._own: set[str] = set()  # tokens first sent by this process, if at all
        self._creating: set[str] = set()  # replica ids
        self._sent_at: dict[str, datetime] = {}
        self._addressing = asyncio.Lock()
        self._addresses: dict[str, ListenAddress] = {}  # token -> kept for it, until its replica's record has it
        self.on_unobtainable: Callable[[Desired, Intent, UnobtainableError], None] = _nowhere_else
        self.sold_of: Callable[[Replica, Node], Offering | None] = lambda _record, _node: None

    def is_creating(self, replica_id: str) -> bool:
        """Whether the provider has been asked for its node and has not answered."""
        return replica_id in self._creating

    def begin(self, desired: Desired, intents: Sequence[Intent]) -> None:
        """Order the nodes of new intents, in the background."""
        self._own.update(intent.token for intent in intents)
        self._start(desired, intents)

    def begin_again(self, desired: Desired, intent: Intent) -> None:
        """Order by the same token what was cut off before its answer, by this controller or an earlier one."""
        self._start(desired, [intent])

    def settled_by(self, intent: Intent) -> datetime | None:
        """Return when an order cut off has had its effect, if ever it has one; None: the provider never got it."""
        settles = timedelta(seconds=self._world.provider.pace.create_settles_s)
        sent_at = self._sent_at.get(intent.token)
        if sent_at is not None:
            return sent_at + settles
        # An earlier controller may have sent it right before it died; without a command it had not.
        return None if intent.token in self._own or not intent.request.argv else self._started_at + settles

    def created(self, made: Sequence[tuple[Intent, Node]]) -> None:
        """Close the intents whose nodes are there, in one transaction: each is a durable write, which waits for the disk."""
        for _, node in made:
            self._cache.put_node(node, at=self._world.clock.now())
        self._records.settle(tuple(self._settlement(intent, node) for intent, node in made))
        for intent, _ in made:
            self._forget(intent)

    def _settlement(self, intent: Intent, node: Node) -> Settlement:
        record = self._records.get(intent.replica_id)
        # Whoever ended meanwhile stays ended: its node belongs to no living replica, and is stopped as such.
        if record is not None and record.state.is_live and not record.node_id:
            record = node_created(record, node, reason="", now=self._world.clock.now(), sold=self.sold_of(record, node))
            price = f"{format_usd(record.price_usd_per_hour)}/h" if record.is_price_known else "an unknown price"
            if record.state is ReplicaState.BOOTING and not record.reason:
                record = replace(record, reason=f"node {node.id} on {record.offering} at {price}")
        return Settlement(token=intent.token, state=IntentState.DONE, replica=record)

    def close(self, intent: Intent, fault: str, *, is_final: bool, kind: EngineFaultKind | None = None) -> None:
        """Close an intent that brings no node; not final, the next decision counts a failed start."""
        record = self._records.get(intent.replica_id)
        if record is not None and record.state is ReplicaState.PENDING:
            record = create_refused(record, fault=fault, now=self._world.clock.now(), is_final=is_final)
            record = replace(record, fault_kind=kind)
        self._records.settle((Settlement(token=intent.token, state=IntentState.ABANDONED, replica=record),))
        self._forget(intent)

    def _forget(self, intent: Intent) -> None:
        self._own.discard(intent.token)
        self._sent_at.pop(intent.token, None)
        self._addresses.pop(intent.token, None)

    def _start(self, desired: Desired, intents: Sequence[Intent]) -> None:
        self._creating.update(intent.replica_id for intent in intents)
        if not self._background.start(_KEY + intents[0].replica_id, lambda: self._prepare(desired, tuple(intents))):
            # Its last attempt is over and not yet cleared away: the open intents are looked at again.
            self._creating.difference_update(intent.replica_id for intent in intents)

    async def _prepare(self, desired: Desired, intents: tuple[Intent, ...]) -> None:
        """Give the orders their engines' commands, and send them in batches."""
        ready: tuple[Intent, ...] = ()
        try:
            await self._world.store.committed()
            # One question at a time: until an address is noted, the provider would give it to another order too.
            async with self._addressing:
                ready = await self._addressed(desired, intents)
        finally:
            self._creating.difference_update({i.replica_id for i in intents} - {i.replica_id for i in ready})
        most = self._world.provider.capabilities.batch_max
        for first in range(0, len(ready), most):
            self._send(desired, ready[first : first + most])

    def _send(self, desired: Desired, batch: tuple[Intent, ...]) -> None:
        if not self._background.start(f"{_KEY}{batch[0].replica_id}/send", lambda: self._carry_out(desired, batch)):
            self._creating.difference_update(intent.replica_id for intent in batch)

    async def _carry_out(self, desired: Desired, batch: tuple[Intent, ...]) -> None:
        try:
            # No order is sent before its intent, with the command in it, is on the disk.
            await self._world.store.committed()
            left = batch if self._is_wanted() else ()
            while left:
                left = self._settle(desired, left, await self._results(left))
                # Throttled orders are sent again, unless the fleet is to end: then nothing was made for them.
                if not self._is_wanted():
                    return
        finally:
            self._creating.difference_update(intent.replica_id for intent in batch)

    async def _addressed(self, desired: Desired, batch: tuple[Intent, ...]) -> tuple[Intent, ...]:
        """Return the intents with their engines' commands, committed; those that cannot be started are closed."""
        new = [intent for intent in batch if not intent.request.argv]
        if not new:
            return batch
        taken = {r.port for r in self._records.all if r.state.is_live} | {a.port for a in self._addresses.values()}
        try:
            addresses = await self._listen_addresses(len(new), frozenset(taken))
        except AmbiguousOutcomeError as exc:  # it did not say in time; nothing was sent, and it is asked again
            self._journal.failed(FLEET, "listen-addresses", exc)
            return tuple(intent for intent in batch if intent.request.argv)
        except FleetctlError as exc:
            self._refuse(batch, exc)
            return ()
        made: dict[str, Intent] = {}
        for intent, address in zip(new, addresses, strict=True):
            try:
                made[intent.token] = self._commanded(desired, intent, address)
            except (FleetctlError, KeyError) as exc:
                fault = exc.message if isinstance(exc, FleetctlError) else f"lane {exc} is no longer in the plan"
                self.close(intent, fault, is_final=False)
        self._world.store.amend_intents(tuple(made.values()))
        return tuple(made.get(i.token, i) for i in batch if i.request.argv or i.token in made)

    async def _listen_addresses(self, count: int, taken: frozenset[int]) -> tuple[ListenAddress, ...]:
        while True:
            try:
                return await self._calls.listen_addresses(count, taken)
            except ThrottledError:
                if not self._is_wanted():
                    raise

    def _commanded(self, desired: Desired, intent: Intent, address: ListenAddress) -> Intent:
        lane = intent.request.lane
        lane_plan = desired.plan.lane(lane)
        engine = self._world.engine_of(lane_plan.engine)
        command = engine.launch(
            plan=desired.plan,
            lane=desired.profile.lane(lane),
            lane_plan=lane_plan,
            host=address.host,
            port=address.port,
        )
        command = local_command(command, model=lane_plan.launch.model)
        self._addresses[intent.token] = address
        request = replace(
            intent.request,
            argv=command.argv,
            member_argv=command.member_argv,
            env=command.env,
            host=address.host,
            port=address.port,
            gpu_count=lane_plan.gpus_each_node if command.uses_gpus else 0,
            gpu_memory_fraction=lane_plan.launch.gpu_memory_utilization if command.uses_gpus else 0.0,
            cpu=cpu_share(self._world.engine_of, desired.plan, lane_plan, desired.profile.control.rollout),
            container=container_launch(engine, command, desired.profile.lane(lane), lane_plan.launch),
            image=_id_of(lane_plan.launch.image),
            machine_image=_id_of(lane_plan.launch.machine_image),
            weights=remote_weights(lane_plan.launch.model),
            health_path=engine.health_path,
            start_timeout_s=desired.profile.control.start_timeout_s,
            engine_drain_s=lane_plan.launch.shutdown_timeout_s,
            lane_rank=[each.name for each in desired.profile.lanes].index(lane),
            is_interruptible=desired.profile.lane(lane).interruptible,
        )
        return replace(intent, request=request)

    async def _results(self, batch: tuple[Intent, ...]) -> tuple[CreateResult, ...]:
        """Return a result for each; an error of the whole call is everyone's."""
        before = {intent.token: self._sent_at.get(intent.token) for intent in batch}
        try:
            self._sent_at.update(dict.fromkeys(before, self._world.clock.now()))
            resolve = partial(with_secrets, variable=self._world.variable)
            results = await self._calls.create(tuple(intent.request for intent in batch), resolve)
        except FleetctlError as exc:
            results = tuple(CreateResult(token=intent.token, error=exc) for intent in batch)
        for result in results:
            if not isinstance(result.error, ThrottledError):
                self._sent_at[result.token] = self._world.clock.now()
            elif (sent_at := before[result.token]) is not None:
                self._sent_at[result.token] = sent_at  # it was not let in: what counts is an earlier attempt
            else:
                self._sent_at.pop(result.token, None)
        return results

    def _settle(
        self, desired: Desired, batch: tuple[Intent, ...], results: tuple[CreateResult, ...]
    ) -> tuple[Intent, ...]:
        """Settle what was answered; return what was throttled."""
        by_token = {result.token: result for result in results}
        self.created([(intent, node) for intent in batch if (node := by_token[intent.token].node) is not None])
        for intent in batch:
            error = by_token[intent.token].error
            if error is not None and not isinstance(error, ThrottledError):
                self._failed(desired, intent, error)
        return tuple(intent for intent in batch if isinstance(by_token[intent.token].error, ThrottledError))

    def _failed(self, desired: Desired, intent: Intent, error: FleetctlError) -> None:
        self._journal.failed(Subject.replica(intent.replica_id), "create", error)
        if isinstance(error, AmbiguousOutcomeError):
            return  # it may have happened: the intent stays open, and is looked up by its token
        kind = EngineFaultKind.PROGRAM if isinstance(error, EngineMissingError) else None
        self.close(intent, error.message, is_final=isinstance(error, UnobtainableError), kind=kind)
        if isinstance(error, UnobtainableError):
            self.on_unobtainable(desired, intent, error)

    def _refuse(self, batch: tuple[Intent, ...], error: FleetctlError) -> None:
        for intent in batch:
            if not intent.request.argv:
                self._journal.failed(Subject.replica(intent.replica_id), "create", error)
                self.close(intent, error.message, is_final=False)

    def _is_wanted(self) -> bool:
        desired = self._world.store.fleet()
        return desired is not None and desired.phase is DesiredPhase.UP


def _nowhere_else(desired: Desired, intent: Intent, why: UnobtainableError) -> None:
    """Leave it to the next decision."""


def _id_of(image: PinnedImage | None) -> str:
    return image.id if image is not None else ""
