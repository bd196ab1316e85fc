"""The schema, as the numbered steps that made it. A step that was ever released is never edited: a new one is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import StateError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of schema; runs inside the migration's single transaction."""

    version: int
    statements: tuple[str, ...]


# Records are JSON with their keys broken out. A field added to a noun with a default needs no step: older records
# decode with the default, and an older program ignores what it does not know.
_FIRST = Step(
    version=1,
    statements=(
        "CREATE TABLE identity (owner TEXT NOT NULL)",
        """CREATE TABLE fleets (
            name TEXT PRIMARY KEY, phase TEXT NOT NULL, generation INTEGER NOT NULL, record TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE replicas (
            fleet TEXT NOT NULL, id TEXT NOT NULL, lane TEXT NOT NULL, state TEXT NOT NULL,
            created_s REAL NOT NULL, changed_s REAL NOT NULL, drain_requested INTEGER NOT NULL, record TEXT NOT NULL,
            PRIMARY KEY (fleet, id)
        ) WITHOUT ROWID""",
        """CREATE TABLE numbers (
            fleet TEXT NOT NULL, lane TEXT NOT NULL, last INTEGER NOT NULL, PRIMARY KEY (fleet, lane)
        ) WITHOUT ROWID""",
        """CREATE TABLE intents (
            token TEXT PRIMARY KEY, fleet TEXT NOT NULL, replica_id TEXT NOT NULL, state TEXT NOT NULL,
            created_s REAL NOT NULL, record TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX intents_by_fleet ON intents (fleet, state)",
        "CREATE TABLE memories (fleet TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE journal (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, fleet TEXT NOT NULL, subject TEXT NOT NULL, record TEXT NOT NULL
        )""",
        "CREATE INDEX journal_by_fleet ON journal (fleet, seq)",
        "CREATE INDEX journal_by_subject ON journal (fleet, subject, seq)",
    ),
)

# Journal subjects got their kind: what the old names meant is told from their shape and action.
_TYPED_SUBJECTS = Step(
    version=2,
    statements=(
        """UPDATE journal SET subject = CASE
            WHEN subject IN ('fleet', 'gateway') THEN subject || '/' || subject
            WHEN json_extract(record, '$.action') = 'stop-orphaned-node' THEN 'node/' || subject
            WHEN subject GLOB '*-[0-9]*' THEN 'replica/' || subject
            ELSE 'lane/' || subject END""",
        """UPDATE journal SET record = json_set(record, '$.subject', json_object(
            'kind', substr(subject, 1, instr(subject, '/') - 1), 'name', substr(subject, instr(subject, '/') + 1)))""",
    ),
)

# A replica's id names no lane any longer, so a fleet numbers its replicas as one.
_NUMBERS_BY_FLEET = Step(
    version=3,
    statements=(
        "CREATE TABLE replica_numbers (fleet TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO replica_numbers (fleet, last) SELECT fleet, max(last) FROM numbers GROUP BY fleet",
        "DROP TABLE numbers",
    ),
)

# What may still be there although its replica is recorded as ended; it outlives the fleet.
_TOMBSTONES = Step(
    version=4,
    statements=(
        """CREATE TABLE tombstones (
            token TEXT PRIMARY KEY, fleet TEXT NOT NULL, ended_s REAL NOT NULL, record TEXT NOT NULL
        ) WITHOUT ROWID""",
    ),
)

# What the nodes of a fleet share at the provider, with the intent to prepare or tear it down.
_SHARED_INTENTS = Step(
    version=5,
    statements=(
        """CREATE TABLE shared_intents (
            token TEXT PRIMARY KEY, fleet TEXT NOT NULL, created_s REAL NOT NULL, record TEXT NOT NULL
        ) WITHOUT ROWID""",
    ),
)

