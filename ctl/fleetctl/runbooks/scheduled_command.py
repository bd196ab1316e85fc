"""The command that cron or systemd starts for a runbook: absolute, and with the environment it needs named."""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fleetctl.model.runbook import Runbook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Where the state, the profiles and the runbooks lie; how text is written; what a notification needs to get out.
_VARIABLES = (
    "PATH", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
_PROXIES = tuple(name for name in _VARIABLES if name.lower().endswith("_proxy"))
# How long a start by the clock waits for another runbook on the same fleet.
SCHEDULED_WAIT = "5m"
_CRON_PATH = "/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRunbook:
    """A runbook as it is installed: which, on which fleet, with which parameters, since when."""

    runbook: Runbook
    source: str  # its name, or the absolute path of its file
    fleet: str = ""  # empty: the one there is when it runs
    parameters: tuple[str, ...] = field(default_factory=tuple)  # NAME=VALUE
    since: datetime  # runs before it were never missed

    @property
    def key(self) -> str:
        """What marks it among others: one runbook may run on several fleets."""
        return f"{self.runbook.name} on {self.fleet}" if self.fleet else self.runbook.name

    @property
    def unit_name(self) -> str:
        """The name of its units, without their kind."""
        return "-".join(filter(None, ("fleetctl-runbook", self.runbook.name, self.fleet)))

    def argv(self) -> list[str]:
        """Return the command, interpreter first: PATH decides nothing, and neither does the working directory (-P)."""
        return [
            sys.executable, "-P", "-m", "fleetctl", "runbook", "run", self.source,
            *(["--fleet", self.fleet] if self.fleet else []),
            *(word for parameter in self.parameters for word in ("--param", parameter)),
            "--scheduled", "--wait", SCHEDULED_WAIT, "--since", since_text(self.since),
        ]  # fmt: skip


def since_text(at: datetime) -> str:
    """Return an instant as the command line takes it: no blank, no `%`."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def scheduled_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what the command is started with beside cron's own few variables, and what of it was left out, in words.

    Secrets are never written: a crontab and a unit are read by more than their owner.
    """
    kept = {name: environ[name] for name in _VARIABLES if environ.get(name)}
    secret = [name for name in _PROXIES if "@" in kept.get(name, "")]
    for name in secret:
        del kept[name]
    if "PATH" in kept:
        kept["PATH"] = _path(kept["PATH"])
    home = environ.get("HOME", "")
    if home and home != _home_on_record():  # cron and systemd take the home on record
        kept = {"HOME": home, **kept}
    if kept.get("PATH") in ("", _CRON_PATH):
        del kept["PATH"]
    return kept, tuple(
        f"{name} holds a password and is not written; set it in a file of the machine's" for name in secret
    )


def references_to_variables(runbook: Runbook) -> tuple[str, ...]:
    """Return the variables that a runbook's notifications refer to: cron's environment has none of them."""
    return tuple(dict.fromkeys(_variables(runbook)))


def _variables(runbook: Runbook) -> Iterator[str]:
    for rule in runbook.notify:
        for reference in (rule.reference, *rule.headers.values()):
            kind, _, name = reference.partition(":")
            if kind == "env":
                yield name


def _path(value: str) -> str:
    """Return a PATH without what is not there, not absolute, or named twice."""
    return ":".join(dict.fromkeys(each for each in value.split(":") if each.startswith("/") and os.path.isdir(each)))  # noqa: PTH112  # text in, text out


def _home_on_record() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a container's user without an entry
        return ""
