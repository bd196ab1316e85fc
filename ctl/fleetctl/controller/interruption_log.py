"""Keeps a record of every node that is taken, from its notice until its lane has what it wants again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.node import NodeState
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.records import Collection, StoredRecord

if TYPE_CHECKING:
    from fleetctl.controller.world import World
    from fleetctl.model.decision import Memory
    from fleetctl.model.gateway import ReplicaCuts
    from fleetctl.model.observation import Observation, ObservedReplica

_OPEN_MAX = 500
_CARRYING = (ReplicaState.READY, ReplicaState.DRAINING, ReplicaState.STOPPING)
# A node that goes without a word is seen to be gone this long after the gateway has lost what it carried, at the longest.
_LOST_WITHIN = timedelta(seconds=15)
# A request that was cut there counts when it is over, wherever it ended: most do within this long after the node's end.
_COUNTED_FOR = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """What a replica carried when it was last seen unbroken, and what the gateway had counted of it by then."""

    in_flight: int
    at: datetime
    gateway_since: datetime | None  # its start: it counts from then
    cut: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """An interruption that is followed."""

    record: InterruptionRecord
    before: _Carried | None  # None: it was never seen unbroken


class InterruptionLog:
    """Follows the nodes that the policy counts as taken; nothing is written while none is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: dict[str, _Open] = {}
        self._carried: dict[str, _Carried] = {}  # by replica

    def note(self, observation: Observation, before: Memory, after: Memory) -> None:
        """Note what this tick shows: who is newly taken, whose node has ended, which lane is whole again."""
        taken = set(after.taken) - set(before.taken)
        if taken or self._open:
            seen = {r.record.id: r for r in observation.replicas}
            for replica_id in sorted(taken & seen.keys()):
                self._begin(seen[replica_id], observation.at)
            for replica_id, opened in list(self._open.items()):
                self._follow(opened, seen.get(replica_id), observation, after)
        counts = _counts(observation)
        known = {r.record.id: self._seen_carrying(r, observation, counts) for r in observation.replicas}
        self._carried = {name: carried for name, carried in known.items() if carried is not None}

    def _seen_carrying(
        self, seen: ObservedReplica, observation: Observation, counts: dict[str, ReplicaCuts]
    ) -> _Carried | None:
        """Return what a replica carries now, or what it did before requests on it began to fail."""
        replica_id, gateway = seen.record.id, observation.gateway
        if seen.consecutive_failures or seen.record.state not in _CARRYING:
            return self._carried.get(replica_id)
        is_counted = gateway is not None and gateway.cuts is not None
        found = counts.get(replica_id)
        return _Carried(
            in_flight=seen.in_flight,
            at=observation.at,
            gateway_since=gateway.started_at if gateway is not None and is_counted else None,
            cut=found.cut if found is not None else 0,
            lost=found.lost if found is not None else 0,
        )

    def _lost(self, replica_id: str, now: datetime) -> int:
        """Return what a replica carried when it was last seen to work; what is long ago it did not lose."""
        carried = self._carried.get(replica_id)
        return carried.in_flight if carried is not None and now - carried.at <= _LOST_WITHIN else 0

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
            self._open[record.id] = _Open(record=begun, before=self._carried.get(record.id))
        self._put(begun)

    def _follow(self, opened: _Open, seen: ObservedReplica | None, observation: Observation, memory: Memory) -> None:
        found = record = opened.record
        if record.ended_at is None and (seen is None or seen.node in (None, NodeState.GONE)):
            cut = self._lost(record.replica_id, observation.at)
            found = replace(found, ended_at=observation.at, in_flight_at_end=cut)
        if record.replaced_at is None and _is_whole(record.lane, observation, memory):
            found = replace(found, replaced_at=observation.at)
        found = _counted(found, opened.before, observation)
        if found != record:
            self._open[record.replica_id] = replace(opened, record=found)
            self._put(found)
        is_counted = found.ended_at is not None and observation.at - found.ended_at >= _COUNTED_FOR
        if is_counted and found.replaced_at is not None:
            del self._open[record.replica_id]

    def _put(self, record: InterruptionRecord) -> None:
        key = f"{record.at.isoformat()}-{record.replica_id}"
        self._world.store.put_record(
            StoredRecord.of(Collection.INTERRUPTIONS, key, record, at=record.at, fleet=record.fleet)
        )


def _counts(observation: Observation) -> dict[str, ReplicaCuts]:
    gateway = observation.gateway
    return {each.id: each for each in gateway.cuts or ()} if gateway is not None else {}


def _counted(record: InterruptionRecord, before: _Carried | None, observation: Observation) -> InterruptionRecord:
    """Return the record with what the gateway has counted since; a gateway that was restarted meanwhile cannot say."""
    gateway = observation.gateway
    is_over = record.ended_at is not None and observation.at - record.ended_at > _COUNTED_FOR
    if before is None or gateway is None or is_over:
        return record
    if gateway.started_at != before.gateway_since:
        return replace(record, cut=None, lost=None)
    found = _counts(observation).get(record.replica_id)
    cut, lost = (found.cut - before.cut, found.lost - before.lost) if found is not None else (0, 0)
    return replace(record, cut=cut, lost=lost)


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
