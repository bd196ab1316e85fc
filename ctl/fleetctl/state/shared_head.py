"""The objects that a fleet's state consists of where many machines share it: a small head, and parts that never change.

The head is replaced by every commit, on condition that it is still the one that the transaction read. It has the newest
changes in itself and names the parts that hold the rest: a base, every row there was at some commit, and segments, the
changes between. What is written a tick so is as small as what changed; a journal of 100,000 lines lies in the parts.
"""

from __future__ import annotations

import zlib

import msgspec

from fleetctl.errors import DamagedStateError, StateError
from fleetctl.state.row_changes import RowChange

_FORMAT = 1
_MAGIC = b"fleetctl state\n"
_WRITES_KEPT = 64  # of the newest commits: so many may follow one whose answer was lost before it is looked for


class StatePart(msgspec.Struct, frozen=True):
    """An object of changes up to a commit."""

    key: str
    through: int
    size_bytes: int


class StateHead(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet's state is now."""

    format: int = _FORMAT
    schema: int  # of the tables that the rows are of
    fleet: str
    commit: int = 0  # grows by one with each write
    writes: tuple[str, ...] = ()  # by which a writer knows its commit again, oldest first
    base: tuple[StatePart, ...] = ()
    segments: tuple[StatePart, ...] = ()
    changes: tuple[RowChange, ...] = ()  # since the newest part

    def followed_by(self, write: str, changes: tuple[RowChange, ...]) -> StateHead:
        """Return the head of the next commit."""
        return msgspec.structs.replace(
            self, commit=self.commit + 1, writes=(*self.writes, write)[-_WRITES_KEPT:], changes=changes
        )

    @property
    def parts(self) -> tuple[StatePart, ...]:
        """Every object it names, in the order in which they are read."""
        return (*self.base, *self.segments)


class _Format(msgspec.Struct):
    format: int


def pack(value: StateHead | tuple[RowChange, ...]) -> bytes:
    """Return an object's bytes."""
    return _MAGIC + zlib.compress(msgspec.msgpack.encode(value), 1)


def unpack_head(data: bytes, where: str) -> StateHead:
    """Return a head. Raises DamagedStateError; StateError for one of a newer version of fleetctl."""
    raw = _unpack(data, where)
    try:
        if msgspec.msgpack.decode(raw, type=_Format).format > _FORMAT:
            raise StateError(f"{where} was written by a newer fleetctl", hint="upgrade fleetctl on this machine")
        return msgspec.msgpack.decode(raw, type=StateHead)
    except msgspec.MsgspecError as exc:
        raise _damaged(where, str(exc)) from exc


def unpack_changes(data: bytes, where: str) -> tuple[RowChange, ...]:
    """Return what a part holds. Raises DamagedStateError."""
    try:
        return msgspec.msgpack.decode(_unpack(data, where), type=tuple[RowChange, ...])
    except msgspec.MsgspecError as exc:
        raise _damaged(where, str(exc)) from exc


def _unpack(data: bytes, where: str) -> bytes:
    if not data.startswith(_MAGIC):
        raise _damaged(where, "it is no state of fleetctl's")
    try:
        return zlib.decompress(data[len(_MAGIC) :])
    except zlib.error as exc:
        raise _damaged(where, str(exc)) from exc


def _damaged(where: str, how: str) -> DamagedStateError:
    return DamagedStateError(
        f"{where} is damaged: {how}", hint="bring an earlier version of the object back, if the bucket keeps them"
    )
