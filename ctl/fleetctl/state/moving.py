"""Copies a whole state from one place to another, and marks the one it came from: two would fight for the same nodes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from fleetctl.errors import StateError
from fleetctl.paths import state_db
from fleetctl.state.database import Database
from fleetctl.state.opening import open_objects
from fleetctl.state.row_changes import RowChanges
from fleetctl.state.shared import SharedStore
from fleetctl.state.shared_identity import Identity, SharedIdentity, check_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from fleetctl.state.row_changes import RowChange

LOCAL = "local"  # this machine's own file
_SUFFIXES = ("", "-wal", "-shm")


def move_state(source: str, target: str, *, now: datetime) -> int:
    """Move every row from one place to another that has no state yet; return how many. URLs; LOCAL is a file.

    Nobody may write to the source meanwhile. Raises StateError where the target has a state, or had one.
    """
    owner, rows = _read_file() if source == LOCAL else _read_shared(source)
    if target == LOCAL:
        _write_file(owner, rows)
    else:
        _write_shared(target, owner, rows)
    if source == LOCAL:
        _set_file_aside(state_db(), now)
    else:
        with closing(open_objects(source)) as objects:
            SharedIdentity(objects).put(Identity(owner=owner, moved_to=target))
    return len(rows)


def _read_file() -> tuple[str, tuple[RowChange, ...]]:
    if not state_db().exists():
        raise StateError(f"there is no state in {state_db().parent}", hint="there is nothing to move")
    database = Database(state_db())
    try:
        with database.read() as db:
            (owner,) = db.execute("SELECT owner FROM identity").fetchone() or ("",)
            return str(owner), RowChanges(db, is_noting=False).whole(0)
    finally:
        database.close()


def _read_shared(url: str) -> tuple[str, tuple[RowChange, ...]]:
    with closing(SharedStore(open_objects(url))) as store:
        rows = [row for name in store.partitions() for row in store.database(name).whole()]
        return store.owner, tuple(rows)


def _write_shared(url: str, owner: str, rows: Iterable[RowChange]) -> None:
    with closing(open_objects(url)) as objects:
        if objects.list_keys(""):
            raise StateError(
                f"{objects.location} is not empty: it has a state, or had one",
                hint="name a prefix that has nothing yet",
            )
        check_conditions(objects)
        by_fleet: dict[str, list[RowChange]] = {}
        for row in rows:
            by_fleet.setdefault(_fleet_of(row), []).append(row)
        SharedIdentity(objects).put(Identity(owner=owner))
        store = SharedStore(objects)
        for fleet, theirs in by_fleet.items():
            store.database(fleet).put_rows(theirs)


def _write_file(owner: str, rows: tuple[RowChange, ...]) -> None:
    path = state_db()
    if path.exists():
        raise StateError(f"{path} is there already", hint="set it aside first: it has fleets of its own, or had some")
    made = path.with_name(f"{path.name}.moving")
    for suffix in _SUFFIXES:
        made.with_name(f"{made.name}{suffix}").unlink(missing_ok=True)
    database = Database(made)
    try:
        with database.write(durable=True) as db:
            db.execute("INSERT INTO identity (owner) VALUES (?)", (owner,))
            RowChanges(db, is_noting=False).apply(_numbered_as_one(rows))
    finally:
        database.close()
    made.replace(path)


def _numbered_as_one(rows: tuple[RowChange, ...]) -> Iterable[RowChange]:
    """Yield the rows, journals numbered in one sequence where fleets' own numbers meet."""
    journal = [row for row in rows if row.table == "journal"]
    if len({row.key for row in journal}) == len(journal):
        return rows
    others = [row for row in rows if row.table != "journal"]
    lines = enumerate(sorted(journal, key=lambda row: row.key), start=1)
    return (*others, *(type(row)(row.commit, row.table, (n,), (n, *(row.row or ())[1:])) for n, row in lines))


def _fleet_of(row: RowChange) -> str:
    columns = row.row or ()
    # Every table has its fleet in its first column, or behind the one that is its key.
    place = {"journal": 1, "records": 1, "intents": 1, "shared_intents": 1, "tombstones": 1}.get(row.table, 0)
    return str(columns[place])


def _set_file_aside(path: Path, now: datetime) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in _SUFFIXES:
        part = path.with_name(f"{path.name}{suffix}")
        if part.exists():
            part.rename(path.with_name(f"{path.name}.moved-{now:%Y%m%dT%H%M%S}{suffix}"))
