"""How soon a node of an offering is lost: learned from time held, losses and refused orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_of
from fleetctl.model.hazard import OfferingRecord
from fleetctl.model.node import NodeState
from fleetctl.model.replica import ENDED_STATES, ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.decision import Memory
    from fleetctl.model.observation import Observation, ObservedReplica

# What is believed of an offering nothing is known of, worth so many node-hours.
PRIOR_LOSSES_PER_H = 0.1
_PRIOR_H = 5.0
_PRIOR_UNANNOUNCED = 0.1
# What was seen so long ago counts half: stock follows the hours of the day and the days of the week.
_HALF_LIFE_H = 24.0
# An order without stock says less than a node that was taken.
_REFUSAL_WEIGHT = 0.25
# Time held is added up this often, so that a quiet fleet writes its memory no more than that.
_ADDED_UP_S = 300.0
_ENGINE_ENDS = ("signal ", "exit ")
# After a loss its offering is left alone for so long, twice as long for each further loss that is still remembered.
_AVOIDED_S = 600.0
_AVOIDED_S_MAX = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """What is known of every offering at an instant."""

    now: datetime
    records: Mapping[str, OfferingRecord] = field(default_factory=dict)  # by Offering.key
    avoids: bool = True  # False: what has just lost a node is taken too, for nothing else is left

    def per_h(self, offering: str) -> float:
        """Return the expected losses of one node an hour."""
        return hazard_per_h(self.records.get(offering), self.now)

    def unannounced_share(self, offering: str) -> float:
        """Return the share of losses that come without a notice; one in ten is believed of what nothing is known of."""
        record = self.records.get(offering)
        losses, unannounced = (record.losses, record.unannounced) if record is not None else (0.0, 0.0)
        return (_PRIOR_UNANNOUNCED + unannounced) / (1.0 + losses)

    def is_avoided(self, offering: str) -> bool:
        """Whether a node was taken there so lately that another is not ordered there."""
        until = avoided_until(self.records.get(offering))
        return self.avoids and until is not None and self.now < until

    def after_losses(self, offerings: Iterable[str]) -> Hazards:
        """Return what would be known had a node been taken just now from each of these, as often as it is named."""
        records = dict(self.records)
        for key in offerings:
            known = records.get(key) or OfferingRecord(as_of=self.now)
            records[key] = replace(known, losses=known.losses + 1.0, lost_at=self.now)
        return replace(self, records=records)

    def lost_text(self, offering: str) -> str:
        """Return how long ago a node was taken there, with the hazard."""
        record = self.records.get(offering)
        lost_at = None if record is None else record.lost_at
        ago = "" if lost_at is None else f" {format_duration((self.now - lost_at).total_seconds())} ago"
        return f"lost a node{ago}, {self.text(offering)}"

    def text(self, offering: str) -> str:
        """Return the hazard in words, with the figures it comes from."""
        return hazard_text(self.records.get(offering), self.now)


_GONE = NodeState.GONE  # an enum's members are slow to look up, and this one is for every replica
NOTHING_LEARNED = Hazards(now=datetime.min.replace(tzinfo=UTC))


def learned(memory: Memory, observation: Observation, now: datetime) -> Memory:
    """Return the memory with what this observation shows of offerings; each loss and each refusal is counted once."""
    live = [r for r in observation.replicas if r.record.state not in ENDED_STATES]
    held = [r for r in live if r.record.id not in memory.taken] if memory.taken else live
    # Nearly all are neither.
    noticed = [r for r in held if r.node is _GONE or r.notice_deadline or r.record.notice_deadline]
    lost = [r for r in noticed if _is_lost(r)]
    refused = {k: at for k, at in observation.refused_offerings.items() if _is_later(at, memory.offerings.get(k))}
    due = _due(held, memory, now)
    changed = sorted({r.record.offering for r in lost} | set(refused) | due)
    taken = _taken(memory, live, lost)
    if not changed and taken == memory.taken:
        return memory
    records = {
        key: _brought_up(
            memory.offerings.get(key) or _first(key, held, now),
            held=[r for r in held if r.record.offering == key],
            lost=[r for r in lost if r.record.offering == key],
            refused_at=refused.get(key),
            now=now,
        )
        for key in changed
    }
    return replace(memory, offerings={**memory.offerings, **records}, taken=taken)


def _taken(memory: Memory, live: list[ObservedReplica], lost: list[ObservedReplica]) -> tuple[str, ...]:
    """Return who is lost and still there."""
    if not memory.taken and not lost:
        return ()
    ids = {r.record.id for r in live}
    return tuple(sorted([each for each in memory.taken if each in ids] + [r.record.id for r in lost]))


def _due(held: list[ObservedReplica], memory: Memory, now: datetime) -> set[str]:
    """Return the offerings whose time held is to be added up; of a known one any replica with a node says so."""
    known, before = memory.offerings, now - timedelta(seconds=_ADDED_UP_S)
    not_yet = {key for key, record in known.items() if record.as_of > before}
    # Of one that nothing is known of yet, its first order says so.
    records = [r.record for r in held if r.record.offering not in not_yet and r.record.node_id]
    return {r.offering for r in records if r.offering in known or (r.order_instant or r.created_at) <= before}


def hazard_per_h(record: OfferingRecord | None, now: datetime) -> float:
    """Return the expected losses of one node an hour: the prior's, moved by what was seen."""
    if record is None:
        return PRIOR_LOSSES_PER_H
    weight = _weight(record, now)
    events = weight * (record.losses + _REFUSAL_WEIGHT * record.refusals)
    return (PRIOR_LOSSES_PER_H * _PRIOR_H + events) / (_PRIOR_H + weight * record.held_h)


