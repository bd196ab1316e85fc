"""Puts together what one decision sees: records, listing, probes, gateway."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.boot_times import boot_times_s
from fleetctl.errors import UnavailableError
from fleetctl.model.node import Node, NodeState
from fleetctl.model.observation import Observation, ObservedReplica
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.listing import Listed, Listing
    from fleetctl.controller.probes import Probes
    from fleetctl.controller.publish import Publisher
    from fleetctl.controller.warm import Warmups
    from fleetctl.controller.world import World
    from fleetctl.model.gateway import GatewaySnapshot, ReplicaSnapshot

# A snapshot is made when it is asked for; an older one comes from a gateway whose loop stands still.
_SNAPSHOT_AGE_MAX = timedelta(seconds=10)


def create_key(replica_id: str) -> str:
    """Return the name under which a replica's create runs."""
    return f"create/{replica_id}"


class Observer:
    """Reads everything once a tick; it decides nothing."""

    def __init__(
        self,
        world: World,
        background: BackgroundTasks,
        listing: Listing,
        probes: Probes,
        warmups: Warmups,
        publisher: Publisher,
    ) -> None:
        self._world = world
        self._background = background
        self._listing = listing
        self._probes = probes
        self._warmups = warmups
        self._publisher = publisher
        # A replica's failures at the gateway when it was admitted: only later ones speak against it.
        self._failures_before: dict[str, int] = {}

    async def observe(self, records: tuple[Replica, ...], *, tick_s: float, refused: dict[str, str]) -> Observation:
        """Return the world as it is now."""
        gateway = await self._snapshot()
        now = self._world.clock.now()
        listed = self._listing.latest(tick_s)
        live = [record for record in records if record.state.is_live]
        self._failures_before = {r.id: self._failures_before[r.id] for r in live if r.id in self._failures_before}
        at_gateway = {replica.id: replica for replica in gateway.replicas} if gateway else {}
        return Observation(
            at=now,
            listing_ok=listed is not None,
            replicas=tuple(self._replica(record, listed, gateway, at_gateway.get(record.id)) for record in live),
            gateway=gateway,
            gateway_validity=_validity(gateway, now - _SNAPSHOT_AGE_MAX < gateway.at) if gateway else Validity.NONE,
            gateway_alive=self._world.gateway_host.is_alive(),
            refused=refused,
            boot_s=boot_times_s(records),
            orphaned_nodes=_orphaned_nodes(listed, live),
        )

    def admitted(self, replica_id: str) -> None:
        """Count a replica's failures afresh."""
        self._failures_before.pop(replica_id, None)

    async def _snapshot(self) -> GatewaySnapshot | None:
        try:
            return await self._world.gateway.snapshot()
        except UnavailableError:
            return None  # the observation says so, and the decision on it is journalled

    def _replica(
        self,
        record: Replica,
        listed: Listed | None,
        gateway: GatewaySnapshot | None,
        at_gateway: ReplicaSnapshot | None,
    ) -> ObservedReplica:
        node = _node_of(record, listed)
        return ObservedReplica(
            record=record,
            node=_node_state(record, node, listed),
            exit_reason=node.exit_reason if node else "",
            creating=self._background.is_running(create_key(record.id)),
            healthy=self._probes.healthy(record.id),
            warming=self._warmups.is_warming(record.id),
            warmed=self._warmups.is_warm(record.id),
            warm_failures=self._warmups.failures(record.id),
            excluded=self._publisher.is_excluded(record.id, gateway),
            in_flight=at_gateway.in_flight if at_gateway else 0,
            consecutive_failures=self._consecutive(record, at_gateway),
            notice_deadline=node.notice_deadline if node else None,
            engine=self._probes.signals(record.id),
        )

    def _consecutive(self, record: Replica, at_gateway: ReplicaSnapshot | None) -> int:
        if at_gateway is None or record.state is not ReplicaState.READY:
            return 0
        before = self._failures_before.setdefault(record.id, at_gateway.failures)
        return min(at_gateway.consecutive_failures, at_gateway.failures - before)


def _validity(gateway: GatewaySnapshot | None, is_fresh: bool) -> Validity:  # one fact, one answer
    if gateway is None:
        return Validity.NONE
    return Validity.OK if is_fresh else Validity.STALE


def _node_of(record: Replica, listed: Listed | None) -> Node | None:
    if listed is None:
        return None
    return next((node for node in listed.nodes if node.replica_id == record.id and _is_its(record, node)), None)


def _is_its(record: Replica, node: Node) -> bool:
    return not record.node_id or node.id == record.node_id


def _node_state(record: Replica, node: Node | None, listed: Listed | None) -> NodeState | None:
    """Return the node's state; a listing older than the record's own state cannot deny it."""
    if node is not None:
        return node.state
    if listed is not None and record.state is not ReplicaState.PENDING and listed.asked_at <= record.changed_at:
        return NodeState.RUNNING
    return None


def _orphaned_nodes(listed: Listed | None, live: list[Replica]) -> tuple[Node, ...]:
    """Return nodes that live and belong to no live replica."""
    if listed is None:
        return ()
    known = {record.id: record for record in live}
    return tuple(
        node
        for node in listed.nodes
        if node.state is not NodeState.GONE and not (node.replica_id in known and _is_its(known[node.replica_id], node))
    )
