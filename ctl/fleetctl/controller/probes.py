"""Asks replicas how they are: /health and /metrics, each at its own pace, and keeps the answers."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.engine_load import with_rates
from fleetctl.engine_kit.versions import version_on
from fleetctl.errors import UnavailableError
from fleetctl.model.observation import EngineSignals
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.world import World

_BOOTING_S = 0.5  # a start is waited for by people
# Of a large fleet's start no more than this: 200 engines that load want the processor for themselves.
_BOOTING_PROBES_PER_S_MAX = 100.0
_READY_S = 5.0
_FAILING_S = 1.0  # once it failed: know soon whether it stays so
_METRICS_S = 5.0
_SUSPECT_S = 1.0  # /health and /metrics of a replica of which the gateway hears nothing
SUSPECT_AFTER_S = 1.5
_STALE_S = 15.0
# Of each kind. Answered, a probe takes its loop some 0.5 ms, so that a hundred are over long before the deadline that they have; of a
# thousand at once, after a moment in which the loop or the machine was busy, most would be found unhealthy by us alone.
_AT_ONCE = 100
_VERSION_FAILURES_MAX = 3  # an engine that is healthy answers at once, or has no such route

_PROBED = (ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY, ReplicaState.DRAINING)
_SCRAPED = (ReplicaState.READY, ReplicaState.DRAINING)


@dataclass(slots=True)
class _ProbeState:
    healthy: bool | None = None
    version: str | None = None
    version_failures: int = 0
    health_due_s: float = 0.0
    metrics_due_s: float = 0.0
    metrics_at_s: float = 0.0
    is_suspect: bool = False
    signals: EngineSignals = field(default_factory=EngineSignals)


class Probes:
    """Holds every live replica's last answers; `begin` starts what is due and never waits."""

    def __init__(self, world: World, background: BackgroundTasks, on_change: Callable[[], None]) -> None:
        self._world = world
        self._background = background
        self._on_change = on_change
        self._probe_states: dict[str, _ProbeState] = {}
        self._booting_s = _BOOTING_S
        # They take turns in the order in which they came due: the deadline of each begins with its turn.
        self._health_turns, self._metrics_turns = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_AT_ONCE)

    def begin(self, records: Iterable[Replica]) -> None:
        """Start the probes that are due; forget replicas that are no longer probed."""
        probed = {r.id: r for r in records if r.state in _PROBED and r.has_address}
        self._probe_states = {
            rid: self._probe_states.get(rid) or self._new(number) for number, rid in enumerate(probed)
        }
        booting = sum(record.is_cold for record in probed.values())
        self._booting_s = max(_BOOTING_S, booting / _BOOTING_PROBES_PER_S_MAX)
        now_s = self._world.clock.monotonic_s()
        for record in probed.values():
            probe = self._probe_states[record.id]
            if now_s >= probe.health_due_s:
                self._start(f"health/{record.id}", record, self._probe_health)
            if record.state in _SCRAPED and now_s >= probe.metrics_due_s:
                self._start(f"metrics/{record.id}", record, self._scrape_metrics)

    def suspect(self, silent_s: Mapping[str, float]) -> None:
        """Look closely at replicas of which the gateway has heard nothing for a while, as long as that lasts."""
        now_s = self._world.clock.monotonic_s()
        for replica_id, probe in self._probe_states.items():
            probe.is_suspect = silent_s.get(replica_id, 0.0) >= SUSPECT_AFTER_S
            if probe.is_suspect:
                probe.health_due_s = min(probe.health_due_s, now_s + _SUSPECT_S)
                probe.metrics_due_s = min(probe.metrics_due_s, now_s + _SUSPECT_S)

    @property
    def late_s(self) -> float:
        """How long the answer on the health of the replica that has waited longest has been due."""
        due_s = min((probe.health_due_s for probe in self._probe_states.values()), default=math.inf)
        return max(0.0, self._world.clock.monotonic_s() - due_s)

    def healthy(self, replica_id: str) -> bool | None:
        """Return the last answer of /health; None: not asked yet."""
        probe = self._probe_states.get(replica_id)
        return probe.healthy if probe else None

    def version(self, replica_id: str) -> str | None:
        """Return what its engine says it is; empty: it does not say; None: it has not been asked since it starts."""
        probe = self._probe_states.get(replica_id)
        return probe.version if probe else None

    def signals(self, replica_id: str) -> EngineSignals:
        """Return the last figures; STALE when they have not come for a while."""
        probe = self._probe_states.get(replica_id)
        if probe is None:
            return EngineSignals()
        age_s = self._world.clock.monotonic_s() - probe.metrics_at_s
        if probe.signals.validity is Validity.OK and age_s > _STALE_S:
            return msgspec.structs.replace(probe.signals, validity=Validity.STALE)
        return probe.signals

    def forget(self, replica_id: str) -> None:
        """Ask a replica anew: what it said belongs to an earlier life."""
        self._probe_states.pop(replica_id, None)

    def _new(self, number: int) -> _ProbeState:
        # Replicas that came together are scraped one after the other, not all in one tick.
        now_s = self._world.clock.monotonic_s()
        return _ProbeState(health_due_s=now_s, metrics_due_s=now_s + number % 5)

    def _start(
        self, key: str, record: Replica, probe_once: Callable[[Replica, _ProbeState], Coroutine[object, object, None]]
    ) -> None:
        probe = self._probe_states[record.id]
        self._background.start(key, lambda: probe_once(record, probe), wakes=False)

    async def _probe_health(self, record: Replica, probe: _ProbeState) -> None:
        async with self._health_turns:
            healthy = await self._is_healthy(record, probe)
        interval_s = self._booting_s if record.is_cold else (_READY_S if healthy else _FAILING_S)
        probe.health_due_s = self._world.clock.monotonic_s() + interval_s
        if healthy is not probe.healthy:
            probe.healthy = healthy
            self._on_change()

    async def _is_healthy(self, record: Replica, probe: _ProbeState) -> bool:
        path = self._world.engine_of(record.engine).health_path
        try:
            healthy = await self._world.engines.is_healthy(record.host, record.port, path)
            if healthy and record.ready_at is None and probe.version is None:
                healthy = await self._read_version(record, probe)
        except UnavailableError:
            return False
        return healthy

    async def _read_version(self, record: Replica, probe: _ProbeState) -> bool:
        """Ask a new engine which version it is; return whether it has answered, or will not."""
        source = self._world.engine_of(record.engine).version
        if source is None:
            probe.version = ""
            return True
        try:
            page = await self._world.engines.get(record.host, record.port, source.path)
        except UnavailableError:
            probe.version_failures += 1
            if probe.version_failures < _VERSION_FAILURES_MAX and record.engine_version:
                return False
            page = ""
        probe.version = version_on(page, source)
        return True

    async def _scrape_metrics(self, record: Replica, probe: _ProbeState) -> None:
        world = self._world
        engine = world.engine_of(record.engine)
        async with self._metrics_turns:
            probe.metrics_due_s = world.clock.monotonic_s() + (_SUSPECT_S if probe.is_suspect else _METRICS_S)
            try:
                page = await world.engines.get(record.host, record.port, engine.metrics_path)
            except UnavailableError:
                return  # the last figures age into STALE
        probe.signals = with_rates(probe.signals, msgspec.structs.replace(engine.signals(page), at=world.clock.now()))
        probe.metrics_at_s = world.clock.monotonic_s()
