"""One SQLite file: opened safely by any number of processes, its errors translated."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import (
    MAKE_ROOM,
    DamagedStateError,
    DiskFullError,
    FencedError,
    LockHeldError,
    MissingStateError,
    StateError,
    state_error,
)
from fleetctl.files import write_whole
from fleetctl.locks import FileLock
from fleetctl.state.migrations import STEPS, Step, check, migrate, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Default BEGIN lost 375 of 800 writes of eight processes to "database is locked"; IMMEDIATE with 30 s lost none.
_BUSY_TIMEOUT_S = 30.0
_NO_FILE = (0, 0)
# Kept for the writes that must succeed on a full disk: a lease, the end of a fleet. A fleet's whole end writes 200 KB.
_RESERVE_BYTES = 1024 * 1024
_FREE_BYTES_MIN = 2 * _RESERVE_BYTES  # with less the disk counts as full, also while the reserve is given up

_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Database:
    """A connection with short, immediate transactions. Threads of one process take turns. Without a path: in memory."""

    def __init__(
        self,
        path: Path | None,
        *,
        steps: Sequence[Step] = STEPS,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
        opens_on_use: bool = False,
    ) -> None:
        self.path = path or Path(":memory:")
        self._turn = threading.Lock()
        self._steps = steps
        self._busy_timeout_s = busy_timeout_s
        self._identity = _NO_FILE
        self._joined_by: int | None = None  # the thread whose calls are part of the transaction that it has begun
        self._connection = _empty(steps) if path is None else None
        if self._connection is None and not opens_on_use:
            with self._translated():
                self._open()

    @property
    def place(self) -> str:
        """Where it lies, as leases name it."""
        return str(self.path.absolute())

    @contextmanager
    def write(self, *, durable: bool, is_essential: bool = False) -> Iterator[sqlite3.Connection]:
        """Run a transaction that takes the write lock at once.

        `durable` waits for the disk: what must never be forgotten, power cut or not, such as an intent. Without it a
        commit still survives every killed process, and only the last moments before a power cut may go.
        `is_essential` gets the room that is kept in reserve where the disk is full.
        """
        if self._connection is not None and self._joined_by == threading.get_ident():
            yield self._connection
            return
        with self._turn, self._translated():
            connection = self._connection or self._open()
            if is_essential and self._identity != _NO_FILE:
                self._use_or_keep_reserve(connection)
            with _transaction(connection, durable=durable) as begun:
                yield begun

    @contextmanager
    def together(self, *, durable: bool) -> Iterator[None]:
        """Run a block whose calls, of this thread, are one transaction."""
        with self.write(durable=durable):
            self._joined_by, before = threading.get_ident(), self._joined_by
            try:
                yield
            finally:
                self._joined_by = before

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Run reads; each statement sees one consistent snapshot and never waits for writers."""
        if self._connection is not None and self._joined_by == threading.get_ident():
            yield self._connection
            return
        with self._turn, self._translated():
            if self._connection is None and not self.path.exists():
                with closing(_empty(self._steps)) as nothing:  # asking makes no file
                    yield nothing
            else:
                yield self._connection or self._open()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let the reads of a block be of one reading where each would go elsewhere: a file is at hand."""
        yield

    def is_replaced(self) -> bool:
        """Whether another file has come into the place of the one that is open; one that is only gone has not."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return self._identity not in (_NO_FILE, (found.st_dev, found.st_ino))

    def has_disk_space(self) -> bool:
        """Whether the disk has room for the writes of some minutes; memory has."""
        return self._identity == _NO_FILE or _free_bytes(self.path.parent) >= _FREE_BYTES_MIN

    def is_in_place(self) -> bool:
        """Whether the open file is the one at its path; so is one that was not opened yet, or is in memory."""
        if self._identity == _NO_FILE:
            return True
        try:
            found = self.path.stat()
        except OSError:
            return False
        return self._identity == (found.st_dev, found.st_ino)

    def check_place(self) -> None:
        """Return if `is_in_place`. Raises FencedError where another file is there, MissingStateError where none is."""
        if self.is_replaced():
            raise FencedError(f"{self.path} is another file than the one this process has open")
        if not self.is_in_place():
            raise MissingStateError(f"{self.path} is gone", hint="move it back, and all goes on as it was")

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            if self._connection is not None:
                self._connection.close()

    def _use_or_keep_reserve(self, connection: sqlite3.Connection) -> None:
        reserve = self.path.with_name(f"{self.path.name}.reserve")
        if self.has_disk_space():
            if not reserve.exists() and _free_bytes(self.path.parent) > _FREE_BYTES_MIN + _RESERVE_BYTES:
                write_whole(reserve, bytes(_RESERVE_BYTES), mode=0o600)
            return
        reserve.unlink(missing_ok=True)
        # What the log holds goes into the file, and the log is written from its beginning again, in the room it has.
        connection.execute("PRAGMA wal_checkpoint(RESTART)")

    def _open(self) -> sqlite3.Connection:
        _make_private(self.path)
        # A new file is written before SQLite puts its shared memory beside it. SQLite takes an emptied one for new, waits
        # for the others who have it open, and deletes what their log still holds.
        if self.path.stat().st_size == 0 and self.path.with_name(f"{self.path.name}-shm").exists():
            raise self._damaged("it is empty, though it is in use")
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection, self._steps)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        found = self.path.stat()
        self._identity = (found.st_dev, found.st_ino)
        return connection

    def _prepare(self, connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
        found = version_of(connection)
        check(found, steps)
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        if mode == "wal" and found == steps[-1].version:
            return
        # The change to WAL does not wait for other openers as other statements do, so openers take turns here.
        with FileLock(self.path.with_name(self.path.name + ".lock")).hold(wait_s=self._busy_timeout_s):
            connection.execute("PRAGMA journal_mode = WAL")
            found = version_of(connection)
            if 0 < found < steps[-1].version:
                self._copy_aside(connection, found)
            with _transaction(connection, durable=True) as begun:
                migrate(begun, steps)

    def _copy_aside(self, connection: sqlite3.Connection, version: int) -> None:
        copy = self.path.with_name(f"{self.path.name}.schema{version}")
        _make_private(copy)
        target = sqlite3.connect(copy)
        try:
            connection.backup(target)
        finally:
            target.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a bug of ours, not the file's state
        except sqlite3.OperationalError as exc:
            if (getattr(exc, "sqlite_errorcode", 0) & 0xFF) in _BUSY_CODES:
                raise LockHeldError(
                    f"{self.path} stayed locked for {self._busy_timeout_s:g} s",
                    hint=f"see who holds it with `fuser {self.path}`, then retry",
                ) from exc
            if (getattr(exc, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_FULL:
                raise DiskFullError(f"{self.path}: disk full", hint=MAKE_ROOM) from exc
            if (getattr(exc, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_ERROR:
                raise self._damaged(f"it is no state of fleetctl's ({exc})") from exc
            raise StateError(f"{self.path}: {exc}", hint="check that the disk has room and the file is yours") from exc
        except sqlite3.DatabaseError as exc:
            raise self._damaged(str(exc)) from exc
        except OSError as exc:
            raise state_error(self.path, exc) from exc

    def _damaged(self, how: str) -> DamagedStateError:
        return DamagedStateError(
            f"{self.path} is damaged: {how}",
            hint="restore a copy; or end what it knew (`fleetctl down`), set it aside whole "
            f"(`mkdir {self.path.parent}/damaged; mv {self.path}* {self.path.parent}/damaged`), and run `fleetctl up`",
        )


@contextmanager
def _transaction(connection: sqlite3.Connection, *, durable: bool) -> Iterator[sqlite3.Connection]:
    # In WAL mode FULL syncs the log at each commit, the earlier commits with it; NORMAL only at checkpoints.
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        if connection.in_transaction:  # a full disk rolls back by itself
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _empty(steps: Sequence[Step]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(connection, steps)
    return connection


def _make_private(path: Path) -> None:
    """Create the file readable by its owner alone; SQLite gives the log beside it the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A file that is there is not opened: closing it would end every lock this process has on it by POSIX's rules, and
    # another process would then take itself for the last user and delete the log under our other connections.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path)) from None
