"""Collections of records in their one table, inside whatever transaction the caller holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleetctl.ports.records import Collection, StoredRecord

if TYPE_CHECKING:
    import sqlite3

_COLUMNS = "collection, fleet, key, at_s, record"


def write(db: sqlite3.Connection, record: StoredRecord) -> None:
    """Store a record in the place of an earlier one of its key; the oldest of its collection and fleet go."""
    db.execute(
        f"INSERT OR REPLACE INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608  # fixed words
        (record.collection.value, record.fleet, record.key, record.at.timestamp(), record.text),
    )
    db.execute(
        "DELETE FROM records WHERE (collection, fleet, key) IN (SELECT collection, fleet, key FROM records "
        "WHERE collection = ? AND fleet = ? ORDER BY at_s DESC, key DESC LIMIT -1 OFFSET ?)",
        (record.collection.value, record.fleet, record.collection.records_max),
    )


def find(db: sqlite3.Connection, collection: Collection, key: str, *, fleet: str) -> StoredRecord | None:
    """Return one record, or None."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM records WHERE collection = ? AND fleet = ? AND key = ?",  # noqa: S608  # fixed words
        (collection.value, fleet, key),
    ).fetchone()
    return _record(row) if row else None


def newest(
    db: sqlite3.Connection, collection: Collection, *, fleet: str | None, since: datetime | None, limit: int
) -> tuple[StoredRecord, ...]:
    """Return the newest `limit` at or after `since`, oldest first; of all fleets where None is given."""
    where, values = ["collection = ?"], [collection.value]
    if fleet is not None:
        where.append("fleet = ?")
        values.append(fleet)
    from_s = since.timestamp() if since is not None else float("-inf")
    found = db.execute(
        f"SELECT {_COLUMNS} FROM records WHERE {' AND '.join(where)} AND at_s >= ? "  # noqa: S608  # fixed words
        "ORDER BY at_s DESC, key DESC LIMIT ?",
        (*values, from_s, limit),
    ).fetchall()
    return tuple(_record(row) for row in reversed(found))


def remove(db: sqlite3.Connection, collection: Collection, key: str, *, fleet: str) -> None:
    """Forget one record; nothing follows where there is none."""
    db.execute("DELETE FROM records WHERE collection = ? AND fleet = ? AND key = ?", (collection.value, fleet, key))


def forget_fleet(db: sqlite3.Connection, fleet: str) -> None:
    """Forget the records of a fleet that is gone, but those that outlive it."""
    for collection in Collection:
        if not collection.outlives_fleet:
            db.execute("DELETE FROM records WHERE collection = ? AND fleet = ?", (collection.value, fleet))


def _record(row: tuple[str, str, str, float, str]) -> StoredRecord:
    collection, fleet, key, at_s, text = row
    at = datetime.fromtimestamp(at_s, UTC)
    return StoredRecord(collection=Collection(collection), fleet=fleet, key=key, at=at, text=text)
