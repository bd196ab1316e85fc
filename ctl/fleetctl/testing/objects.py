"""Objects in memory, with conditional writes, whose answers may be lost and whose writes may come late."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from fleetctl.errors import StateError
from fleetctl.ports.objects import OutdatedVersionError, StoredObject, UnconfirmedWriteError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fleetctl.ports.lease import Lease


class MemoryObjects:
    """Implements ObjectStore."""

    location = "memory://objects"

    def __init__(self, *, object_bytes_max: int | None = None) -> None:
        self.object_bytes_max = object_bytes_max
        self.objects: dict[str, StoredObject] = {}
        self.written: list[tuple[str, int]] = []  # keys and bytes, in order
        self.reads = 0
        self.shown: list[Lease] = []
        self.show_fault: StateError | None = None
        self.before_put: Callable[[str], None] = lambda _: None
        self._dice: random.Random | None = None
        self._lost = 0.0
        self._versions = 0
        self._late: list[tuple[str, bytes, str | None]] = []
        self._turn = threading.RLock()

    def lose_answers(self, dice: random.Random, share: float) -> None:
        """Lose a share of the answers to writes from now on, before the effect, after it, or while it is on its way."""
        self._dice, self._lost = dice, share

    def get(self, key: str, *, known: StoredObject | None = None) -> StoredObject | None:
        """Return an object, or None; `known` itself where that is still what there is."""
        with self._turn:
            self.reads += 1
            found = self.objects.get(key)
            return known if found is not None and known is not None and found.version == known.version else found

    def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object if its version is `replaces`."""
        self.before_put(key)
        with self._turn:
            self._arrive_late()
            if self._dice is not None and self._dice.random() < self._lost:
                return self._lose(key, data, replaces)
            return self._put(key, data, replaces)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self._turn:
            self.objects.pop(key, None)

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so."""
        with self._turn:
            return tuple(sorted(key for key in self.objects if key.startswith(prefix)))

    def show_lease(self, lease: Lease) -> None:
        """Keep a lease that is shown."""
        self.shown.append(lease)
        if self.show_fault is not None:
            raise self.show_fault

    def close(self) -> None:
        """Hold nothing to let go of."""

    def _put(self, key: str, data: bytes, replaces: str | None) -> str:
        if self.object_bytes_max is not None and len(data) > self.object_bytes_max:
            raise StateError(f"{key} has {len(data)} bytes")
        there = self.objects.get(key)
        if (there.version if there is not None else None) != replaces:
            raise OutdatedVersionError(f"{key} is of another version")
        self._versions += 1
        self.objects[key] = StoredObject(data=data, version=str(self._versions))
        self.written.append((key, len(data)))
        return str(self._versions)

    def _lose(self, key: str, data: bytes, replaces: str | None) -> str:
        assert self._dice is not None  # noqa: S101  # it has just been thrown
        match self._dice.randrange(3):
            case 0:  # cut after the effect
                self._put(key, data, replaces)
            case 1:  # on its way for a while
                self._late.append((key, data, replaces))
            case _:  # never came
                pass
        raise UnconfirmedWriteError(f"{key}: the answer was lost")

    def _arrive_late(self) -> None:
        late, self._late = self._late, []
        for key, data, replaces in late:
            try:
                self._put(key, data, replaces)
            except OutdatedVersionError:
                continue  # as it should be: another came first
