"""Ends a node at a deadline, whoever else has died: `python -m fleetctl_local.reclaim PID BIRTH WAIT_S OWNER TOKEN ...`.

A stop's grace and a spot notice are promises about the future, and the caller may be killed before they fall due. So
each is carried by a small process of its own, started before the promise is given back. Asking the next listing to see
to it (as `list_nodes` also does, should the reclaimer itself be killed) would leave a hung engine running for ever
once nobody lists any more. It imports the standard library alone and sleeps on the node's own end.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from fleetctl_local import kernel
from fleetctl_local.kernel import Ident

OWNER_TAG = "FLEETCTL_OWNER"
TOKEN_TAG = "FLEETCTL_NODE_TOKEN"  # noqa: S105  # names a variable that holds an id
_SWEEPS = 50  # five seconds
_SWEEP_S = 0.1


def reclaim(leader: Ident, *, tags: dict[str, str], wait_s: float, terminate: bool, mark: Path | None) -> None:
    """Wait for a node's end, at most `wait_s`; then kill its session, and see every member gone.

    `terminate` asks it to end first. `mark` is touched before the kill, to tell a taken node from one that left.
    """
    if terminate:
        kernel.send(leader, signal.SIGTERM)
    if not _ended_within(leader, wait_s):
        if mark is not None:
            mark.touch()
        kernel.send(leader, signal.SIGKILL)
    sweep(leader, tags=tags)


def sweep(leader: Ident, *, tags: dict[str, str], rounds: int = _SWEEPS) -> bool:
    """Kill whatever is left of a node's session; return whether all of it was seen gone."""
    for _ in range(rounds):
        left = kernel.members(leader, tags=tags)
        if not left:
            return True
        for member in left:
            kernel.send(member, signal.SIGKILL)
        select.select([], [], [], _SWEEP_S)
    return False


def _ended_within(leader: Ident, wait_s: float) -> bool:
    try:
        fd = kernel.pin(leader.pid)
    except ProcessLookupError:
        return True
    if fd is None:
        return _ended_within_by_polling(leader, wait_s)
    try:
        return not kernel.is_alive(leader) or bool(select.select([fd], [], [], max(0.0, wait_s))[0])
    finally:
        os.close(fd)


def _ended_within_by_polling(leader: Ident, wait_s: float) -> bool:
    for _ in range(int(wait_s / _SWEEP_S) + 1):
        if not kernel.is_alive(leader):
            return True
        select.select([], [], [], _SWEEP_S)
    return False


def main(arguments: list[str]) -> None:
    """Run as a process of its own; its caller has already put it in its own session."""
    pid, birth, wait_s, owner, token, terminate, mark = arguments
    reclaim(
        Ident(pid=int(pid), birth=birth),
        tags={OWNER_TAG: owner, TOKEN_TAG: token},
        wait_s=float(wait_s),
        terminate=terminate == "terminate",
        mark=Path(mark) if mark else None,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
