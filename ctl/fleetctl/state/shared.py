"""The state store of many machines: objects with conditional writes, a few a fleet, so that fleets do not contend."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import NotFoundError
from fleetctl.ports.store import unknown_fleet
from fleetctl.state.shared_partitions import SharedPartitions, one_fleet

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from fleetctl.model.budget import BudgetLedger
    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired, DesiredPhase, Overrides
    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.node import NodeRequest
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.replica import Replica
    from fleetctl.model.subject import Subject
    from fleetctl.ports.records import Collection, StoredRecord
    from fleetctl.ports.store import Intent, IntentState, Settlement, SharedIntent, Tombstone
    from fleetctl.state.shared_database import SharedDatabase
    from fleetctl.state.sqlite import SqliteStore

T = TypeVar("T")


class SharedStore(SharedPartitions):
    """Implements ports.StateStore on an ObjectStore. Each fleet's records are a database of their own, read before use.

    A journal's numbers grow within a fleet. What is written under a lease to another fleet's records, or to those of none,
    is written after the lease was checked, not with it.
    """

    is_shared = True

    @property
    def location(self) -> str:
        """Where the objects lie, for people."""
        return self._objects.location

    @property
    def owner(self) -> str:
        """The store's uuid, made with it: tags every node."""
        return self._identity.owner

    def has_disk_space(self) -> bool:
        """Return True: whoever keeps the objects has room."""
        return True

    def is_in_place(self) -> bool:
        """Return True: objects that are gone are told by MissingStateError as they are read."""
        return True

    def database(self, fleet: str) -> SharedDatabase:
        """Return the objects of one fleet, to look at."""
        self._partition(fleet)
        return self._databases[fleet]

    # Fleets

    def fleets(self) -> tuple[Desired, ...]:
        """Return every fleet, by name."""
        found = (store.fleet(name) for name, store in self._fleet_stores())
        return tuple(desired for desired in found if desired is not None)

    def fleet(self, name: str) -> Desired | None:
        """Return one fleet, or None."""
        return self._partition(name).fleet(name)

    def put_fleet(  # what it is, and who wants it why
        self, profile: Profile, plan: Plan, *, now: datetime, by: str = "", why: str = "", over: int | None = None
    ) -> Desired:
        """Create or replace a fleet's desired state, phase UP; with `over` only that revision of it."""
        return self._known(profile.name, lambda s: s.put_fleet(profile, plan, now=now, by=by, why=why, over=over))

    def set_phase(self, fleet: str, phase: DesiredPhase, *, now: datetime) -> Desired:
        """Change whether it should exist. Raises NotFoundError."""
        return self._known(fleet, lambda s: s.set_phase(fleet, phase, now=now))

    def set_overrides(
        self, fleet: str, overrides: Overrides, *, now: datetime, expected: Overrides | None = None
    ) -> Desired:
        """Replace what people asked for by hand, if that is still as `expected`. Raises NotFoundError."""
        return self._known(fleet, lambda s: s.set_overrides(fleet, overrides, now=now, expected=expected))

    def remove_fleet(self, fleet: str) -> None:
        """Forget a fleet that is down and holds no live replica or shared resource; its journal and numbers stay."""
        self._write(fleet, lambda s: s.remove_fleet(fleet))

    # Replicas and their intents

    def replicas(self, fleet: str) -> tuple[Replica, ...]:
        """Return the fleet's replicas, oldest first; ended ones for an hour."""
        return self._partition(fleet).replicas(fleet)

    def begin_replica(self, replica: Replica, request: NodeRequest, *, now: datetime) -> Intent:
        """Commit a PENDING replica and the OPEN intent to create its node, in one transaction."""
        return self._write(replica.fleet, lambda s: s.begin_replica(replica, request, now=now))

    def begin_replicas(self, begun: tuple[tuple[Replica, NodeRequest], ...], *, now: datetime) -> tuple[Intent, ...]:
        """Commit PENDING replicas of a fleet and the OPEN intents to create their nodes, all in one transaction."""
        return self._write(one_fleet(r.fleet for r, _ in begun), lambda s: s.begin_replicas(begun, now=now))

    def amend_intents(self, intents: tuple[Intent, ...]) -> None:
        """Store the completed requests of a fleet's OPEN intents, in one transaction, before they are sent."""
        self._write(self._of(i.fleet for i in intents), lambda s: s.amend_intents(intents))

    def settle_intent(self, token: str, state: IntentState, *, replica: Replica | None = None) -> None:
        """Close an intent, and store its replica's new record, in one transaction. Raises NotFoundError."""
        fleet = self._with_token("intents", token) if replica is None else replica.fleet
        self._write(fleet, lambda s: s.settle_intent(token, state, replica=replica))

    def settle_intents(self, settled: tuple[Settlement, ...]) -> None:
        """Close a fleet's intents, and store their replicas' new records, all in one transaction. Raises NotFoundError."""
        if settled:
            fleet = self._of({each.replica.fleet for each in settled if each.replica is not None})
            fleet = fleet or self._with_token("intents", settled[0].token)
            self._write(fleet, lambda s: s.settle_intents(settled))

    def open_intents(self, fleet: str) -> tuple[Intent, ...]:
        """Return what must be resolved before anything else, oldest first."""
        return self._partition(fleet).open_intents(fleet)

    def put_shared(self, intent: SharedIntent) -> None:
        """Store how far a shared resource has come; one that is prepared again has no tombstone any more."""
        self._write(intent.fleet, lambda s: s.put_shared(intent))

    def end_shared(self, token: str, *, tombstone: Tombstone | None = None) -> None:
        """Forget a shared resource that was torn down, or bury it, in one transaction."""
        fleet = tombstone.fleet if tombstone is not None else self._with_token("shared_intents", token)
        self._write(fleet, lambda s: s.end_shared(token, tombstone=tombstone))

    def shared_intents(self, fleet: str) -> tuple[SharedIntent, ...]:
        """Return what a fleet's nodes share, prepared or on its way there or back; oldest first."""
        return self._partition(fleet).shared_intents(fleet)

    def bury(self, tombstone: Tombstone) -> None:
        """Remember an order whose node was not seen to have ended."""
        self._write(tombstone.fleet, lambda s: s.bury(tombstone))

    def unbury(self, token: str) -> None:
        """Forget a tombstone: its node was seen to have ended, or was looked for in vain often enough."""
        self._write(self._with_token("tombstones", token), lambda s: s.unbury(token))

    def tombstones(self, fleet: str = "") -> tuple[Tombstone, ...]:
        """Return those of a fleet, or of all that ever were; oldest first."""
        if fleet:
            return self._partition(fleet).tombstones(fleet)
        found = (each for _, store in self._all_stores() for each in store.tombstones())
        return tuple(sorted(found, key=lambda each: (each.ended_at, each.token)))

    def former_fleets(self) -> tuple[str, ...]:
        """Return the names of fleets that once had a replica or left a tombstone, and are gone."""
        return tuple(sorted({name for _, store in self._all_stores() for name in store.former_fleets()}))

    def put_replica(self, replica: Replica) -> None:
        """Store a replica's record. A person's `drain_requested` already set is never cleared by this."""
        self._write(replica.fleet, lambda s: s.put_replica(replica))

    def request_drain(self, fleet: str, replica_id: str, *, now: datetime) -> Replica:
        """Mark a replica to be drained. Raises NotFoundError."""
        return self._write(fleet, lambda s: s.request_drain(fleet, replica_id, now=now))

    def next_replica_number(self, fleet: str) -> int:
        """Return a number never given before, not even in an earlier fleet of this name."""
        return self._write(fleet, lambda s: s.next_replica_number(fleet))

    def last_replica_number(self, fleet: str) -> int:
        """Return the number given last; 0 before the first."""
        return self._partition(fleet).last_replica_number(fleet)

    # The controller's memory and the journal

    def memory(self, fleet: str) -> Memory:
        """Return the controller's memory; empty for a new fleet."""
        return self._partition(fleet).memory(fleet)

    def put_memory(self, fleet: str, memory: Memory) -> None:
        """Store the controller's memory."""
        self._write(fleet, lambda s: s.put_memory(fleet, memory))

    def ledgers(self, fleet: str) -> dict[str, BudgetLedger]:
        """Return the error-budget ledgers of the fleet's lanes, by lane."""
        return self._partition(fleet).ledgers(fleet)

    def put_ledgers(self, fleet: str, ledgers: dict[str, BudgetLedger]) -> None:
        """Store the ledgers of a fleet's lanes; those of other lanes go."""
        self._write(fleet, lambda s: s.put_ledgers(fleet, ledgers))

    def append(self, entries: tuple[JournalEntry, ...]) -> tuple[JournalEntry, ...]:
        """Append a fleet's entries to its journal and return them with their `seq`. The oldest beyond 100,000 go."""
        if not entries:
            return ()
        return self._write(one_fleet(entry.fleet for entry in entries), lambda s: s.append(entries))

    def journal(
        self, fleet: str, *, after: int = 0, limit: int = 100, subjects: tuple[Subject, ...] = ()
    ) -> tuple[JournalEntry, ...]:
        """Return the newest `limit` entries with seq > after, oldest first; those on any of `subjects` if given."""
        return self._partition(fleet).journal(fleet, after=after, limit=limit, subjects=subjects)

    # Collections of records

    def put_record(self, record: StoredRecord, *, durable: bool = True) -> None:
        """Store a record, in the place of an earlier one of its key."""
        self._write(record.fleet, lambda s: s.put_record(record, durable=durable))

    def find_record(self, collection: Collection, key: str, *, fleet: str = "") -> StoredRecord | None:
        """Return one record, or None."""
        return self._partition(fleet).find_record(collection, key, fleet=fleet)

    def records(
        self, collection: Collection, *, fleet: str | None = None, since: datetime | None = None, limit: int = 1_000
    ) -> tuple[StoredRecord, ...]:
        """Return the newest `limit` at or after `since`, oldest first; of all fleets where none is given."""
        if fleet is not None:
            return self._partition(fleet).records(collection, fleet=fleet, since=since, limit=limit)
        found = [each for _, s in self._all_stores() for each in s.records(collection, since=since, limit=limit)]
        return tuple(reversed(heapq.nlargest(limit, found, key=lambda each: (each.at, each.key))))

    def remove_record(self, collection: Collection, key: str, *, fleet: str = "") -> None:
        """Forget one record; nothing follows where there is none."""
        self._write(fleet, lambda s: s.remove_record(collection, key, fleet=fleet))

    def _known(self, fleet: str, work: Callable[[SqliteStore], T]) -> T:
        try:
            return self._write(fleet, work)
        except NotFoundError:
            raise unknown_fleet(fleet, (desired.fleet for desired in self.fleets())) from None
