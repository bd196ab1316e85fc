"""Keeps a record of every node that is taken, from its notice until its lane has what it wants again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.node import NodeState
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.records import Collection, StoredRecord

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.controller.world import World
    from fleetctl.model.decision import Memory
    from fleetctl.model.observation import Observation, ObservedReplica

_OPEN_MAX = 500
_CARRYING = (ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STOPPING)
# A node that goes without a word is seen to be gone this long after the gateway has lost what it carried, at the longest.
_LOST_WITHIN = timedelta(seconds=15)


class InterruptionLog:
    """Follows the nodes that the policy counts as taken; nothing is written while none is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: dict[str, InterruptionRecord] = {}
        self._carried: dict[str, tuple[int, datetime]] = {}  # by replica: its requests in flight, as last seen unbroken

    def note(self, observation: Observation, before: Memory, after: Memory) -> None:
        """Note what this tick shows: who is newly taken, whose node has ended, which lane is whole again."""
        taken = set(after.taken) - set(before.taken)
        if taken or self._open:
            seen = {r.record.id: r for r in observation.replicas}
            for replica_id in sorted(taken & seen.keys()):
                self._begin(seen[replica_id], observation.at)
            for replica_id, record in list(self._open.items()):
                self._follow(record, seen.get(replica_id), observation, after)
        known = {r.record.id: self._seen_carrying(r, observation.at) for r in observation.replicas}
        self._carried = {name: carried for name, carried in known.items() if carried is not None}

    def _seen_carrying(self, seen: ObservedReplica, now: datetime) -> tuple[int, datetime] | None:
        """Return what a replica carries now, or what it did before requests on it began to fail."""
        is_unbroken = not seen.consecutive_failures and seen.record.state in _CARRYING
        return (seen.in_flight, now) if is_unbroken else self._carried.get(seen.record.id)

    def _lost(self, replica_id: str, now: datetime) -> int:
        """Return what a replica carried when it was last seen to work; what is long ago it did not lose."""
        count, at = self._carried.get(replica_id, (0, now))
        return count if now - at <= _LOST_WITHIN else 0

    def _begin(self, seen: ObservedReplica, now: datetime) -> None:
        record, notice, deadline = seen.record, seen.notice, notice_of(seen)
        offering = OfferingKey.parse(record.offering)
        is_announced = notice is not None and notice.takes_node
        begun = InterruptionRecord(
            at=now,
            fleet=record.fleet,
            replica_id=record.id,
            lane=record.lane,
            node_id=record.node_id,
            offering=record.offering,
            zone=record.zone,
            instance_type=offering.instance_type,
            market=record.market,
            notice=notice.kind if notice is not None and is_announced else None,
            was_hinted=record.notice is not None and not record.notice.is_certain,
            warning_s=max(0.0, (deadline - now).total_seconds()) if is_announced and deadline is not None else None,
            in_flight=max(seen.in_flight, self._lost(record.id, now)),
            continues_streams=record.capacity is not None and record.capacity.continues_streams,
        )
        if len(self._open) < _OPEN_MAX:
            self._open[record.id] = begun
        self._put(begun)

    def _follow(
        self, record: InterruptionRecord, seen: ObservedReplica | None, observation: Observation, memory: Memory
    ) -> None:
        found = record
        if record.ended_at is None and (seen is None or seen.node in (None, NodeState.GONE)):
            cut = self._lost(record.replica_id, observation.at)
            found = replace(found, ended_at=observation.at, in_flight_at_end=cut)
        if record.replaced_at is None and _is_whole(record.lane, observation, memory):
            found = replace(found, replaced_at=observation.at)
        if found is not record:
            self._open[record.replica_id] = found
            self._put(found)
        if found.ended_at is not None and found.replaced_at is not None:
            del self._open[record.replica_id]

    def _put(self, record: InterruptionRecord) -> None:
        key = f"{record.at.isoformat()}-{record.replica_id}"
        self._world.store.put_record(
            StoredRecord.of(Collection.INTERRUPTIONS, key, record, at=record.at, fleet=record.fleet)
        )


def _is_whole(lane: str, observation: Observation, memory: Memory) -> bool:
    """Whether a lane has as many ready replicas as it wants, without those whose node is taken."""
    known = memory.lanes.get(lane)
    serving = sum(
        r.record.lane == lane
        and r.record.state is ReplicaState.READY
        and notice_of(r) is None
        and r.node is not NodeState.GONE
        for r in observation.replicas
    )
    return known is not None and serving >= known.wanted
