"""Opens the state where it is: this machine's own file, or where FLEETCTL_STATE says that many machines share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fleetctl.errors import ConfigError
from fleetctl.paths import state_db
from fleetctl.plugins import load_object_store
from fleetctl.ports.store import StateStore
from fleetctl.state.shared import SharedStore
from fleetctl.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from fleetctl.ports.objects import ObjectStore

_BUSY_S = 30.0
SHARED_PLACES = "s3://BUCKET/PREFIX or kubernetes://NAMESPACE"  # the forms of a URL, for people


class OpenStore(StateStore, Protocol):
    """A store to be closed."""

    def close(self) -> None:
        """Let go of it; it is of no use afterwards."""
        ...


def open_store(url: str, *, busy_timeout_s: float = _BUSY_S, opens_on_use: bool = False) -> OpenStore:
    """Return the store at a URL, or where it is empty this machine's own; `busy_timeout_s` is for one call.

    Raises ConfigError for what is no such URL. With `opens_on_use` nothing is made by being read.
    """
    if not url:
        return SqliteStore(state_db(), busy_timeout_s=busy_timeout_s, opens_on_use=opens_on_use)
    return SharedStore(open_objects(url, deadline_s=busy_timeout_s), deadline_s=busy_timeout_s)


def open_objects(url: str, *, deadline_s: float = _BUSY_S) -> ObjectStore:
    """Return the objects at a URL. Raises ConfigError, NotFoundError."""
    scheme, separator, place = url.partition("://")
    if not (scheme and separator and place):
        raise ConfigError(
            f"FLEETCTL_STATE: {url!r} is no place for a state", hint=f"write {SHARED_PLACES}, or unset it"
        )
    return load_object_store(scheme)(place, deadline_s)
