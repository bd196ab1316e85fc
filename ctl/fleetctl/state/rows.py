"""Records in and out of tables, inside whatever transaction the caller holds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.errors import DamagedStateError, StateError
from fleetctl.model.desired import Desired, DesiredPhase, Overrides
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.shared import SharedState
from fleetctl.ports.store import Intent, IntentState, SharedIntent, unknown_fleet

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.node import NodeRequest
    from fleetctl.ports.store import Tombstone

_ENDED_STATES = tuple(state.value for state in ReplicaState if not state.is_live)

T = TypeVar("T")


def to_text(value: object) -> str:
    """Return a record as stored."""
    return encode(value).decode()


def from_text(kind: type[T], record: str) -> T:
    """Return a stored record as `kind`. Raises DamagedStateError on one of another shape."""
    try:
        return decode(kind, record)
    except msgspec.DecodeError as exc:
        raise DamagedStateError(
            f"a stored {kind.__name__} cannot be read: {exc}",
            hint="it was written by another version of fleetctl, or by hand; use the fleetctl that wrote it",
        ) from exc


def find_fleet(db: sqlite3.Connection, name: str) -> Desired | None:
    """Return one fleet's desired state, or None."""
    return next((from_text(Desired, record) for _, record in fleet_rows(db, name)), None)


def fleet_rows(db: sqlite3.Connection, name: str) -> list[tuple[str, str]]:
    """Return one fleet's name and desired state as stored; none where there is no such fleet."""
    return db.execute("SELECT name, record FROM fleets WHERE name = ?", (name,)).fetchall()


def known_fleet(db: sqlite3.Connection, name: str) -> Desired:
    """Return one fleet's desired state. Raises NotFoundError listing those there are."""
    found = find_fleet(db, name)
    if found is None:
        raise unknown_fleet(name, (row[0] for row in db.execute("SELECT name FROM fleets ORDER BY name")))
    return found


def write_fleet(db: sqlite3.Connection, desired: Desired) -> Desired:
    """Store a fleet's desired state and return it."""
    db.execute(
        "INSERT OR REPLACE INTO fleets (name, phase, generation, record) VALUES (?, ?, ?, ?)",
        (desired.fleet, desired.phase.value, desired.generation, to_text(desired)),
    )
    return desired


def overrides_after_up(before: Desired | None) -> Overrides:
    """Return what an `up` leaves in force of what was set by hand: all that outlasts it, unless the fleet was going down."""
    return before.overrides.outlasting if before and before.phase is DesiredPhase.UP else Overrides()


def find_replica(db: sqlite3.Connection, fleet: str, replica_id: str) -> Replica | None:
    """Return one replica's record, or None."""
    row = db.execute("SELECT record FROM replicas WHERE fleet = ? AND id = ?", (fleet, replica_id)).fetchone()
    return from_text(Replica, row[0]) if row else None


def list_replicas(db: sqlite3.Connection, fleet: str, *, since_s: float) -> tuple[Replica, ...]:
    """Return live replicas, and those that ended at `since_s` or later."""
    return tuple(from_text(Replica, record) for _, record in replica_rows(db, fleet, since_s=since_s))


def replica_rows(db: sqlite3.Connection, fleet: str, *, since_s: float) -> list[tuple[str, str]]:
    """Return their ids and records as stored, oldest first."""
    return db.execute(
        f"SELECT id, record FROM replicas WHERE fleet = ? AND (state NOT IN ({_marks(_ENDED_STATES)}) OR changed_s >= ?) "  # noqa: S608  # question marks
        "ORDER BY created_s, length(id), id",
        (fleet, *_ENDED_STATES, since_s),
    ).fetchall()


def write_replica(db: sqlite3.Connection, replica: Replica) -> Replica:
    """Store a replica's record and return it as stored: a drain asked for is never cleared."""
    row = db.execute(
        "SELECT drain_requested FROM replicas WHERE fleet = ? AND id = ?", (replica.fleet, replica.id)
    ).fetchone()
    if row and row[0] and not replica.drain_requested:
        replica = replace(replica, drain_requested=True)
    db.execute(
        "INSERT OR REPLACE INTO replicas (fleet, id, lane, state, created_s, changed_s, drain_requested, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            replica.fleet, replica.id, replica.lane, replica.state.value,
            replica.created_at.timestamp(), replica.changed_at.timestamp(), replica.drain_requested, to_text(replica),
        ),
    )  # fmt: skip
    return replica


