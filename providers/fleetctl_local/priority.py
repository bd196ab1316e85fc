"""Engines that compute on the machine's CPUs go behind what directs them, for a processor.

A gateway needs a twentieth of a core to pass on what two engines generate on two, and a controller less; but every one of
their steps waits in the same queue as engines that never sleep. Measured with two real vLLM 0.32 under load on two cores
(Linux 6.18, each process in a session of its own): up to 8 s until the gateway had a processor again; 1.2 s with the
engines' niceness at 5, and 0.2 s at 10, where whatever else runs on the machine left them a tenth of it: they took
minutes to start. Engines that have their cores to themselves are none the slower for it.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from fleetctl.clock import SYSTEM_CLOCK

_log = logging.getLogger("fleetctl.provider.local")

NICENESS = 5  # above our own
_NICENESS_MAX = 19
# The kernel takes one such change in a tenth of a second from whoever has no privileges.
_TRIES, _TRY_S = 8, 0.05


def put_behind(session: int) -> None:
    """Give the processes of a session that was just begun, and their children, a lower priority than ours.

    What cannot be changed stays as it is, and is logged: an engine serves with any priority.
    """
    try:
        niceness = min(_NICENESS_MAX, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        os.setpriority(os.PRIO_PGRP, session, niceness)
        _set_autogroup(session)
    except ProcessLookupError:
        return  # it ended at once; whoever lists it says so
    except OSError as exc:
        _log.info("process %d keeps its priority: %s", session, exc)


def _set_autogroup(session: int) -> None:
    """Set what Linux goes by where each session has a share of its own: there niceness counts within a session alone."""
    autogroup = Path(f"/proc/{session}/autogroup")
    if not autogroup.exists() or not autogroup.read_text():  # a kernel without them, or that has them turned off
        return
    for attempt in range(_TRIES):
        try:
            autogroup.write_text(str(NICENESS))
        except OSError as exc:
            if exc.errno != errno.EAGAIN or attempt == _TRIES - 1:
                raise
            SYSTEM_CLOCK.sleep_blocking(_TRY_S)
        else:
            return
