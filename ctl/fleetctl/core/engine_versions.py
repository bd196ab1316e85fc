"""Tells an engine of another version than its profile asks for, before it serves anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.engine_fault import EngineFault, EngineFaultKind

if TYPE_CHECKING:
    from fleetctl.model.replica import Replica


def other_version(record: Replica, reported: str | None) -> EngineFault | None:
    """Return what speaks against a replica that starts: its engine is of another version. None: nothing, or not known yet.

    `reported` is what the engine says it is; empty: it does not say; None: it has not been asked yet.
    """
    if not record.engine_version or reported is None or record.ready_at is not None:
        return None
    if is_version(reported, record.engine_version):
        return None
    what = f"says it is {record.engine} {reported}" if reported else f"does not say which {record.engine} it is"
    return EngineFault(
        kind=EngineFaultKind.VERSION, line=f"it {what}, and the profile asks for {record.engine_version}"
    )


def is_version(reported: str, wanted: str) -> bool:
    """Whether a version is the one that is wanted; a build of it (0.32.0+cu129) is, unless a build is wanted too."""
    reported, wanted = reported.removeprefix("v"), wanted.removeprefix("v")
    return reported == wanted or ("+" not in wanted and reported.partition("+")[0] == wanted)
