"""What one decision sees of a simulated fleet."""

from __future__ import annotations

import math
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.boot_times import boot_times_s
from fleetctl.core.engine_load import with_rates
from fleetctl.model.gateway import GatewaySnapshot, ReplicaSignals, ReplicaSnapshot, SignalFeed
from fleetctl.model.node import NodeState
from fleetctl.model.observation import NOT_READ, EngineSignals, Observation, ObservedReplica
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.model.replica import Replica
    from fleetctl.sim.nodes import SimulatedNode
    from fleetctl.sim.provider import SimulatedProvider

_PROBED = frozenset((ReplicaState.BOOTING, ReplicaState.WARMING, ReplicaState.READY, ReplicaState.DRAINING))
_RUNNING, _READY = NodeState.RUNNING, ReplicaState.READY  # an enum's members are slow to look up
# What is seen of a replica that the gateway does not have.
_NOT_SEEN = ReplicaSnapshot(id="", in_flight=0, failures=0, consecutive_failures=0)
# Of ended replicas, how many boot times are remembered.
_ENDED_KEPT = 32


class SimulatedObserver:
    """Reads engines, gateway and provider as the controller's probes do."""

    def __init__(self, dispatcher: Dispatcher, provider: SimulatedProvider, *, fleet: str, epoch: datetime) -> None:
        self.reads_engines = True
        self.reads_gateway = True
        self.excluded: set[str] = set()  # replicas that the gateway sends nothing new
        self.creating: set[str] = set()  # replicas whose order has not been answered
        self.table_version = 0
        self._dispatcher = dispatcher
        self._provider = provider
        self._fleet = fleet
        self._epoch = epoch
        self._ended: deque[Replica] = deque(maxlen=_ENDED_KEPT)
        self._boot_s: dict[str, float] | None = None
        self._signals: dict[str, EngineSignals] = {}
        self._scraped_s = -math.inf
        self._failures_before: dict[str, int] = {}
        self._snapshot: GatewaySnapshot | None = None

    def at(self, now_s: float) -> datetime:
        """Return the wall time at a virtual one."""
        return self._epoch + timedelta(seconds=now_s)

    def admitted(self, replica_id: str) -> None:
        """Count a replica's failures afresh; it has told how long it takes to boot."""
        self._failures_before.pop(replica_id, None)
        self._boot_s = None

    def ended(self, record: Replica) -> None:
        """Forget a replica, but for how long it took to boot."""
        self._ended.append(record)
        self._boot_s = None
        self._failures_before.pop(record.id, None)
        self._signals.pop(record.id, None)
        self.excluded.discard(record.id)

    def observe(self, records: Iterable[Replica], now_s: float, *, refused: dict[str, str]) -> Observation:
        """Return the world as it is now."""
        now = self.at(now_s)
        records = tuple(records)
        if self.reads_engines and now_s - self._scraped_s >= self._provider.spec.scrape_s:
            self._scraped_s = now_s
            self._scrape(records, now)
        if self.reads_gateway or self._snapshot is None:
            self._snapshot = self._gateway(now_s, now)
        if self._boot_s is None:
            self._boot_s = boot_times_s((*self._ended, *records))
        at_gateway = {replica.id: replica for replica in self._snapshot.replicas}
        is_current = not self._signals or self.reads_engines
        return Observation(
            at=now,
            listing_ok=True,
            replicas=tuple(
                [self._replica(record, at_gateway.get(record.id), now_s, is_current=is_current) for record in records]
            ),
            gateway=self._snapshot,
            gateway_validity=Validity.OK if self.reads_gateway else Validity.STALE,
            gateway_alive=True,
            refused=refused,
            boot_s=self._boot_s,
            offerings=self._provider.offerings,
            refused_offerings=self._provider.refused(now),
        )

    def _gateway(self, now_s: float, now: datetime) -> GatewaySnapshot:
        routes = self._dispatcher.routes
        return GatewaySnapshot(
            fleet=self._fleet,
            at=now,
            started_at=self._epoch,
            table_version=self.table_version,
            pid=1,
            lanes=tuple([lane.snapshot(now_s) for lane in routes.lanes.values()]),
            replicas=tuple([replica.snapshot(now_s) for replica in routes.replicas.values()]),
            uptime_s=now_s,
            evictions=self._dispatcher.evictions.events(now_s, now),
            evictions_seq=self._dispatcher.evictions.seq,
        )

    def _scrape(self, records: tuple[Replica, ...], now: datetime) -> None:
        feed = []
        for record in records:
            node = self._provider.nodes.get(record.id)
            if record.state not in (ReplicaState.READY, ReplicaState.DRAINING) or node is None or node.ended:
                continue
            signals = self._signals[record.id] = self._read(record, node, now)
            feed.append(
                ReplicaSignals(
                    id=record.id,
                    age_s=0.0,
                    running=signals.running,
                    waiting=signals.waiting,
                    kv_usage=signals.kv_usage,
                    preemptions=signals.preemptions,
                    prompt_tokens=signals.prompt_tokens,
                )
            )
        self._dispatcher.take_signals(SignalFeed(replicas=tuple(feed)))

    def _read(self, record: Replica, node: SimulatedNode, now: datetime) -> EngineSignals:
        engine = node.engine
        engine.settle()
        signals = EngineSignals(
            validity=Validity.OK,
            at=now,
            running=sum([len(rank.running) for rank in engine.ranks]),
            waiting=sum([len(rank.waiting) for rank in engine.ranks]),
            kv_usage=engine.kv_usage,
            preemptions=float(engine.preemptions),
            prompt_tokens=float(engine.prompt_tokens),
            output_tokens=float(engine.output_tokens),
            steps=float(engine.steps),
        )
        before = self._signals.get(record.id)
        return signals if before is None else with_rates(before, signals)

    def _replica(
        self, record: Replica, at_gateway: ReplicaSnapshot | None, now_s: float, *, is_current: bool
    ) -> ObservedReplica:
        node = self._provider.nodes.get(record.id)
        is_quiet = node is not None and node.is_quiet(now_s)
        notice = node.notice(now_s, self._epoch) if node is not None and not is_quiet else None
        signals = self._signals.get(record.id, NOT_READ)
        consecutive, is_stalled = 0, False
        if at_gateway is None:
            at_gateway = _NOT_SEEN
        elif record.state is _READY:
            before = self._failures_before.setdefault(record.id, at_gateway.failures)
            if at_gateway.failures > before:
                consecutive = min(at_gateway.consecutive_failures, at_gateway.failures - before)
                is_stalled = at_gateway.is_stalled
        warm_done_s = None if node is None else node.warm_done_s
        return ObservedReplica(
            record=record,
            node=_RUNNING if is_quiet else None if node is None else node.state(now_s),
            exit_reason=node.exit_reason if node is not None and node.ended else "",
            creating=record.id in self.creating,
            healthy=(is_quiet or node.is_healthy(now_s)) if node is not None and record.state in _PROBED else None,
            warming=warm_done_s is not None and warm_done_s > now_s,
            warmed=warm_done_s is not None and warm_done_s <= now_s,
            excluded=record.id in self.excluded,
            in_flight=at_gateway.in_flight,
            consecutive_failures=consecutive,
            is_stalled=is_stalled,
            silent_s=at_gateway.silent_s,
            unheard_s=at_gateway.unheard_s,
            prefill_allowance_s=at_gateway.prefill_allowance_s,
            slowness=at_gateway.slowness,
            errors_in_a_row=at_gateway.errors_in_a_row,
            notice_deadline=notice.deadline if notice is not None else None,
            notice=notice,
            engine=signals if is_current else msgspec.structs.replace(signals, validity=Validity.STALE),
        )
