"""What engines write, in a file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.files import read_end
from fleetctl.paths import FleetPaths

if TYPE_CHECKING:
    from pathlib import Path

# A traceback of vLLM's engine core, repeated by its parent, is 12 KB.
_TAIL_BYTES = 16 * 1024


def log_path(fleet: str, replica_id: str) -> Path:
    """Return where a replica's output goes."""
    return FleetPaths(fleet=fleet).logs / f"{replica_id}.log"


def tail(fleet: str, replica_id: str) -> str:
    """Return the end of a replica's output; empty where there is none."""
    return read_end(log_path(fleet, replica_id), bytes_max=_TAIL_BYTES)[0]
