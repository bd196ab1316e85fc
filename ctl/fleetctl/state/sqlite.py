"""The state store on one SQLite file: what should be, what was started, and why."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK, Clock
from fleetctl.errors import NotFoundError, StateError
from fleetctl.model.budget import BudgetLedger
from fleetctl.model.decision import Memory
from fleetctl.model.desired import Desired, DesiredPhase, Overrides
from fleetctl.model.journal import JournalEntry
from fleetctl.model.replica import Replica
from fleetctl.ports.store import Intent, IntentState, Settlement, Tombstone
from fleetctl.state import records, revisions, rows
from fleetctl.state.database import Database
from fleetctl.state.kept_records import KeptRecords
from fleetctl.state.leased import LeasedDatabase

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from fleetctl.model.node import NodeRequest
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.subject import Subject
    from fleetctl.ports.records import Collection, StoredRecord
    from fleetctl.ports.store import SharedIntent

_ENDED_KEPT = timedelta(hours=1)
JOURNAL_ENTRIES_MAX = 100_000  # a fleet
_JOURNAL_TRIM_EVERY = 256  # entries; counting on each append would walk the whole index


class SqliteStore(LeasedDatabase):
    """Implements ports.StateStore; several processes may have the same file open.

    What starts or ends nodes is committed durably (see Database.write): an intent lost to a power cut would be a node
    nobody knows of. The rest, written every tick, is not: who lost the last of it sees the same world and writes it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        busy_timeout_s: float = 30.0,
        journal_entries_max: int = JOURNAL_ENTRIES_MAX,
        opens_on_use: bool = False,
        database: Database | None = None,
    ) -> None:
        """Open the file, or with `opens_on_use` at the first call; reading one that is not there makes none then.

        Without a path the store is in memory; with a `database` it is there.
        """
        self._clock = clock
        self._journal_entries_max = journal_entries_max
        super().__init__(database or Database(path, busy_timeout_s=busy_timeout_s, opens_on_use=opens_on_use))
        self._fleets: dict[str, KeptRecords[Desired]] = {}  # by name, as last read
        self._replicas: dict[str, KeptRecords[Replica]] = {}  # by fleet
        self._location = str(path.parent) if path is not None else "memory"
        self._owner = "" if opens_on_use else self._read_owner() or self._make_owner()

    def close(self) -> None:
        """Close the file; the store is of no use afterwards."""
        self._database.close()

    @property
    def is_shared(self) -> bool:
        """Whether other machines write to it too: no file is safe to be shared so."""
        return False

    @property
    def location(self) -> str:
        """The directory of the file, for people."""
        return self._location

    @property
    def owner(self) -> str:
        """The store's uuid, made with it: tags every node."""
        if not self._owner:
            self._owner = self._read_owner() or self._make_owner()
        return self._owner

    def has_disk_space(self) -> bool:
        """Whether what will be written in the next minutes finds room on the disk."""
        return self._database.has_disk_space()

    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self._database.is_in_place()

    # Fleets

    def fleets(self) -> tuple[Desired, ...]:
        """Return every fleet, by name."""
        with self._database.read() as db:
            found = db.execute("SELECT record FROM fleets ORDER BY name").fetchall()
        return tuple(rows.from_text(Desired, record) for (record,) in found)

    def fleet(self, name: str) -> Desired | None:
        """Return one fleet, or None."""
        with self._database.read() as db:
            kept = self._fleets.setdefault(name, KeptRecords(Desired))
            return next(iter(kept.read(rows.fleet_rows(db, name))), None)

    def put_fleet(  # what it is, and who wants it why
        self, profile: Profile, plan: Plan, *, now: datetime, by: str = "", why: str = "", over: int | None = None
    ) -> Desired:
        """Create or replace a fleet's desired state, phase UP; with `over` only that revision of it."""
        with self._write(durable=True, is_essential=True) as db:
            before = rows.find_fleet(db, profile.name)
            is_over = before is None or before.phase is not DesiredPhase.UP or before.revision != over
            if over is not None and is_over:
                return before or rows.known_fleet(db, profile.name)
            desired = revisions.following(before, profile, plan, now=now, keeps_overrides=over is not None)
            revisions.keep(db, before, desired, by=by, why=why, undoes=over)
            return rows.write_fleet(db, desired)

    def set_phase(self, fleet: str, phase: DesiredPhase, *, now: datetime) -> Desired:
        """Change whether it should exist. Raises NotFoundError."""
        with self._write(durable=True, is_essential=True) as db:
            before = rows.known_fleet(db, fleet)
            if before.phase is phase:
                return before
            return rows.write_fleet(db, replace(before, phase=phase, generation=before.generation + 1, changed_at=now))

    def set_overrides(
        self, fleet: str, overrides: Overrides, *, now: datetime, expected: Overrides | None = None
    ) -> Desired:
        """Replace what people asked for by hand, if that is still as `expected`. Raises NotFoundError."""
        with self._write(durable=True) as db:
            before = rows.known_fleet(db, fleet)
            if expected not in (None, before.overrides):
                return before
            generation = before.generation + 1
            return rows.write_fleet(db, replace(before, overrides=overrides, generation=generation, changed_at=now))

    def remove_fleet(self, fleet: str) -> None:
        """Forget a fleet that is down and holds no live replica or shared resource; its journal and numbers stay."""
        with self._write(durable=True, is_essential=True) as db:
            before = rows.find_fleet(db, fleet)
            if before is None:
                return
            live, shared = rows.list_replicas(db, fleet, since_s=float("inf")), rows.list_shared(db, fleet)
            if before.phase is not DesiredPhase.DOWN or live or shared:
                raise StateError(
                    f"fleet {fleet!r} is {before.phase} with {len(live)} live replicas and {len(shared)} shared "
                    "resources, so it cannot be forgotten",
                    hint=f"take it down first: fleetctl down {fleet}",
                )
            for table in ("replicas", "intents", "memories", "budget_ledgers"):
                db.execute(f"DELETE FROM {table} WHERE fleet = ?", (fleet,))  # noqa: S608  # names from the line above
            records.forget_fleet(db, fleet)
            db.execute("DELETE FROM fleets WHERE name = ?", (fleet,))

    # Replicas and their intents

    def replicas(self, fleet: str) -> tuple[Replica, ...]:
        """Return the fleet's replicas, oldest first; ended ones for an hour."""
        since_s = (self._clock.now() - _ENDED_KEPT).timestamp()
        with self._database.read() as db:
            kept = self._replicas.setdefault(fleet, KeptRecords(Replica))
            return kept.read(rows.replica_rows(db, fleet, since_s=since_s))

    def begin_replica(self, replica: Replica, request: NodeRequest, *, now: datetime) -> Intent:
        """Commit a PENDING replica and the OPEN intent to create its node, in one transaction."""
        (intent,) = self.begin_replicas(((replica, request),), now=now)
        return intent

    def begin_replicas(self, begun: tuple[tuple[Replica, NodeRequest], ...], *, now: datetime) -> tuple[Intent, ...]:
        """Commit PENDING replicas and the OPEN intents to create their nodes, all in one transaction."""
        with self._write(durable=True) as db:
            for fleet in sorted({replica.fleet for replica, _ in begun}):
                rows.forget_ended(db, fleet, before_s=(now - _ENDED_KEPT).timestamp())
            return tuple(rows.begin_replica(db, replica, request, now=now) for replica, request in begun)

    def amend_intents(self, intents: tuple[Intent, ...]) -> None:
        """Store the completed requests of OPEN intents, in one transaction, before they are sent."""
        with self._write(durable=True) as db:
            for intent in intents:
                known = rows.find_intent(db, intent.token)
                if known is None or known.state is not IntentState.OPEN:
                    raise NotFoundError(f"no open intent has the token {intent.token}")
                rows.write_intent(db, intent)

    def settle_intent(self, token: str, state: IntentState, *, replica: Replica | None = None) -> None:
        """Close an intent, and store its replica's new record, in one transaction. Raises NotFoundError."""
        self.settle_intents((Settlement(token=token, state=state, replica=replica),))

    def settle_intents(self, settled: tuple[Settlement, ...]) -> None:
        """Close intents, and store their replicas' new records, all in one transaction. Raises NotFoundError."""
        if not settled:
            return
        with self._write(durable=True) as db:
            for settlement in settled:
                intent = rows.find_intent(db, settlement.token)
                if intent is None:
                    raise NotFoundError(f"no intent has the token {settlement.token}")
                rows.write_intent(db, replace(intent, state=settlement.state))
                if settlement.replica is not None:
                    rows.write_replica(db, settlement.replica)

    def open_intents(self, fleet: str) -> tuple[Intent, ...]:
        """Return what must be resolved before anything else, oldest first."""
        with self._database.read() as db:
            found = db.execute(
                "SELECT record FROM intents WHERE fleet = ? AND state = ? ORDER BY created_s, token",
                (fleet, IntentState.OPEN.value),
            ).fetchall()
        return tuple(rows.from_text(Intent, record) for (record,) in found)

    def put_shared(self, intent: SharedIntent) -> None:
        """Store how far a shared resource has come; one that is prepared again has no tombstone any more."""
        with self._write(durable=True) as db:
            rows.write_shared(db, intent)

    def end_shared(self, token: str, *, tombstone: Tombstone | None = None) -> None:
        """Forget a shared resource that was torn down, or bury it, in one transaction."""
        with self._write(durable=True) as db:
            db.execute("DELETE FROM shared_intents WHERE token = ?", (token,))
            if tombstone is not None:
                rows.write_tombstone(db, tombstone)

    def shared_intents(self, fleet: str) -> tuple[SharedIntent, ...]:
        """Return what a fleet's nodes share, prepared or on its way there or back; oldest first."""
        with self._database.read() as db:
            return rows.list_shared(db, fleet)

    def bury(self, tombstone: Tombstone) -> None:
        """Remember an order whose node was not seen to have ended."""
        with self._write(durable=True) as db:
            rows.write_tombstone(db, tombstone)

    def unbury(self, token: str) -> None:
        """Forget a tombstone: its node was seen to have ended, or was looked for in vain often enough."""
        with self._write(durable=True) as db:
            db.execute("DELETE FROM tombstones WHERE token = ?", (token,))

    def tombstones(self, fleet: str = "") -> tuple[Tombstone, ...]:
        """Return those of a fleet, or of all that ever were; oldest first."""
        with self._database.read() as db:
            found = db.execute(
                "SELECT record FROM tombstones WHERE ?1 IN ('', fleet) ORDER BY ended_s, token", (fleet,)
            ).fetchall()
        return tuple(rows.from_text(Tombstone, record) for (record,) in found)

    def former_fleets(self) -> tuple[str, ...]:
        """Return the names of fleets that once had a replica or left a tombstone, and are gone."""
        with self._database.read() as db:
            found = db.execute(
                "SELECT fleet FROM replica_numbers UNION SELECT fleet FROM tombstones "
                "EXCEPT SELECT name FROM fleets ORDER BY 1"
            ).fetchall()
        return tuple(fleet for (fleet,) in found)

    def put_replica(self, replica: Replica) -> None:
        """Store a replica's record. A person's `drain_requested` already set is never cleared by this."""
        with self._write(durable=False) as db:
            rows.write_replica(db, replica)

    def request_drain(self, fleet: str, replica_id: str, *, now: datetime) -> Replica:
        """Mark a replica to be drained. Raises NotFoundError."""
        del now  # the journal carries the time; `changed_at` is the state's, which has not changed yet
        with self._write(durable=True) as db:
            replica = rows.find_replica(db, fleet, replica_id)
            if replica is None:
                live = ", ".join(r.id for r in rows.list_replicas(db, fleet, since_s=float("inf")))
                raise NotFoundError(
                    f"fleet {fleet!r} has no replica {replica_id!r}", hint=f"live replicas: {live or 'none'}"
                )
            return rows.write_replica(db, replace(replica, drain_requested=True))

    def next_replica_number(self, fleet: str) -> int:
        """Return a number never given before, not even in an earlier fleet of this name."""
        # The durable commit of the replica that gets it takes this one along.
        with self._write(durable=False) as db:
            row = db.execute(
                "INSERT INTO replica_numbers (fleet, last) VALUES (?, 1) "
                "ON CONFLICT (fleet) DO UPDATE SET last = last + 1 RETURNING last",
                (fleet,),
            ).fetchone()
        return int(row[0])

    def last_replica_number(self, fleet: str) -> int:
        """Return the number given last; 0 before the first."""
        with self._database.read() as db:
            row = db.execute("SELECT last FROM replica_numbers WHERE fleet = ?", (fleet,)).fetchone()
        return int(row[0]) if row else 0

    # The controller's memory and the journal

    def memory(self, fleet: str) -> Memory:
        """Return the controller's memory; empty for a new fleet."""
        with self._database.read() as db:
            row = db.execute("SELECT record FROM memories WHERE fleet = ?", (fleet,)).fetchone()
        return rows.from_text(Memory, row[0]) if row else Memory()

    def put_memory(self, fleet: str, memory: Memory) -> None:
        """Store the controller's memory."""
        with self._write(durable=False) as db:
            db.execute("INSERT OR REPLACE INTO memories (fleet, record) VALUES (?, ?)", (fleet, rows.to_text(memory)))

    def ledgers(self, fleet: str) -> dict[str, BudgetLedger]:
        """Return the error-budget ledgers of the fleet's lanes, by lane."""
        with self._database.read() as db:
            found = db.execute("SELECT lane, record FROM budget_ledgers WHERE fleet = ?", (fleet,)).fetchall()
        return {lane: rows.from_text(BudgetLedger, record) for lane, record in found}

    def put_ledgers(self, fleet: str, ledgers: dict[str, BudgetLedger]) -> None:
        """Store the ledgers of a fleet's lanes; those of other lanes go."""
        with self._write(durable=False) as db:
            db.execute("DELETE FROM budget_ledgers WHERE fleet = ?", (fleet,))
            db.executemany(
                "INSERT INTO budget_ledgers (fleet, lane, record) VALUES (?, ?, ?)",
                [(fleet, lane, rows.to_text(ledger)) for lane, ledger in ledgers.items()],
            )

    def append(self, entries: tuple[JournalEntry, ...]) -> tuple[JournalEntry, ...]:
        """Append to the journal and return the entries with their `seq`. The oldest beyond 100,000 a fleet go."""
        if not entries:
            return ()
        with self._write(durable=False) as db:
            numbered = tuple(replace(entry, seq=rows.append_entry(db, entry)) for entry in entries)
            if numbered[0].seq // _JOURNAL_TRIM_EVERY != (numbered[-1].seq + 1) // _JOURNAL_TRIM_EVERY:
                for fleet in {entry.fleet for entry in numbered}:
                    rows.trim_journal(db, fleet, self._journal_entries_max)
        return numbered

    def journal(
        self, fleet: str, *, after: int = 0, limit: int = 100, subjects: tuple[Subject, ...] = ()
    ) -> tuple[JournalEntry, ...]:
        """Return the newest `limit` entries with seq > after, oldest first; those on any of `subjects` if given."""
        where, values = "fleet = ? AND seq > ?", [fleet, after]
        if subjects:
            marks = ", ".join("?" * len(subjects))
            where, values = f"{where} AND subject IN ({marks})", [*values, *(subject.path for subject in subjects)]
        query = f"SELECT seq, record FROM journal WHERE {where} ORDER BY seq DESC LIMIT ?"  # noqa: S608  # fixed words
        with self._database.read() as db:
            found = db.execute(query, (*values, limit)).fetchall()
        return tuple(replace(rows.from_text(JournalEntry, record), seq=seq) for seq, record in reversed(found))

    # Collections of records

    def put_record(self, record: StoredRecord, *, durable: bool = True) -> None:
        """Store a record, in the place of an earlier one of its key."""
        with self._write(durable=durable) as db:
            records.write(db, record)

    def find_record(self, collection: Collection, key: str, *, fleet: str = "") -> StoredRecord | None:
        """Return one record, or None."""
        with self._database.read() as db:
            return records.find(db, collection, key, fleet=fleet)

    def records(
        self, collection: Collection, *, fleet: str | None = None, since: datetime | None = None, limit: int = 1_000
    ) -> tuple[StoredRecord, ...]:
        """Return the newest `limit` at or after `since`, oldest first; of all fleets where none is given."""
        with self._database.read() as db:
            return records.newest(db, collection, fleet=fleet, since=since, limit=limit)

    def remove_record(self, collection: Collection, key: str, *, fleet: str = "") -> None:
        """Forget one record; nothing follows where there is none."""
        with self._write(durable=True) as db:
            records.remove(db, collection, key, fleet=fleet)

    def _read_owner(self) -> str:
        with self._database.read() as db:
            row = db.execute("SELECT owner FROM identity").fetchone()
        return str(row[0]) if row else ""

    def _make_owner(self) -> str:
        with self._write(durable=True) as db:
            row = db.execute("SELECT owner FROM identity").fetchone()
            if row is None:  # else another process made it between our read and this lock
                row = (os.urandom(16).hex(),)
                db.execute("INSERT INTO identity (owner) VALUES (?)", row)
        return str(row[0])
