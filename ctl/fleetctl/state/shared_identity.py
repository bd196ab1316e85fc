"""Whose nodes a shared state knows, and that the place it lies at keeps to the conditions of writes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.errors import DamagedStateError, StateError
from fleetctl.ports.objects import OutdatedVersionError, UnconfirmedWriteError

if TYPE_CHECKING:
    from fleetctl.ports.objects import ObjectStore

_KEY = "identity"
_TRIES = 5


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a shared state, and where it has moved to."""

    owner: str
    moved_to: str = ""


class SharedIdentity:
    """The object that is made before all others."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._known: Identity | None = None

    @property
    def owner(self) -> str:
        """The store's uuid, made once. Raises StateError where the place would not keep to conditions."""
        self.check()
        if self._known is None:
            self._known = self._make(os.urandom(16).hex())
        return self._known.owner

    def check(self) -> None:
        """Return unless the state has moved. Raises StateError."""
        if self._known is None:
            self._known = self._read()
        if self._known is not None and self._known.moved_to:
            raise StateError(
                f"the state in {self._objects.location} has moved to {self._known.moved_to}",
                hint="set FLEETCTL_STATE to where it is, or leave it out for this machine's own",
            )

    def exists(self) -> bool:
        """Whether a state was made there, and not moved away."""
        found = self._read()
        return found is not None and not found.moved_to

    def put(self, identity: Identity) -> None:
        """Write another in its place. Raises OutdatedVersionError where it is changed at the same time."""
        found = self._objects.get(_KEY)
        self._objects.put(_KEY, encode(identity), replaces=found.version if found is not None else None)
        self._known = identity

    def _read(self) -> Identity | None:
        found = self._objects.get(_KEY)
        if found is None:
            return None
        try:
            return decode(Identity, found.data)
        except msgspec.MsgspecError as exc:
            raise DamagedStateError(
                f"{self._objects.location}/{_KEY} is damaged: {exc}", hint="is the prefix another program's?"
            ) from exc

    def _make(self, owner: str) -> Identity:
        check_conditions(self._objects)
        for _ in range(_TRIES):
            # Another process may make it too, or the answer may be lost: what is there then counts.
            with suppress(OutdatedVersionError, UnconfirmedWriteError):
                self._objects.put(_KEY, encode(Identity(owner=owner)), replaces=None)
            if (found := self._read()) is not None:
                return found
        raise StateError(f"{self._objects.location}: no state can be made there", hint="see `fleetctl doctor`")


def check_conditions(objects: ObjectStore) -> None:
    """Write, read and remove an object of our own. Raises StateError where a condition is not kept to, or a right lacks."""
    key = f"probe/{os.urandom(8).hex()}"
    first = objects.put(key, b"1", replaces=None)
    try:
        _check_refused(objects, key, replaces=None)
        second = objects.put(key, b"2", replaces=first)
        _check_refused(objects, key, replaces=first)
        found = objects.get(key)
        if found is None or (found.data, found.version) != (b"2", second):
            raise StateError(f"{objects.location} does not read back what was written", hint="take another store")
        if key not in objects.list_keys("probe/"):
            raise StateError(f"{objects.location} does not list what was written", hint="take another store")
    finally:
        objects.delete(key)


def _check_refused(objects: ObjectStore, key: str, *, replaces: str | None) -> None:
    try:
        objects.put(key, b"3", replaces=replaces)
    except OutdatedVersionError:
        return
    condition = "If-None-Match" if replaces is None else "If-Match"
    raise StateError(
        f"{objects.location} does not keep to {condition}: two controllers would overwrite each other's state",
        hint="take a store with conditional writes, such as Amazon S3 or a current MinIO",
    )
