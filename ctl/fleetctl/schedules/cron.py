"""Cron expressions as Debian's cron(8) reads them: what they may be, and the instants they name.

`cronsim` computes the instants; it plays Debian's cron, its rules for clocks that are set included: a job at a time that
is skipped runs right after the gap, one at a time that comes twice runs at the first of the two, and what runs every
hour or every minute (a field that begins with `*`) goes by real time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.schedules.time_zones import zone_of
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_HINT = "write five fields, minute hour day month weekday, such as `30 7 * * mon-fri`, or @hourly, @daily, @weekly"
_LAWFUL = re.compile(r"[A-Za-z0-9*/,\-]+")
# What cronsim takes beyond cron(8) within these characters: `L`, `LW`, `5L`. Cron itself would refuse such a line.
_BEYOND_CRON = re.compile(r"(?<![A-Za-z])\d*LW?(?![A-Za-z])", re.IGNORECASE)
# Longer than any stretch a clock change moves a run by.
_LOOK_BACK = timedelta(hours=25)


def fields_of(text: str) -> tuple[str, str, str, str, str]:
    """Return the five fields, a macro spelled out. Raises ConfigError for what Debian's cron would not take."""
    plain = text.strip()
    if plain.startswith("@"):
        known = MACROS.get(plain.lower())
        if known is None:
            raise ConfigError(f"{plain!r} names no time{suggest(plain.lower(), MACROS)}", hint=_HINT)
        plain = known
    parts = plain.split()
    if len(parts) != 5:
        raise ConfigError(f"{text!r} has {len(parts)} fields, not five", hint=_HINT)
    beyond = next((part for part in parts if not _LAWFUL.fullmatch(part) or _BEYOND_CRON.search(part)), None)
    if beyond is not None:
        raise ConfigError(f"{beyond!r} in {text!r} is nothing that cron takes", hint=_HINT)
    minute, hour, day, month, weekday = parts
    return minute, hour, day, month, weekday


def check_cron(text: str) -> None:
    """Return if an expression names times that come. Raises ConfigError saying what is wrong with it."""
    next_run(text, datetime(2024, 1, 1, tzinfo=UTC), time_zone="UTC")


def next_run(text: str, now: datetime, *, time_zone: str = "") -> datetime:
    """Return the first instant after `now`, in UTC. Raises ConfigError."""
    after = now.astimezone(UTC)
    return next(at for at in _instants(text, after, time_zone) if at > after)


def previous_run(text: str, now: datetime, *, time_zone: str = "") -> datetime:
    """Return the last instant that is not after `now`, in UTC: the one a run that starts now stands for.

    It is one of those that `next_run` yields, so both sides of a clock change agree on it. Raises ConfigError.
    """
    until = now.astimezone(UTC)
    found = _before(text, until - _LOOK_BACK, time_zone)
    for at in _instants(text, until - _LOOK_BACK - timedelta(seconds=1), time_zone):
        if at > until:
            break
        found = max(found, at)
    return found


def _instants(text: str, after: datetime, time_zone: str) -> Iterator[datetime]:
    """Yield instants from about `after` on, in order except around a clock change."""
    from cronsim import CronSim, CronSimError

    zone = zone_of(time_zone)
    try:
        for at in CronSim(" ".join(fields_of(text)), after.astimezone(zone)):
            yield at.astimezone(UTC)
    except CronSimError as exc:
        raise ConfigError(f"{text!r}: {str(exc).lower()}", hint=_HINT) from exc
    raise ConfigError(f"{text!r} names no day that comes within fifty years", hint=_HINT)


def _before(text: str, until: datetime, time_zone: str) -> datetime:
    """Return the last instant before `until`, which is far enough from now to have no clock change between."""
    from cronsim import CronSim

    zone = zone_of(time_zone)
    check_cron(text)
    try:
        return next(CronSim(" ".join(fields_of(text)), until.astimezone(zone), reverse=True)).astimezone(UTC)
    except StopIteration:
        return datetime.min.replace(tzinfo=UTC)
