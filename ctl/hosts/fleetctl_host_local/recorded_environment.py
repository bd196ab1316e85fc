"""What a fleet's processes are started with: a file beside its locks that its user alone can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.environment import FleetEnvironment
from fleetctl.errors import StateError
from fleetctl.files import write_whole
from fleetctl.paths import state_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.paths import FleetPaths

_HINT = "run `fleetctl up` with the fleet's profile again: it is written anew"


def write(paths: FleetPaths, environment: FleetEnvironment | None) -> None:
    """Replace the record, or remove it. Raises StateError."""
    try:
        if environment is None:
            paths.environment.unlink(missing_ok=True)
            return
        paths.make()
        write_whole(paths.environment, encode(environment), mode=0o600, is_durable=True)
    except OSError as exc:
        raise StateError(f"the environment of {paths.fleet} cannot be kept: {exc.strerror}", hint=_HINT) from exc


def read(paths: FleetPaths) -> FleetEnvironment | None:
    """Return the record; None: there is none. Raises StateError."""
    try:
        return decode(FleetEnvironment, paths.environment.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as exc:
        # Its content is not repeated: secrets stand in it.
        raise StateError(f"the environment of {paths.fleet} cannot be read: {paths.environment}", hint=_HINT) from exc


def of_controller(paths: FleetPaths, ours: Mapping[str, str]) -> dict[str, str]:
    """Return what a controller is started with: what is on record, and where we found the state. Raises StateError.

    A fleet that an earlier version brought up has no record: its next controller gets what we have, and makes one.
    """
    recorded = read(paths)
    if recorded is None:
        return dict(ours)
    return recorded.inherited | {"XDG_STATE_HOME": str(state_dir().parent)}