def begin_replica(db: sqlite3.Connection, replica: Replica, request: NodeRequest, *, now: datetime) -> Intent:
    """Store a new replica and its OPEN intent, and return the intent. Raises StateError if either was there before."""
    if find_replica(db, replica.fleet, replica.id) or find_intent(db, request.token):
        raise StateError(
            f"replica {replica.id} or its token {request.token} was begun before",
            hint="a replica's number and token are used once; take the next number",
        )
    intent = Intent.opened(replica, request, now=now)
    write_replica(db, replica)
    write_intent(db, intent)
    return intent


def forget_ended(db: sqlite3.Connection, fleet: str, *, before_s: float) -> None:
    """Delete a fleet's replicas that ended, and its intents that were closed, before then."""
    db.execute(
        f"DELETE FROM replicas WHERE fleet = ? AND state IN ({_marks(_ENDED_STATES)}) AND changed_s < ?",  # noqa: S608  # question marks
        (fleet, *_ENDED_STATES, before_s),
    )
    db.execute(
        "DELETE FROM intents WHERE fleet = ? AND state <> ? AND created_s < ?",
        (fleet, IntentState.OPEN.value, before_s),
    )


def find_intent(db: sqlite3.Connection, token: str) -> Intent | None:
    """Return one intent, or None."""
    row = db.execute("SELECT record FROM intents WHERE token = ?", (token,)).fetchone()
    return from_text(Intent, row[0]) if row else None


def write_intent(db: sqlite3.Connection, intent: Intent) -> None:
    """Store an intent."""
    db.execute(
        "INSERT OR REPLACE INTO intents (token, fleet, replica_id, state, created_s, record) VALUES (?, ?, ?, ?, ?, ?)",
        (
            intent.token, intent.fleet, intent.replica_id, intent.state.value,
            intent.created_at.timestamp(), to_text(intent),
        ),
    )  # fmt: skip


def list_shared(db: sqlite3.Connection, fleet: str) -> tuple[SharedIntent, ...]:
    """Return a fleet's shared resources, oldest first."""
    found = db.execute("SELECT record FROM shared_intents WHERE fleet = ? ORDER BY created_s, token", (fleet,))
    return tuple(from_text(SharedIntent, record) for (record,) in found.fetchall())


def write_shared(db: sqlite3.Connection, intent: SharedIntent) -> None:
    """Store a shared resource; one that is prepared again is missed no longer."""
    db.execute(
        "INSERT OR REPLACE INTO shared_intents (token, fleet, created_s, record) VALUES (?, ?, ?, ?)",
        (intent.token, intent.fleet, intent.created_at.timestamp(), to_text(intent)),
    )
    if intent.state is SharedState.PREPARING:
        db.execute("DELETE FROM tombstones WHERE token = ?", (intent.token,))


def write_tombstone(db: sqlite3.Connection, tombstone: Tombstone) -> None:
    """Store a tombstone."""
    db.execute(
        "INSERT OR REPLACE INTO tombstones (token, fleet, ended_s, record) VALUES (?, ?, ?, ?)",
        (tombstone.token, tombstone.fleet, tombstone.ended_at.timestamp(), to_text(tombstone)),
    )


def append_entry(db: sqlite3.Connection, entry: JournalEntry) -> int:
    """Append to the journal and return the sequence number."""
    # JSON has no NaN or infinity: as words they can be read back.
    inputs = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in entry.inputs.items()}
    cursor = db.execute(
        "INSERT INTO journal (fleet, subject, record) VALUES (?, ?, ?)",
        (entry.fleet, entry.subject.path, to_text(replace(entry, inputs=inputs))),
    )
    return int(cursor.lastrowid or 0)


def trim_journal(db: sqlite3.Connection, fleet: str, keep: int) -> None:
    """Delete a fleet's oldest entries beyond `keep`."""
    db.execute(
        "DELETE FROM journal WHERE fleet = ?1 AND seq <= "
        "(SELECT seq FROM journal WHERE fleet = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
        (fleet, keep),
    )


def _marks(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
