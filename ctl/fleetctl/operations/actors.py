"""Finds out who gives a command: the user, whoever became that by sudo, and the terminal, timer or program behind it."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.model.audit import Actor, Channel
from fleetctl.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

_CRONS = frozenset({"cron", "crond", "anacron", "atd", "fcron"})
_ANCESTORS_MAX = 16
_TEXT_MAX = 128


def current_actor(environ: Mapping[str, str] = os.environ) -> Actor:
    """Return who runs this process. Costs a few reads of /proc; what cannot be found out is left empty."""
    uid = os.getuid()
    channel, origin = _came_by(environ)
    return Actor(
        user=_user_name(uid),
        uid=uid,
        sudo_user=_short(environ.get("SUDO_USER", "")),
        host=_short(socket.gethostname()),
        channel=channel,
        origin=_short(origin),
    )


def _came_by(environ: Mapping[str, str]) -> tuple[Channel, str]:
    ancestors = _ancestors()
    cron = next((name for name in ancestors if name.lower() in _CRONS), "")
    if cron:
        return Channel.CRON, cron
    # A unit's variable is inherited by terminals under it too: a terminal is believed first.
    terminal = _terminal()
    if terminal:
        return Channel.TERMINAL, terminal
    if environ.get("INVOCATION_ID"):
        return Channel.SYSTEMD, environ["INVOCATION_ID"]
    return Channel.PROCESS, ancestors[0] if ancestors else ""


def _terminal() -> str:
    for stream in (sys.stdin, sys.stderr, sys.stdout):
        try:
            return os.ttyname(stream.fileno())
        except (OSError, ValueError, AttributeError):
            continue  # closed, captured, or no terminal
    return ""


def _ancestors() -> list[str]:
    """Return the names of the processes above this one, the nearest first."""
    names: list[str] = []
    pid = os.getppid()
    while pid > 1 and len(names) < _ANCESTORS_MAX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break  # it has ended, or this system has no /proc
        # The name stands in brackets and may hold anything, brackets included.
        name, _, rest = stat.partition("(")[2].rpartition(")")
        names.append(name)
        pid = int(rest.split()[1])
    return names


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)  # a container's user without a name


def _short(text: str) -> str:
    return printable(text)[:_TEXT_MAX]
