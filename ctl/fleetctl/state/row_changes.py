"""Which rows a transaction changed, found by triggers; and the same rows put into another copy of the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

Value = str | int | float | None

# Made with each copy, and no part of what is kept: whose store it is lies beside all fleets.
_KEPT_ELSEWHERE = ("identity", "schema_version")


class RowChange(msgspec.Struct, frozen=True, array_like=True):
    """A row as one commit left it; None: it was deleted."""

    commit: int
    table: str
    key: tuple[Value, ...]
    row: tuple[Value, ...] | None


class RowChanges:
    """Notes the keys of changed rows beside a database, in tables of its connection that nobody else sees."""

    def __init__(self, connection: sqlite3.Connection, *, is_noting: bool = True) -> None:
        self._connection = connection
        self._is_noting = is_noting
        self._keys = {name: _key_columns(connection, name) for name in _tables(connection)}
        if not is_noting:
            return
        # Without a key: a statement's own conflict clause would go for the triggers' inserts too.
        connection.execute("CREATE TEMP TABLE changed (name TEXT, key TEXT)")
        for table, columns in self._keys.items():
            for event, rows in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
                noted = " ".join(_note(table, columns, row) for row in rows)
                connection.execute(
                    f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {noted} END"
                )

    def take(self, commit: int) -> tuple[RowChange, ...]:
        """Return what has changed since the last call, inside the transaction that changed it."""
        found = self._connection.execute("SELECT DISTINCT name, key FROM changed").fetchall()
        self._connection.execute("DELETE FROM changed")
        return tuple(self._change(commit, table, tuple(json.loads(key))) for table, key in found)

    def whole(self, commit: int) -> tuple[RowChange, ...]:
        """Return every row there is."""
        found = []
        for table, columns in self._keys.items():
            order = ", ".join(columns)
            cursor = self._connection.execute(f"SELECT {order}, * FROM {table} ORDER BY {order}")  # noqa: S608  # of our schema
            found += [RowChange(commit, table, row[: len(columns)], row[len(columns) :]) for row in cursor]
        return tuple(found)

    def apply(self, changes: Iterable[RowChange]) -> None:
        """Bring rows in that another copy's transaction changed. Raises KeyError for a table that is not known."""
        self.put(changes)
        if self._is_noting:
            self._connection.execute("DELETE FROM changed")

    def put(self, changes: Iterable[RowChange]) -> None:
        """Bring rows in as changes of this transaction. Raises KeyError for a table that is not known."""
        for change in changes:
            columns = self._keys[change.table]
            if change.row is None:
                where = " AND ".join(f"{column} = ?" for column in columns)
                self._connection.execute(f"DELETE FROM {change.table} WHERE {where}", change.key)  # noqa: S608  # of our schema
            else:
                marks = ", ".join("?" * len(change.row))
                self._connection.execute(f"INSERT OR REPLACE INTO {change.table} VALUES ({marks})", change.row)  # noqa: S608  # of our schema

    def _change(self, commit: int, table: str, key: tuple[Value, ...]) -> RowChange:
        where = " AND ".join(f"{column} = ?" for column in self._keys[table])
        row = self._connection.execute(f"SELECT * FROM {table} WHERE {where}", key).fetchone()  # noqa: S608  # of our schema
        return RowChange(commit, table, key, row)


def merged(changes: Iterable[RowChange]) -> tuple[RowChange, ...]:
    """Return the last change of each row, in the order of commits."""
    last = {(change.table, change.key): change for change in changes}
    return tuple(sorted(last.values(), key=lambda change: change.commit))


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name")
    return [name for (name,) in found if name not in _KEPT_ELSEWHERE and not name.startswith("sqlite_")]


def _key_columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    columns = connection.execute("SELECT name, pk FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return tuple(name for name, _ in columns)


def _note(table: str, columns: tuple[str, ...], row: str) -> str:
    key = ", ".join(f"{row}.{column}" for column in columns)
    return f"INSERT INTO changed VALUES ('{table}', json_array({key}));"  # noqa: S608  # of our schema
