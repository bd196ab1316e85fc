"""What a state that many machines share needs of wherever its objects lie: conditional writes of small blobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fleetctl.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.lease import Lease


class OutdatedVersionError(StateError):
    """Nothing was written: the object is of another version than the one that the write was to replace."""


class UnconfirmedWriteError(StateError):
    """Whether an object was written is not known: read it back. A write that comes late still finds its condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object as it was read; `version` changes with each write (an ETag, a resourceVersion)."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """Keeps objects by their keys ("fleets/demo/head"), strongly consistent. Calls are synchronous, safe in any thread.

    Every call raises StateError once its own deadline has passed, after trying again what may pass by itself.
    """

    @property
    def location(self) -> str:
        """Where the objects lie, for people: s3://bucket/prefix."""
        ...

    @property
    def object_bytes_max(self) -> int | None:
        """The most that one object may have; None: more than a state is ever cut into."""
        ...

    def get(self, key: str, *, known: StoredObject | None = None) -> StoredObject | None:
        """Return an object, or None; `known` itself where that is still what there is."""
        ...

    def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object in the place of the version `replaces`, or where None is: where none is; return its version.

        Tries once. Raises OutdatedVersionError; UnconfirmedWriteError where the answer was lost or is no certain one.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; nothing follows where there is none."""
        ...

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted."""
        ...

    def show_lease(self, lease: Lease) -> None:
        """Show a stored lease where people look for such things there, if anywhere; nothing is decided by what is shown."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


if TYPE_CHECKING:
    # What is registered under a scheme in the entry point group `fleetctl.object_store`: the part of the URL behind
    # "scheme://", and the seconds that one call may take.
    OpenObjectStore = Callable[[str, float], ObjectStore]
