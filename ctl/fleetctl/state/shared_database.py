"""One fleet's database in memory, of which objects elsewhere are the truth: read anew before it is used, committed to them.

A transaction runs on the copy that is at hand. Its commit replaces the head on condition that nobody else's came between;
where one did, OutdatedVersionError ends it, nothing is changed, and the caller runs it again. So whatever a transaction
read, the lease and its epoch foremost, is still so at the instant it is stored, and no clock takes part in it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fleetctl.errors import DamagedStateError, FleetctlError, MissingStateError, StateError
from fleetctl.ports.objects import OutdatedVersionError, StoredObject, UnconfirmedWriteError
from fleetctl.state.database import Database
from fleetctl.state.migrations import STEPS, check, migrate
from fleetctl.state.row_changes import RowChange, RowChanges, merged
from fleetctl.state.shared_head import StateHead, StatePart, pack, unpack_changes, unpack_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.clock import BlockingClock
    from fleetctl.ports.objects import ObjectStore

# What passes this moves to a segment. With 128 KiB every tick of a fleet of 1,000 replicas wrote 55 KB, as the rows of its
# start stayed in the head (2026-11-24).
HEAD_BYTES_MAX = 32 * 1024
_SEGMENTS_MAX = 16  # a command that opens the state reads them all
_SEGMENTS_BYTES_MIN = 512 * 1024  # below it a new base is no gain
_PART_ROWS_MAX = 20_000  # of a base; an object of some MB
_READINGS_MAX = 5  # of a head whose parts are replaced while they are read
_AGAIN_S = 0.1


class SharedDatabase(Database):
    """Implements what the store needs of a Database, on an ObjectStore. Threads of one process take turns."""

    def __init__(  # where it lies and by which bounds, each named
        self,
        objects: ObjectStore,
        *,
        directory: str,
        fleet: str,
        clock: BlockingClock,
        deadline_s: float,
        head_bytes_max: int = HEAD_BYTES_MAX,
    ) -> None:
        super().__init__(None)
        self._objects = objects
        self._directory = directory
        self._clock = clock
        self._deadline_s = deadline_s
        self._head_bytes_max = head_bytes_max
        self._head = StateHead(schema=STEPS[-1].version, fleet=fleet)
        self._known: StoredObject | None = None  # the head as it was read or written last
        self._is_current = False  # whether `_known` may be written over without being looked at
        self._read_by: int | None = None  # the thread whose reads are of one reading
        self.path = Path(objects.location)  # for messages; it is no path
        self._changes = self._begin(STEPS[-1].version)

    @property
    def head(self) -> StateHead:
        """The head as it was read last."""
        return self._head

    @property
    def exists(self) -> bool:
        """Whether anything of this fleet was stored, as last read."""
        return self._known is not None

    @property
    def head_bytes(self) -> int:
        """What the head takes, as last read."""
        return len(self._known.data) if self._known is not None else 0

    @property
    def place(self) -> str:
        """Where it lies, as leases name it."""
        return self._objects.location

    @contextmanager
    def write(self, *, durable: bool, is_essential: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction whose end replaces the head. Raises OutdatedVersionError where another's came between."""
        del durable, is_essential  # what is stored there is stored for good
        if self._connection is not None and self._joined_by == threading.get_ident():
            yield self._connection
            return
        with self._turn, self._translated():
            if not self._is_current:
                self._refresh()
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self._commit(self._changes.take(self._head.commit + 1))
            except BaseException as exc:
                connection.execute("ROLLBACK")
                # What was refused by an old reading was perhaps refused wrongly.
                if isinstance(exc, FleetctlError) and exc.__cause__ is None and self._is_current:
                    self._confirm()
                raise
            connection.execute("COMMIT")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run reads of what is stored now."""
        if self._connection is not None and self._joined_by == threading.get_ident():
            yield self._connection
            return
        with self._turn, self._translated():
            if self._read_by != threading.get_ident():
                self._refresh()
            yield self._open()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let the reads of a block, of this thread, be of one reading."""
        with self.read():
            pass
        self._read_by, before = threading.get_ident(), self._read_by
        try:
            yield
        finally:
            self._read_by = before

    def whole(self) -> tuple[RowChange, ...]:
        """Return every row."""
        with self.read():
            return self._changes.whole(self._head.commit)

    def put_rows(self, rows: Iterable[RowChange]) -> None:
        """Store rows of another state, in one commit."""
        with self.write(durable=True):
            self._changes.put(rows)

    def has_token(self, table: str, token: str) -> bool:
        """Whether a table whose key is a token has it."""
        with self.read() as db:
            return db.execute(f"SELECT 1 FROM {table} WHERE token = ?", (token,)).fetchone() is not None  # noqa: S608  # ours

    def is_replaced(self) -> bool:
        """Return False: a state that another came in the place of is told by its owner, and its leases by their epochs."""
        return False

    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None  # noqa: S101  # since __init__
        return self._connection

    # Reading

    def _refresh(self) -> None:
        for _ in range(_READINGS_MAX):
            found = self._objects.get(self._key("head"), known=self._known)
            if found is None and self._known is not None:
                raise MissingStateError(
                    f"{self._where('head')} is gone", hint="bring it back, and all goes on as it was"
                )
            if found is not None and found is not self._known:
                head = unpack_head(found.data, self._where("head"))
                check(head.schema)
                if not self._bring_in(head):
                    continue  # its parts were replaced by a newer base since
                self._head, self._known = head, found
            self._is_current = True
            return
        raise DamagedStateError(
            f"{self._where('head')} names objects that are not there",
            hint="bring them back, if the bucket keeps earlier versions",
        )

    def _bring_in(self, head: StateHead) -> bool:
        """Make the copy in memory what a head says; False: a part of it is not there any more."""
        since = self._head.commit if self._known is not None else 0
        is_whole = (
            self._known is None
            or head.commit < since
            or head.schema != STEPS[-1].version
            or any(part.through > since for part in head.base)
        )
        if is_whole:
            since = 0
        changes: list[RowChange] = []
        for part in head.parts:
            if part.through > since:
                found = self._objects.get(self._key(part.key))
                if found is None:
                    return False
                changes += unpack_changes(found.data, self._where(part.key))
        new = [change for change in (*changes, *head.changes) if change.commit > since]
        rows = self._begin(head.schema) if is_whole else self._changes
        connection = self._open()
        connection.execute("BEGIN")
        try:
            rows.apply(new)
        except (KeyError, sqlite3.Error) as exc:
            connection.execute("ROLLBACK")
            self._known = None
            raise DamagedStateError(
                f"{self._where('head')} has rows that fit no table: {exc}", hint="use the fleetctl that wrote it"
            ) from exc
        connection.execute("COMMIT")
        if head.schema != STEPS[-1].version:
            migrate(connection)
            rows = RowChanges(connection)
        self._changes = rows
        return True

    def _begin(self, schema: int) -> RowChanges:
        """Begin an empty copy of a schema."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        migrate(connection, tuple(step for step in STEPS if step.version <= schema))
        if self._connection is not None:
            self._connection.close()
        self._connection = connection
        return RowChanges(connection, is_noting=schema == STEPS[-1].version)

    def _confirm(self) -> None:
        """Return if what was read is still so. Raises OutdatedVersionError."""
        found = self._objects.get(self._key("head"), known=self._known)
        if found is not self._known:
            self._is_current = False
            raise OutdatedVersionError(f"{self._where('head')} has changed")

    # Writing

    def _commit(self, changes: tuple[RowChange, ...]) -> None:
        if not changes:
            self._confirm()
            return
        write = os.urandom(8).hex()
        head = self._head.followed_by(write, merged((*self._head.changes, *changes)))
        data = pack(head)
        is_rewritten = self._head.schema != STEPS[-1].version
        if is_rewritten or len(data) > self._head_bytes_max:
            is_rewritten = is_rewritten or self._is_base_due()
            head = self._rewritten(head) if is_rewritten else self._with_segment(head)
            data = pack(head)
        self._is_current = False  # until it is known that what is there is ours
        version = self._replace_head(data, write)
        self._head, self._known = head, StoredObject(data=data, version=version)
        self._is_current = bool(version)
        if is_rewritten:
            self._remove_unused()

    def _is_base_due(self) -> bool:
        segments_bytes = sum(part.size_bytes for part in self._head.segments)
        base_bytes = sum(part.size_bytes for part in self._head.base)
        return len(self._head.segments) >= _SEGMENTS_MAX or segments_bytes > max(base_bytes, _SEGMENTS_BYTES_MIN)

    def _with_segment(self, head: StateHead) -> StateHead:
        parts = self._put_parts("segment", head, head.changes)
        return msgspec.structs.replace(head, segments=(*head.segments, *parts), changes=())

    def _rewritten(self, head: StateHead) -> StateHead:
        rows = self._changes.whole(head.commit)
        bounds = (*range(0, len(rows), _PART_ROWS_MAX), len(rows))
        base = tuple(part for begin, end in pairwise(bounds) for part in self._put_parts("base", head, rows[begin:end]))
        return msgspec.structs.replace(head, schema=STEPS[-1].version, base=base, segments=(), changes=())

    def _put_parts(self, kind: str, head: StateHead, changes: tuple[RowChange, ...]) -> tuple[StatePart, ...]:
        """Write changes as one object, or in halves until each is no larger than an object may be."""
        data, bytes_max = pack(changes), self._objects.object_bytes_max
        if bytes_max is None or len(data) <= bytes_max:
            return (self._put_part(kind, head, data),)
        if len(changes) == 1:
            raise StateError(
                f"{self._where(kind)}: a row of {changes[0].table} has {len(data)} bytes, and {bytes_max} is all that an object may have there",
                hint="keep the state elsewhere: fleetctl state migrate s3://BUCKET/PREFIX",
            )
        middle = len(changes) // 2
        return (
            *self._put_parts(kind, head, changes[:middle]),
            *self._put_parts(kind, head, changes[middle:]),
        )

    def _put_part(self, kind: str, head: StateHead, data: bytes) -> StatePart:
        key = f"{kind}-{head.commit:012d}-{os.urandom(8).hex()}"
        try:
            self._objects.put(self._key(key), data, replaces=None)
        except UnconfirmedWriteError as exc:
            found = self._objects.get(self._key(key))
            if found is None or found.data != data:  # nothing names it yet: the transaction is run again
                raise OutdatedVersionError(exc.message) from exc
        return StatePart(key=key, through=head.commit, size_bytes=len(data))

    def _replace_head(self, data: bytes, write: str) -> str:
        """Write the head and return its version; empty: it is in force, and another has been written since."""
        replaces = self._known.version if self._known is not None else None
        until_s = self._clock.monotonic_s() + self._deadline_s
        is_sent = False
        while True:
            try:
                return self._objects.put(self._key("head"), data, replaces=replaces)
            except OutdatedVersionError:
                if not is_sent:
                    raise
                return self._settled(data, write, replaces)
            except UnconfirmedWriteError as exc:
                # It may come into force at any time until another does; sent again it still does so once at most.
                is_sent = True
                found = self._objects.get(self._key("head"))
                if (found.version if found is not None else None) != replaces:
                    return self._settled(data, write, replaces)
                if self._clock.monotonic_s() > until_s:
                    raise StateError(
                        f"{self._where('head')}: whether the last write was stored is not known",
                        hint="look at the fleet before the same command is given again",
                    ) from exc
                self._clock.sleep_blocking(_AGAIN_S)

    def _settled(self, data: bytes, write: str, replaces: str | None) -> str:
        """Return the version of a write of unknown end, by what is there now. Raises OutdatedVersionError: it is not."""
        found = self._objects.get(self._key("head"))
        if found is not None and found.data == data:
            return found.version
        if found is not None and write in unpack_head(found.data, self._where("head")).writes:
            return ""
        raise OutdatedVersionError(f"{self._where('head')} is not of version {replaces or 'none'} any more")

    def _remove_unused(self) -> None:
        """Remove parts that no head can name any more: whoever wrote one for an earlier commit has lost that."""
        named = {part.key for part in self._head.parts}
        for key in self._objects.list_keys(self._key("")):
            part = key.rsplit("/", 1)[1]
            kind, _, rest = part.partition("-")
            commit = rest.partition("-")[0]
            if (
                kind in ("base", "segment")
                and part not in named
                and commit.isdigit()
                and int(commit) <= self._head.commit
            ):
                self._objects.delete(key)

    def _key(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _where(self, name: str) -> str:
        return f"{self._objects.location}/{self._directory}/{name}"
