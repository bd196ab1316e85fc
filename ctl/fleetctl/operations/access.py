"""Opens what operations work on: the user's store, and one fleet in it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.decision import EntryKind, JournalEntry
from fleetctl.paths import state_db
from fleetctl.state.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.subject import Subject
    from fleetctl.ports.store import StateStore


@contextmanager
def opened_store() -> Iterator[StateStore]:
    """Open the user's store for a block."""
    store = SqliteStore(state_db())
    try:
        yield store
    finally:
        store.close()


def fleet_names() -> tuple[str, ...]:
    """Return every fleet's name. No state file is made by asking."""
    if not state_db().exists():
        return ()
    with opened_store() as store:
        return tuple(desired.fleet for desired in store.fleets())


def chosen_fleet(name: str = "") -> str:
    """Return the name of the fleet meant: the one named, or the only one there is. Raises NotFoundError, ConfigError."""
    names = fleet_names()
    listed = f"fleets: {', '.join(names)}" if names else "bring one up: fleetctl up quickstart"
    if name and name not in names:
        raise NotFoundError(f"no fleet named {name!r}", hint=listed)
    if not names:
        raise NotFoundError("there is no fleet", hint=listed)
    if not name and len(names) > 1:
        raise ConfigError(f"there are {len(names)} fleets: {', '.join(names)}", hint="name one, or set FLEETCTL_FLEET")
    return name or names[0]


def known_fleet(store: StateStore, fleet: str) -> Desired:
    """Return the fleet's record. Raises NotFoundError."""
    found = store.fleet(fleet)
    if found is None:
        names = ", ".join(desired.fleet for desired in store.fleets())
        raise NotFoundError(f"no fleet named {fleet!r}", hint=f"fleets: {names or 'none yet'}")
    return found


def known_lane(desired: Desired, lane: str) -> LaneSpec:
    """Return the lane's part of the profile. Raises NotFoundError."""
    try:
        return desired.profile.lane(lane)
    except KeyError:
        names = ", ".join(spec.name for spec in desired.profile.lanes)
        raise NotFoundError(f"fleet {desired.fleet!r} has no lane {lane!r}", hint=f"lanes: {names}") from None


def write_down(store: StateStore, fleet: str, *, subject: Subject, action: str, reason: str) -> JournalEntry:
    """Journal what a person did."""
    entry = JournalEntry(
        seq=0,
        at=SYSTEM_CLOCK.now(),
        fleet=fleet,
        kind=EntryKind.OPERATOR,
        subject=subject,
        action=action,
        reason=reason,
    )
    return store.append((entry,))[0]
