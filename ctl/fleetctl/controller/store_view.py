"""What the controller reads of its fleet in the store, at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import MissingStateError
from fleetctl.model.desired import Desired
from fleetctl.model.replica import Replica
from fleetctl.ports.store import Intent

if TYPE_CHECKING:
    from fleetctl.ports.store import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """What the store held at one reading."""

    desired: Desired | None
    replicas: tuple[Replica, ...]
    intents: tuple[Intent, ...]
    is_in_place: bool
    has_disk_space: bool = True


_MISSING = StoreView(desired=None, replicas=(), intents=(), is_in_place=False)


def read_view(store: StateStore, fleet: str) -> StoreView:
    """Return what a store holds of a fleet now. Raises FleetctlError; FencedError where the lease is over."""
    try:
        with store.snapshot():
            return _read(store, fleet)
    except MissingStateError:
        return _MISSING


def _read(store: StateStore, fleet: str) -> StoreView:
    store.check_lease()
    if not store.is_in_place():
        return _MISSING
    return StoreView(
        desired=store.fleet(fleet),
        replicas=store.replicas(fleet),
        intents=store.open_intents(fleet),
        is_in_place=True,
        has_disk_space=store.has_disk_space(),
    )
