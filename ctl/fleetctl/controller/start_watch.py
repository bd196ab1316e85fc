"""Looks at engines that start: one whose core has failed may wait for it for minutes, and would never be ready."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.controller.launch import token_of
from fleetctl.controller.weights_watch import WeightsWatch
from fleetctl.errors import ProviderError
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.world import World
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import BootProgress, NodeProcess
    from fleetctl.model.replica import Replica

_INTERVAL_S = 2.0
# An engine that notices by itself ends within seconds, and its end says more: its exit status, and all it wrote.
_BELIEVED_S = 5.0
_DEADLINE_S = 10.0
# A traceback of vLLM's worker, repeated by its engine core and by that one's parent, is 12 KB.
_TAIL_BYTES = 16 * 1024
_KEY = "start-watch"


class StartWatch:
    """Holds what keeps each replica that has never been ready from ever being so, as its engine's package reads it."""

    def __init__(
        self, world: World, background: BackgroundTasks, journal: Journal, on_change: Callable[[], None]
    ) -> None:
        self._world = world
        self._background = background
        self._journal = journal
        self._on_change = on_change
        self._weights = WeightsWatch(world)
        self._due_s = 0.0
        self._starting: frozenset[str] = frozenset()  # as of the last tick
        self._seen: dict[str, dict[str, NodeProcess]] = {}  # replica -> its processes so far, by their ids
        self._faults: dict[str, tuple[float, EngineFault]] = {}  # replica -> since when, the latest

    def begin(self, records: Iterable[Replica]) -> None:
        """Look at those that start, in the background and not too often; forget all others."""
        starting = {r.id: r for r in records if _is_starting(r)}
        self._starting = frozenset(starting)
        self._seen = {rid: seen for rid, seen in self._seen.items() if rid in starting}
        self._faults = {rid: fault for rid, fault in self._faults.items() if rid in starting}
        now_s = self._world.clock.monotonic_s()
        if starting and now_s >= self._due_s:
            self._due_s = now_s + _INTERVAL_S
            self._background.start(_KEY, lambda: self._look(tuple(starting.values())), wakes=False)

    def fault(self, replica_id: str) -> EngineFault | None:
        """Return why a replica will never be ready, once that has been so for a while; None: it may be."""
        since_s, fault = self._faults.get(replica_id, (0.0, None))
        is_believed = fault is not None and self._world.clock.monotonic_s() - since_s >= _BELIEVED_S
        return fault if is_believed else None

    def suspicion(self, replica_id: str) -> EngineFault | None:
        """Return what the latest look found, believed or not: enough to explain an end that has come."""
        return self._faults[replica_id][1] if replica_id in self._faults else None

    def progress(self, replica: Replica) -> BootProgress | None:
        """Return how far what a starting replica waits for has come; None: nothing is known, or it does not start."""
        return self._weights.progress(replica) if _is_starting(replica) else None

    async def _look(self, starting: tuple[Replica, ...]) -> None:
        await self._weights.look(starting)
        processes = await self._processes()
        for record in starting:
            if record.id not in self._starting:
                continue  # a look at hundreds takes a while, in which most have come up
            ended = self._ended(record, processes.get(token_of(self._world.store.owner, record)))
            text = await self._log_tail(record)
            fault = self._world.engine_of(record.engine).diagnose_start(text, ended)
            self._note(record.id, fault)

    def _note(self, replica_id: str, fault: EngineFault | None) -> None:
        if fault is None:
            self._faults.pop(replica_id, None)
            return
        now_s = self._world.clock.monotonic_s()
        since_s = self._faults[replica_id][0] if replica_id in self._faults else now_s
        self._faults[replica_id] = (since_s, fault)
        if now_s - since_s >= _BELIEVED_S:
            self._on_change()

    def _ended(self, record: Replica, now: tuple[NodeProcess, ...] | None) -> tuple[NodeProcess, ...]:
        """Return the replica's processes that have ended, those included that only earlier looks showed."""
        if now is None:
            return ()  # its node is gone, which is said elsewhere, or nobody can see into it
        seen = self._seen.setdefault(record.id, {})
        seen.update({process.id: process for process in now})
        running = {process.id for process in now if not process.exit_reason}
        return tuple(p for p in seen.values() if p.id not in running and not p.is_leader)

    async def _processes(self) -> Mapping[str, tuple[NodeProcess, ...]]:
        processes = self._world.provider.capabilities.processes
        if processes is None:
            return {}
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return await processes.processes(owner=self._world.store.owner, fleet=self._world.fleet)
        except (ProviderError, TimeoutError) as exc:
            self._journal.failed(FLEET, "list-processes", exc)
            return {}

    async def _log_tail(self, record: Replica) -> str:
        logs = self._world.provider.capabilities.logs
        if logs is None:
            return ""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                chunk = await logs.read_log(
                    owner=self._world.store.owner,
                    fleet=record.fleet,
                    replica_id=record.id,
                    after=None,
                    bytes_max=_TAIL_BYTES,
                )
        except (ProviderError, TimeoutError) as exc:
            self._journal.failed(Subject.replica(record.id), "read-log", exc)
            return ""
        return chunk.text


def _is_starting(record: Replica) -> bool:
    return record.state is ReplicaState.BOOTING and record.ready_at is None
