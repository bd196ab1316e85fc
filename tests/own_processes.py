"""Which processes of this machine belong to a test's own state directory."""

from __future__ import annotations

import psutil


def lives_under(process: psutil.Process, state_home: str) -> bool:
    """Whether it was started with this XDG_STATE_HOME, or is an engine of a fleet there.

    Engines are given no variable of ours but their tags: their node's says where the state of their fleet lies.
    """
    try:
        environment = process.environ()
    except (psutil.Error, OSError):
        return False
    if environment.get("XDG_STATE_HOME") == state_home:
        return True
    return environment.get("FLEETCTL_STATE", "").startswith(f"{state_home}/")
