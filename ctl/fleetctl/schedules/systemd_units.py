"""A schedule as a systemd service and timer: the text of both units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.schedules.cron_times import cron_fields, look_again_times, runs_after_gaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_ADVICE = (
    "# Written by `fleetctl runbook install-cron --systemd`, and written over by the next; --remove takes it away."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdUnits:
    """The two units of one runbook on one fleet, by their file names."""

    name: str  # "fleetctl-runbook-pre-warm-chat"
    service: str
    timer: str

    @property
    def files(self) -> dict[str, str]:
        """The text of each file."""
        return {f"{self.name}.service": self.service, f"{self.name}.timer": self.timer}


def service_text(description: str, argv: Sequence[str], environment: Mapping[str, str], *, user: str = "") -> str:
    """Return the service that makes one run. `user`: whose run it is, for a unit of the system's. Raises ConfigError."""
    lines = [
        _ADVICE,
        "[Unit]",
        f"Description={_plain(description)}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=oneshot",
        *([f"User={user}"] if user else []),
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in environment.items()),
        f"ExecStart={' '.join(_argument(word) for word in argv)}",
        "# A run may start a fleet's processes, which outlive it.",
        "KillMode=process",
        "# The runbook has a timeout of its own.",
        "TimeoutStartSec=infinity",
    ]
    return "\n".join(lines) + "\n"


def timer_text(description: str, cron: str, *, time_zone: str, catches_up: bool, key: str, now: datetime) -> str:
    """Return the timer. systemd knows time zones; `catches_up`: a time that passed while the machine was off counts."""
    times = on_calendar(cron, time_zone=time_zone, now=now)
    again = look_again_times(cron, key=key)
    lines = [
        _ADVICE,
        "[Unit]",
        f"Description={_plain(description)}",
        "",
        "[Timer]",
        *(f"OnCalendar={each}" for each in times),
        *(["# Runs that were missed or cut.", f"OnCalendar=*-*-* *:{again.split()[0]}:00"] if again else []),
        f"Persistent={'true' if catches_up else 'false'}",
        "AccuracySec=1s",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return "\n".join(lines) + "\n"


def on_calendar(cron: str, *, time_zone: str, now: datetime) -> tuple[str, ...]:
    """Return the calendar events of an expression; several stand for either of them.

    systemd leaves out a time that clocks skip, where cron runs right after the gap: that minute is an event of its own.
    """
    fields = cron_fields(cron)
    zone = f" {time_zone}" if time_zone else ""
    time = f"{_listed(fields.hours, range(24))}:{_listed(fields.minutes, range(60))}:00"
    months = _listed(fields.months, range(1, 13))
    days = _listed(fields.days, range(1, 32))
    weekdays = _weekdays(fields.weekdays)
    either = [f"*-{months}-{days}", f"{weekdays}*-{months}-*"]
    dates = either if fields.either_day else [f"{weekdays}*-{months}-{days}"]
    events = [f"{date} {time}{zone}" for date in dates]
    after_gaps = {f"*-*-* {at:%H:%M}:00{zone}" for at in runs_after_gaps(cron, time_zone=time_zone, now=now)}
    return (*events, *sorted(after_gaps))


def _weekdays(numbers: frozenset[int]) -> str:
    return "" if len(numbers) == len(_WEEKDAYS) else ",".join(_WEEKDAYS[day] for day in sorted(numbers)) + " "


def _listed(numbers: frozenset[int], every: range) -> str:
    return "*" if numbers.issuperset(every) else ",".join(f"{number:02d}" for number in sorted(numbers))


def _plain(text: str) -> str:
    return _one_line(text).replace("%", "%%")


def _argument(word: str) -> str:
    return _quoted(word).replace("$", "$$")


def _quoted(word: str) -> str:
    """Return a word as systemd reads it (systemd.syntax(7), quoting): its specifiers and escapes taken from it."""
    escaped = _one_line(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if escaped == "" or any(character in escaped for character in " \t'\"\\;#") else escaped


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ConfigError(f"{text!r} cannot stand in a unit file", hint="look at the runbook's path and parameters")
    return text
