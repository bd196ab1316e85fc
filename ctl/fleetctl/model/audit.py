"""Who changed what by hand, from where, and with what result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Channel(StrEnum):
    """How a command reached us."""

    TERMINAL = "tty"
    CRON = "cron"
    SYSTEMD = "systemd"
    RUNBOOK = "runbook"
    PROCESS = "process"  # another program, without a terminal
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whoever gives commands."""

    user: str = ""
    uid: int = -1  # -1: not known
    sudo_user: str = ""  # who became `user` by sudo
    host: str = ""
    channel: Channel = Channel.UNKNOWN
    origin: str = ""  # the terminal, the unit, the runbook's run id or the program

    @property
    def name(self) -> str:
        """The person, as far as that is known, and the host: "alice@web1"."""
        person = self.sudo_user or self.user
        return f"{person}@{self.host}" if person and self.host else person


class AuditResult(StrEnum):
    """What came of a command."""

    OK = "ok"  # done, with exit code 0
    WAITING = "waiting"  # for somebody's approval, with what was done before it
    REFUSED = "refused"  # a rule forbade it: nothing was changed
    FAILED = "failed"  # it was begun, or done; something went wrong, or the exit code says what is to be looked at
    STARTED = "started"  # it is under way
    KILLED = "killed"  # it was under way, and its process is gone: what came of it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One command that changed something, or was to."""

    at: datetime
    actor: Actor
    action: str  # "scale", "drain", "up", ...
    fleet: str = ""  # empty: of no fleet, or none was found
    argv: tuple[str, ...] = ()  # of the command line, secrets left out; empty: no command line gave it
    changes: tuple[str, ...] = ()  # "lane/short replicas automatic -> 4", ...
    parameters: dict[str, str] = field(default_factory=dict)
    result: AuditResult
    exit_code: int = 0  # of one that has not ended, or was killed, none is known: -1
    message: str = ""  # why it was refused, or failed
    process: str = ""  # that gave it; empty: written before this was recorded, or it cannot be told
