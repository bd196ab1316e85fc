"""What the shell completes beyond commands and options: fleets, lanes, replicas, packaged profiles."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def fleets(incomplete: str) -> list[str]:
    """Return the fleets' names that begin so."""
    from fleetctl.operations.access import fleet_names

    return _answer(fleet_names, incomplete)


def lanes(incomplete: str) -> list[str]:
    """Return the lanes of the fleet FLEETCTL_FLEET names, or of the only one."""
    return _answer(lambda: _subjects(with_lanes=True, with_replicas=False), incomplete)


def replicas(incomplete: str) -> list[str]:
    """Return the live replicas."""
    return _answer(lambda: _subjects(with_lanes=False, with_replicas=True), incomplete)


def lanes_and_replicas(incomplete: str) -> list[str]:
    """Return both."""
    return _answer(lambda: _subjects(with_lanes=True, with_replicas=True), incomplete)


def profiles(incomplete: str) -> list[str]:
    """Return the packaged profiles; where none fits, the shell completes files by itself."""
    from fleetctl.config.use_cases import use_cases

    return _answer(use_cases, incomplete)


def _subjects(*, with_lanes: bool, with_replicas: bool) -> list[str]:
    from fleetctl.operations.access import chosen_fleet, known_fleet, opened_store

    fleet = chosen_fleet(os.environ.get("FLEETCTL_FLEET", ""))
    with opened_store() as store:
        lane_names = [lane.name for lane in known_fleet(store, fleet).profile.lanes]
        live = [replica.id for replica in store.replicas(fleet) if replica.state.is_live]
    return (lane_names if with_lanes else []) + (live if with_replicas else [])


def _answer(known: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return [name for name in known() if name.startswith(incomplete)]
    except FleetctlError:
        return []  # there is nothing to complete with, and no place to say why
