"""Records that are read again and again: what is stored as it was at the last reading is not decoded anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from fleetctl.state.rows import from_text

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class KeptRecords(Generic[T]):
    """The records of the last reading of one query, for whoever makes it every second.

    Besides the decoding, that spares its reader whatever it derives of a record: one that nobody has changed is the same
    object as before.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._kept: dict[str, tuple[str, T]] = {}  # by key, as stored and decoded

    def read(self, rows: Iterable[tuple[str, str]]) -> tuple[T, ...]:
        """Return the records of these rows, (key, record as stored); no others are kept. Raises DamagedStateError."""
        before = self._kept
        self._kept = kept = {key: self._record(before.get(key), text) for key, text in rows}
        return tuple([record for _, record in kept.values()])

    def _record(self, known: tuple[str, T] | None, text: str) -> tuple[str, T]:
        return known if known is not None and known[0] == text else (text, from_text(self._kind, text))
