"""Puts together what one decision sees: records, listing, probes, gateway."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.controller.boot_watch import BootWatch
from fleetctl.controller.launch import token_of
from fleetctl.controller.observed_gateways import observed_gateways, remote_gateways
from fleetctl.core.boot_phases import MeasuredPhases
from fleetctl.core.boot_times import boot_times_s
from fleetctl.core.engine_versions import other_version
from fleetctl.engine_kit.start_faults import had_no_word, killed_by, was_killed
from fleetctl.errors import UnavailableError
from fleetctl.model.boot import BootPhase
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.gateway import GatewaySnapshot
from fleetctl.model.node import NodeState
from fleetctl.model.observation import Observation, ObservedReplica
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from fleetctl.controller.canary import Canaries
    from fleetctl.controller.create import Creator
    from fleetctl.controller.intents import Resolver
    from fleetctl.controller.listing import Listing
    from fleetctl.controller.node_cache import NodeCache
    from fleetctl.controller.offerings import Offerings
    from fleetctl.controller.probes import Probes
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.publish import Publisher
    from fleetctl.controller.restarts import Restarts
    from fleetctl.controller.start_watch import StartWatch
    from fleetctl.controller.warm import Warmups
    from fleetctl.controller.world import World
    from fleetctl.model.gateway import ReplicaSnapshot
    from fleetctl.model.node import Node

# A snapshot is made when it is asked for; an older one comes from a gateway whose loop stands still.
_SNAPSHOT_AGE_MAX = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickReadings:
    """What one observation has read that is the same for all of its replicas."""

    now: datetime
    gateway: GatewaySnapshot | None
    measured: MeasuredPhases
    boot_phases: tuple[BootPhase, ...]  # as the provider declares them
    can_restart: bool
    restart_failed: bool


class Observer:
    """Reads everything once a tick; it decides nothing and never waits for the provider."""

    def __init__(  # noqa: PLR0913  # what it works with, each named
        self,
        world: World,
        *,
        calls: ProviderCalls,
        cache: NodeCache,
        listing: Listing,
        offerings: Offerings,
        creator: Creator,
        resolver: Resolver,
        probes: Probes,
        start_watch: StartWatch,
        warmups: Warmups,
        canaries: Canaries,
        restarts: Restarts,
        publisher: Publisher,
    ) -> None:
        self._world = world
        self._owner = world.store.owner
        self._calls = calls
        self._cache = cache
        self._listing = listing
        self._offerings = offerings
        self._creator = creator
        self._resolver = resolver
        self._probes = probes
        self._start_watch = start_watch
        self._warmups = warmups
        self._canaries = canaries
        self._restarts = restarts
        self._publisher = publisher
        self._boots = BootWatch(world)
        self.gateways_wanted = 1  # as the profile says
        # A replica's failures at the gateway when it was admitted: only later ones speak against it.
        self._failures_before: dict[str, int] = {}

    async def observe(self, records: tuple[Replica, ...], *, refused: dict[str, str]) -> Observation:
        """Return the world as it is now."""
        self._name_gateways()
        gateway = await self._snapshot()
        now = self._world.clock.now()
        live = [record for record in records if record.state.is_live]
        self._failures_before = {r.id: self._failures_before[r.id] for r in live if r.id in self._failures_before}
        self._boots.keep_only(live)
        at_gateway = {replica.id: replica for replica in gateway.replicas} if gateway else {}
        pace = self._world.provider.pace
        stall = self._world.gateway_host.stall()
        # Asked once for all of them: a provider may put together what it can do each time that it is asked.
        readings = TickReadings(
            now=now,
            gateway=gateway,
            measured=MeasuredPhases(records),
            boot_phases=self._world.provider.capabilities.boot_phases,
            can_restart=self._restarts.are_possible,
            restart_failed=self._restarts.have_failed,
        )
        return Observation(
            at=now,
            gateway_stall=str(stall or ""),
            gateway_beating=self._world.gateway_host.is_beating(),
            gateway_lost_s=self._world.gateway_host.lost_s(),
            listing_ok=self._listing.is_current,
            listing_failed=self._listing.has_failed,
            listing_partial=self._listing.is_partial,
            listing_asked_s=self._listing.asked_s,
            listing_silent_s=self._listing.silent_s,
            listing_deadline_s=pace.list_interval_s + pace.list_deadline_s,
            replicas=tuple([self._followed(record, readings, at_gateway.get(record.id)) for record in live]),
            probes_late_s=self._probes.late_s,
            gateway=gateway,
            gateway_validity=_validity(gateway, now - _SNAPSHOT_AGE_MAX < gateway.at) if gateway else Validity.NONE,
            gateway_alive=self._world.gateway_host.is_alive(),
            gateways=observed_gateways(self._world, self.gateways_wanted),
            gateways_are_remote=remote_gateways(self._world) is not None,
            refused=refused,
            provider_conditions=self._calls.conditions(),
            offerings_known=bool(self._offerings.latest),
            offerings=self._offerings.latest,
            refused_offerings=self._offerings.refused(),
            offerings_grown_at=self._offerings.grown_at,
            stop_deadline_s=pace.stop_deadline_s,
            orphaned_nodes=self._orphaned_nodes(live, now),
            boot_s=boot_times_s(records),
        )

    def node(self, record: Replica) -> Node | None:
        """Return a replica's node as last seen; None: it is not shown."""
        return self._cache.node(token_of(self._owner, record), now=self._world.clock.now())

    def admitted(self, replica_id: str) -> None:
        """Count a replica's failures afresh."""
        self._failures_before.pop(replica_id, None)

    def _name_gateways(self) -> None:
        """Have those asked that there are to be, and those that live beyond them."""
        gateways = self._world.gateways
        if gateways is None:
            return
        if remote_gateways(self._world) is not None:
            gateways.numbers = self._world.gateway_host.living()
        else:
            beyond = (n for n in self._world.gateway_host.living() if n > self.gateways_wanted)
            gateways.numbers = (*range(1, self.gateways_wanted + 1), *beyond)

    def _has_silent_gateway(self) -> bool:
        """Whether one of several lives and does not answer: which table it works by is not known."""
        gateways, host = self._world.gateways, self._world.gateway_host
        if gateways is None or not gateways.are_several:
            return False
        return any(n not in gateways.seen and host.numbered(n).is_alive() for n in gateways.numbers)

    async def _snapshot(self) -> GatewaySnapshot | None:
        try:
            return await self._world.gateway.snapshot()
        except UnavailableError:
            return None  # the observation says so, and the decision on it is journalled

    def _replica(
        self,
        record: Replica,
        token: str,
        node: Node | None,
        readings: TickReadings,
        at_gateway: ReplicaSnapshot | None,
    ) -> ObservedReplica:
        settled_at = self._resolver.settled_by(record.id)
        healthy = self._probes.healthy(record.id)
        reported_version = self._probes.version(record.id)
        if record.state is not ReplicaState.PENDING and (node is None or self._must_look_up(record, node, healthy)):
            self._listing.look_up(token)
        return ObservedReplica(
            record=record,
            node=self._node_state(record, node, token),
            exit_reason=node.exit_reason if node else "",
            taken_by=node.taken_by if node else "",
            crash_loop=node.crash_loop.text if node and node.crash_loop else "",
            engine_fault=other_version(record, reported_version) or self._engine_fault(record, node),
            absent_readings=self._absent_readings(record, token, settled_at),
            creating=self._creator.is_creating(record.id),
            was_requested=settled_at is not None,
            healthy=healthy,
            reported_version=reported_version,
            can_restart=readings.can_restart,
            restart_failed=readings.restart_failed,
            restarting=self._restarts.is_under_way(record.id),
            warming=self._warmups.is_warming(record.id),
            warmed=self._warmups.is_warm(record.id),
            warm_failures=self._warmups.failures(record.id),
            excluded=self._publisher.is_excluded(record.id, readings.gateway) and not self._has_silent_gateway(),
            in_flight=at_gateway.in_flight if at_gateway else 0,
            consecutive_failures=self._consecutive(record, at_gateway),
            is_stalled=self._is_stalled(record, at_gateway),
            silent_s=at_gateway.silent_s if at_gateway else 0.0,
            unheard_s=at_gateway.unheard_s if at_gateway else None,
            prefill_allowance_s=at_gateway.prefill_allowance_s if at_gateway else 0.0,
            slowness=at_gateway.slowness if at_gateway else None,
            errors_in_a_row=at_gateway.errors_in_a_row if at_gateway else 0,
            canary_missed_s=self._canaries.missed_s(record.id),
            canary_error=self._canaries.error(record.id),
            notice_deadline=_notice_deadline(record, node, readings.now),
            notice=node.notice if node else record.notice,
            pending_reason=node.pending_reason if node else "",
            is_out_of_stock=self._is_out_of_stock(record, node),
            boot=(node.boot if node else None) or self._start_watch.progress(record),
            engine=self._probes.signals(record.id),
        )

    def _followed(self, record: Replica, readings: TickReadings, at_gateway: ReplicaSnapshot | None) -> ObservedReplica:
        """Return a replica as it is seen now, with the phases of its start."""
        token = token_of(self._owner, record)
        node = self._cache.node(token, now=readings.now)
        seen = self._replica(record, token, node, readings, at_gateway)
        is_node_running = node is not None and node.state is not NodeState.STARTING
        return self._boots.followed(
            seen, readings.measured, readings.boot_phases, now=readings.now, is_node_running=is_node_running
        )

    def _is_out_of_stock(self, record: Replica, node: Node | None) -> bool:
        """Whether a node waits for a machine that does not come; its offering is left alone for a while then."""
        if node is None or not node.is_out_of_stock or node.state is not NodeState.STARTING:
            return False
        self._offerings.note_out_of_stock(record.offering)
        return True

    def _must_look_up(self, record: Replica, node: Node, healthy: bool | None) -> bool:
        """Whether only an answer by token can tell what has become of a node: no listing does, and its engine is silent."""
        is_known = node.state is NodeState.GONE or (healthy and record.state is not ReplicaState.STOPPING)
        return not is_known and not self._listing.is_current

    def _absent_readings(self, record: Replica, token: str, settled_at: datetime | None) -> int:
        """Return how many readings lack the node though they are of after its order had its effect, or its stop was taken."""
        match record.state:
            case ReplicaState.PENDING:
                since = settled_at
            case ReplicaState.STOPPING:
                since = record.stopped_at
            case _:
                since = record.changed_at
        return self._cache.absent_readings(token, since=since) if since is not None else 0

    def _consecutive(self, record: Replica, at_gateway: ReplicaSnapshot | None) -> int:
        if at_gateway is None or record.state is not ReplicaState.READY:
            return 0
        before = self._failures_before.setdefault(record.id, at_gateway.failures)
        return min(at_gateway.consecutive_failures, at_gateway.failures - before)

    def _is_stalled(self, record: Replica, at_gateway: ReplicaSnapshot | None) -> bool:
        if at_gateway is None or record.state is not ReplicaState.READY:
            return False
        return at_gateway.is_stalled and at_gateway.failures > self._failures_before.get(record.id, 0)

    def _node_state(self, record: Replica, node: Node | None, token: str) -> NodeState | None:
        """Return the node's state; readings older than the record's own state cannot deny it."""
        if node is not None:
            return node.state
        if record.state in (ReplicaState.PENDING, ReplicaState.STOPPING) or not self._listing.is_current:
            return None
        return NodeState.RUNNING if self._cache.may_be_hidden(token, since=record.changed_at) else None

    def _engine_fault(self, record: Replica, node: Node | None) -> EngineFault | None:
        """Return what an engine that ended, or will never be ready, said last; of one that could not be started, why."""
        if record.state is ReplicaState.PENDING and record.fault and record.fault_kind is not None:
            return EngineFault(kind=record.fault_kind, line=record.fault)
        if node is not None and node.crash_loop is not None:
            return self._last_fault(record, node.crash_loop.exit_reason, node.crash_loop.log_tail)
        if node is None or node.state is not NodeState.GONE:
            return self._start_watch.fault(record.id)
        # Where somebody else has taken it whatever it wrote is not why.
        return self._last_fault(record, node.exit_reason, node.log_tail) if not node.taken_by else None

    def _last_fault(self, record: Replica, exit_reason: str, log_tail: str) -> EngineFault | None:
        """Return why an engine ended by itself."""
        if had_no_word(exit_reason):
            return killed_by(exit_reason, log_tail=log_tail)
        fault = self._world.engine_of(record.engine).diagnose(log_tail) if log_tail else None
        if fault is not None and fault.kind is not EngineFaultKind.UNKNOWN:
            return fault
        if was_killed(exit_reason):
            return killed_by(exit_reason, log_tail=log_tail)
        return self._start_watch.suspicion(record.id) or fault

    def _orphaned_nodes(self, live: list[Replica], now: datetime) -> tuple[Node, ...]:
        """Return nodes that live and belong to no live replica."""
        known = {token_of(self._owner, record) for record in live}
        nodes = self._cache.nodes(now=now)
        found = tuple(node for node in nodes if node.state is not NodeState.GONE and node.token not in known)
        if not self._listing.is_current:
            for node in found:
                self._listing.look_up(node.token)
        return found


def _validity(gateway: GatewaySnapshot | None, is_fresh: bool) -> Validity:  # one fact, one answer
    if gateway is None:
        return Validity.NONE
    return Validity.OK if is_fresh else Validity.STALE


def _notice_deadline(record: Replica, node: Node | None, now: datetime) -> datetime | None:
    """Return when the node is taken; one that is interrupted for certain at an unknown time is taken now."""
    notice = node.notice if node is not None else None
    if notice is None or not notice.takes_node:
        return None
    return notice.deadline or record.notice_deadline or now
