"""Which processes of this machine belong to a test's own directories."""

from __future__ import annotations

import os

import psutil

# Engines are given no variable of ours but their tags: their node's says where the state of their fleet lies.
_NAMING = ("HOME", "XDG_STATE_HOME", "FLEETCTL_STATE_DIR")


def lives_under(process: psutil.Process, directory: str) -> bool:
    """Whether it was started with a home or a state in this directory, or is an engine of a fleet there."""
    try:
        environment = process.environ()
    except (psutil.Error, OSError):
        return False
    return any(f"{environment.get(name, '')}/".startswith(f"{directory}/") for name in _NAMING)


def processes_under(directory: str) -> list[psutil.Process]:
    """Return every living process of a directory, but not this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and lives_under(process, directory) and not is_zombie(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_zombie(process: psutil.Process) -> bool:
    """Whether it only waits for its reaper: that holds nothing any more. Raises psutil.Error if it is gone."""
    return bool(process.status() == psutil.STATUS_ZOMBIE)
