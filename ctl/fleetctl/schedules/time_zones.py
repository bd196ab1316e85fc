"""The time zones of schedules, by their names in the IANA database; none named is the machine's own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from fleetctl.errors import ConfigError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from datetime import tzinfo

_LOCALTIME = Path("/etc/localtime")
_DATABASE = "zoneinfo/"
# A year and some: every rule of a zone that changes its clocks applies once within it.
_RULES_WITHIN = timedelta(days=400)


def zone_of(name: str) -> tzinfo:
    """Return a time zone; empty: the machine's, as cron takes it, whatever TZ says. Raises ConfigError for no zone."""
    if not name:
        return machine_zone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = sorted(available_timezones())
        raise ConfigError(
            f"{name!r} is no time zone{suggest(name, known)}",
            hint="write a name of the IANA database, such as Europe/Vienna or UTC",
        ) from None


@cache
def machine_zone() -> tzinfo:
    """Return the time zone of /etc/localtime; UTC where there is none."""
    name = machine_zone_name()
    try:
        if name:
            return ZoneInfo(name)
        with _LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def machine_zone_name() -> str:
    """Return the name that /etc/localtime leads to, such as "Europe/Vienna"; empty: it is no link into the database."""
    try:
        target = os.path.realpath(_LOCALTIME) if _LOCALTIME.is_symlink() else ""
    except OSError:
        return ""
    return target.partition(_DATABASE)[2]


def zone_label(name: str) -> str:
    """Return the zone as people are shown it: its name, or the machine's with the word that it is that."""
    return name or f"{machine_zone_name() or 'local time'} (the machine's)"


def gaps(zone: tzinfo, now: datetime) -> tuple[tuple[datetime, datetime], ...]:
    """Return the local times, without their zone, that clocks skip within the next 400 days: from, until."""
    found = []
    at = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    end = at + _RULES_WITHIN
    while at < end:
        until = at + timedelta(hours=1)
        jump = _offset(zone, until) - _offset(zone, at)
        if jump > timedelta():
            skipped_until = _transition(zone, at, until).astimezone(zone).replace(tzinfo=None)
            found.append((skipped_until - jump, skipped_until))
        at = until
    return tuple(found)


def _transition(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """Return the first minute that has the later offset."""
    later, minute = _offset(zone, after), timedelta(minutes=1)
    return next(before + minute * step for step in range(1, 61) if _offset(zone, before + minute * step) == later)


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()