# Ladder steps were stored by their number and are stored by their name. A controller's memory, which has them too, is
# worked out anew from the plan and what is there; its fields have changed with it.
_STEPS_BY_NAME = Step(
    version=6,
    statements=(
        """UPDATE fleets SET record = json_set(record, '$.overrides.step', (
            SELECT json_group_object(key, CASE value
                WHEN 0 THEN 'normal' WHEN 1 THEN 'pause-batch' WHEN 2 THEN 'cap-tokens' WHEN 3 THEN 'cap-context'
                WHEN 4 THEN 'spill' WHEN 5 THEN 'shed' WHEN 6 THEN 'breaker' ELSE value END)
            FROM json_each(record, '$.overrides.step')))
        WHERE json_type(record, '$.overrides.step') = 'object'""",
        "DELETE FROM memories",
    ),
)

# Which controller may write to a fleet. It outlives the fleet, so that its epochs only grow.
_LEASES = Step(
    version=7,
    statements=(
        "CREATE TABLE leases (fleet TEXT PRIMARY KEY, epoch INTEGER NOT NULL, record TEXT NOT NULL) WITHOUT ROWID",
    ),
)

# What each lane's requests came to over its objective's window: one record a lane, of a bounded number of buckets.
_BUDGET_LEDGERS = Step(
    version=8,
    statements=(
        """CREATE TABLE budget_ledgers (
            fleet TEXT NOT NULL, lane TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (fleet, lane)
        ) WITHOUT ROWID""",
    ),
)

# The reason of a replica's first journal entry has its node's name in it, as the others of nodes have.
_NODE_REQUESTED = Step(
    version=9,
    statements=(
        """UPDATE journal SET record = json_set(record, '$.code', 'node-requested', '$.action', 'request-node')
        WHERE json_extract(record, '$.code') = 'ordered'""",
    ),
)

# What is kept beside a fleet's own records: audit, runs of runbooks, rollouts and the like, one bounded collection each.
_RECORDS = Step(
    version=10,
    statements=(
        """CREATE TABLE records (
            collection TEXT NOT NULL, fleet TEXT NOT NULL, key TEXT NOT NULL, at_s REAL NOT NULL, record TEXT NOT NULL,
            PRIMARY KEY (collection, fleet, key)
        ) WITHOUT ROWID""",
        "CREATE INDEX records_by_time ON records (collection, fleet, at_s)",
    ),
)

STEPS: tuple[Step, ...] = (
    _FIRST, _TYPED_SUBJECTS, _NUMBERS_BY_FLEET, _TOMBSTONES, _SHARED_INTENTS, _STEPS_BY_NAME, _LEASES, _BUDGET_LEDGERS,
    _NODE_REQUESTED, _RECORDS,
)  # fmt: skip


def version_of(connection: sqlite3.Connection) -> int:
    """Return the file's schema version; 0 for an empty file. Raises StateError on a database that is not ours."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise StateError(
            "the state file is a database of another program", hint="set XDG_STATE_HOME to a directory of your own"
        )
    row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(row[0] or 0)


def check(found: int, steps: Sequence[Step] = STEPS) -> None:
    """Raise StateError if the file is newer than this program."""
    known = steps[-1].version
    if found > known:
        raise StateError(
            f"the state file has schema {found}, and this fleetctl knows only up to {known}",
            hint="a newer fleetctl wrote it: upgrade fleetctl, or point XDG_STATE_HOME elsewhere",
        )


def migrate(connection: sqlite3.Connection, steps: Sequence[Step] = STEPS) -> tuple[int, ...]:
    """Bring the file to the newest step and return the steps taken. The caller holds the transaction."""
    found = version_of(connection)
    check(found, steps)
    if found == 0:
        connection.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY)")
    missing = [step for step in steps if step.version > found]
    for step in missing:
        for statement in step.statements:
            connection.execute(statement)
        connection.execute("INSERT INTO schema_version (version) VALUES (?)", (step.version,))
    return tuple(step.version for step in missing)
