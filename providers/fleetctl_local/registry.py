"""What this machine's nodes are, on disk: one small JSON file a node, and a lock over all of them."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.codec import decode, encode
from fleetctl.errors import MAKE_ROOM, CapacityError, ProviderError, is_disk_full
from fleetctl.files import write_whole
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeState, Notice, NoticeKind
from fleetctl.paths import state_dir
from fleetctl_local.kernel import Ident

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_log = logging.getLogger("fleetctl_local")
_LOCK_WAIT_S = 20.0
_LOCK_POLL_S = 0.005
_NODE_PREFIX = "local-"
_MACHINE = "localhost"
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One node. Without a `leader` the order is on disk and the process may or may not have been started."""

    token: str
    owner: str
    fleet: str
    replica_id: str
    market: Market
    host: str
    port: int
    created_at: datetime
    leader: Ident | None = None
    stop_deadline: datetime | None = None
    stopper: Ident | None = None  # the reclaimer that carries the stop out
    notice_deadline: datetime | None = None
    taker: Ident | None = None  # the reclaimer that carries the interruption out
    ended_at: datetime | None = None
    exit_reason: str = ""
    log_tail: str = ""
    offering: str = ""
    gpu_indices: tuple[int, ...] = ()
    gpu_uuids: tuple[str, ...] = ()  # of the same GPUs: an index may be another's after a restart
    cpus: tuple[int, ...] = ()  # it may run on; empty: any
    shares_cpus: bool = False  # it has a part of the machine's processors and memory, having no GPUs
    shared_memory: tuple[str, ...] = ()  # segments its processes were seen to hold, as INODE:NAME
    temporary: str = ""  # its directory of temporary files, removed with it; empty: the system's

    @property
    def node_id(self) -> str:
        """The id the provider lists it under."""
        return _NODE_PREFIX + self.token

    @property
    def is_live(self) -> bool:
        """Whether it was started and has not been seen ended."""
        return self.leader is not None and self.ended_at is None

    def node(self) -> Node:
        """Return it as the port's noun."""
        return Node(
            id=self.node_id,
            token=self.token,
            owner=self.owner,
            fleet=self.fleet,
            replica_id=self.replica_id,
            state=self._state(),
            market=self.market,
            host=self.host,
            port=self.port,
            created_at=self.created_at,
            exit_reason=self.exit_reason,
            log_tail=self.log_tail,
            notice=self._notice(),
            offering=self.offering,
            machine_id=_MACHINE,
            gpu_indices=self.gpu_indices,
            cpus=self.cpus,
        )

    def _notice(self) -> Notice | None:
        if self.notice_deadline is None:
            return None
        return Notice(kind=NoticeKind.INTERRUPTION, deadline=self.notice_deadline, is_certain=True)

    def _state(self) -> NodeState:
        if self.ended_at is not None:
            return NodeState.GONE
        if self.leader is None:
            return NodeState.STARTING
        return NodeState.STOPPING if self.stop_deadline is not None else NodeState.RUNNING


def token_of(node_id: str) -> str:
    """Return the token in a node id; empty if it is not one of this provider's."""
    token = node_id.removeprefix(_NODE_PREFIX)
    return token if token != node_id and _SAFE_NAME.fullmatch(token) else ""


def check_name(what: str, name: str) -> None:
    """Raise ProviderError on a name that cannot be a file's."""
    if not _SAFE_NAME.fullmatch(name):
        raise ProviderError(f"{what} {name!r} cannot be a file name", hint="use letters, digits, dot, dash, underscore")


class Registry:
    """The directory of records. Whatever is read outside `locked()` may be changed by another process meanwhile.

    What was noted while the disk was full is read from memory, and written as soon as there is room.
    """

    def __init__(self) -> None:
        self._unwritten: dict[str, Record] = {}

    @property
    def directory(self) -> Path:
        """Where the records are; follows XDG_STATE_HOME."""
        return state_dir() / "local" / "nodes"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude every other writer of this machine, creators of nodes included.

        A process between fork and exec still holds its creator's lock, so under the lock no node is half born.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self.directory.with_name("nodes.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _flock(fd)
            self._write_noted()
            yield
        finally:
            os.close(fd)

    def get(self, token: str) -> Record | None:
        """Return one record, or None. A torn one is none: the tags on its process tell the rest."""
        try:
            stored = decode(Record, self._path(token).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return self._unwritten.get(token, stored)

    def all(self) -> tuple[Record, ...]:
        """Return every record, oldest first."""
        if not self.directory.is_dir():
            return ()
        with os.scandir(self.directory) as entries:
            tokens = [entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")]
        found = [record for token in tokens if (record := self.get(token)) is not None]
        return tuple(sorted(found, key=lambda record: (record.created_at, record.token)))

    def put(self, record: Record) -> Record:
        """Store a record so that it outlives a power cut, whole or not at all. Raises CapacityError on a full disk."""
        try:
            write_whole(self._path(record.token), encode(record), mode=0o600, is_durable=True)
        except OSError as exc:
            if is_disk_full(exc):
                raise CapacityError(f"{self.directory}: disk full", hint=MAKE_ROOM) from exc
            raise
        self._unwritten.pop(record.token, None)
        return record

    def note(self, record: Record) -> Record:
        """Store what has happened to a node that is on record; on a full disk later, as it is so either way."""
        try:
            return self.put(record)
        except CapacityError as exc:
            if record.token not in self._unwritten:
                _log.warning("%s is written down once there is room: %s", record.replica_id, exc.message)
            self._unwritten[record.token] = record
            return record

    def remove(self, token: str) -> None:
        """Forget a node."""
        self._unwritten.pop(token, None)
        for path in (self._path(token), self.taken_mark(token)):
            with suppress(FileNotFoundError):
                path.unlink()

    def taken_mark(self, token: str) -> Path:
        """Return the file that is there once an interruption has killed the node."""
        return self.directory / f"{token}.taken"

    def _write_noted(self) -> None:
        for token, record in list(self._unwritten.items()):
            if not self._path(token).exists():
                del self._unwritten[token]  # another process has forgotten it
                continue
            try:
                self.put(record)
            except CapacityError:
                return

    def _path(self, token: str) -> Path:
        return self.directory / f"{token}.json"


def _flock(fd: int) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise ProviderError(
                    f"another process has held the local node registry for {_LOCK_WAIT_S:g} s",
                    hint="a stopped (Ctrl-Z) fleetctl holds it: resume or end it",
                ) from exc
            SYSTEM_CLOCK.sleep_blocking(_LOCK_POLL_S)
        else:
            return