def together(records: Iterable[OfferingRecord], now: datetime) -> OfferingRecord | None:
    """Return what several fleets have learned of one offering, as of now; None: none has learned anything."""
    known = [(record, _weight(record, now)) for record in records]
    if not known:
        return None
    return OfferingRecord(
        as_of=now,
        held_h=sum(weight * record.held_h for record, weight in known),
        losses=sum(weight * record.losses for record, weight in known),
        unannounced=sum(weight * record.unannounced for record, weight in known),
        refusals=sum(weight * record.refusals for record, weight in known),
        lost_at=max((r.lost_at for r, _ in known if r.lost_at is not None), default=None),
        refused_at=max((r.refused_at for r, _ in known if r.refused_at is not None), default=None),
    )


def avoided_until(record: OfferingRecord | None) -> datetime | None:
    """Return until when an offering that lost a node is left alone; None: it has lost none."""
    if record is None or record.lost_at is None:
        return None
    again = max(0.0, record.losses * _weight(record, record.lost_at) - 1.0)
    return record.lost_at + timedelta(seconds=min(_AVOIDED_S_MAX, _AVOIDED_S * 2.0 ** min(again, 8.0)))


def hazard_text(record: OfferingRecord | None, now: datetime) -> str:
    """Return the hazard in words, with the figures it comes from."""
    rate = f"hazard {hazard_per_h(record, now):.2g}/h"
    if record is None:
        return f"{rate}, nothing seen yet"
    weight = _weight(record, now)
    return f"{rate} ({weight * record.losses:.2g} lost in {weight * record.held_h:.3g} h held)"


def _brought_up(
    before: OfferingRecord,
    *,
    held: list[ObservedReplica],
    lost: list[ObservedReplica],
    refused_at: datetime | None,
    now: datetime,
) -> OfferingRecord:
    """Return the record as of now."""
    weight = _weight(before, now)
    return OfferingRecord(
        as_of=now,
        held_h=weight * before.held_h + sum(_held_h(r, before.as_of, now) for r in held),
        losses=weight * before.losses + len(lost),
        unannounced=weight * before.unannounced + sum(notice_of(r) is None for r in lost),
        refusals=weight * before.refusals + (refused_at is not None),
        lost_at=now if lost else before.lost_at,
        refused_at=refused_at or before.refused_at,
    )


def _first(offering: str, held: list[ObservedReplica], now: datetime) -> OfferingRecord:
    """Return the empty record of an offering, as of its first order."""
    return OfferingRecord(as_of=min([now, *(r.record.requested_at for r in held if r.record.offering == offering)]))


def _held_h(replica: ObservedReplica, since: datetime, now: datetime) -> float:
    """Return how long its node was held since an instant; hours. One that was never created is not."""
    if not replica.record.node_id:
        return 0.0
    return max(0.0, (now - max(since, replica.record.requested_at)).total_seconds()) / 3600.0


def _weight(record: OfferingRecord, now: datetime) -> float:
    """Return what a figure of the record's instant counts now; 0 to 1."""
    return float(0.5 ** (max(0.0, (now - record.as_of).total_seconds()) / 3600.0 / _HALF_LIFE_H))


def _is_lost(replica: ObservedReplica) -> bool:
    """Whether the provider takes its node: by a notice, or unannounced where nothing else explains the end."""
    record, notice = replica.record, replica.notice or replica.record.notice
    if notice is not None and notice.is_preemption:
        return False  # it is given to another order, and says nothing of the offering
    if notice_of(replica) is not None:
        return True
    if replica.node is not NodeState.GONE or replica.engine_fault is not None:
        return False
    # An engine that ended by itself, or was killed, says nothing of the offering.
    is_engines = replica.exit_reason.startswith(_ENGINE_ENDS)
    return not is_engines and record.state not in (ReplicaState.PENDING, ReplicaState.DRAINING, ReplicaState.STOPPING)


def _is_later(at: datetime, known: OfferingRecord | None) -> bool:
    return known is None or known.refused_at is None or at > known.refused_at
