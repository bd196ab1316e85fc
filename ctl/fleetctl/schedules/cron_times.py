"""The five fields that cron itself gets for a schedule: by the machine's clock, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zlib import crc32

from fleetctl.schedules.cron import fields_of
from fleetctl.schedules.time_zones import gaps, machine_zone, zone_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo

_DAY_MIN = 24 * 60
# How often it is looked for runs that were missed or cut. A look costs half a second of a processor.
LOOK_AGAIN_MIN = 10
_OFFSETS_WITHIN_DAYS = 400
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """A cron expression's fields as sets; `either_day`: a day that is in one of `days` and `weekdays` will do."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either_day: bool


def cron_fields(cron: str) -> CronFields:
    """Return an expression's fields. Raises ConfigError through `fields_of`; the expression has been checked."""
    from cronsim import CronSim

    parsed = CronSim(" ".join(fields_of(cron)), datetime(2024, 1, 1, tzinfo=UTC))
    return CronFields(
        minutes=frozenset(parsed.minutes),
        hours=frozenset(parsed.hours),
        days=frozenset(parsed.days),
        months=frozenset(parsed.months),
        weekdays=frozenset(day % 7 for day in parsed.weekdays if isinstance(day, int)),
        either_day=not parsed.day_and,
    )


def machine_times(cron: str, *, time_zone: str, now: datetime) -> str:
    """Return five fields for cron, which knows the machine's time alone.

    For a schedule in another zone they name every minute of the day that it may fall on within the next 400 days; a start
    that is none of the schedule's own has nothing to do.
    """
    zone = zone_of(time_zone)
    shifts = {_offset(machine_zone(), at) - _offset(zone, at) for at in _days(now)}
    if shifts == {timedelta()}:
        return _numbered(cron)
    fields = cron_fields(cron)
    minutes = {
        (hour * 60 + minute + int(shift.total_seconds()) // 60) % _DAY_MIN
        for hour in fields.hours
        for minute in fields.minutes
        for shift in shifts
    }
    for at in runs_after_gaps(cron, time_zone=time_zone, now=now):
        local = at.astimezone(machine_zone())
        minutes.add(local.hour * 60 + local.minute)
    return f"{_listed(minute % 60 for minute in minutes)} {_listed(minute // 60 for minute in minutes)} * * *"


def look_again_times(cron: str, *, key: str) -> str:
    """Return the five fields of the line that looks for missed and cut runs: apart from the schedule's own minutes.

    `key` spreads several runbooks over the minutes. Empty: the schedule itself comes as often.
    """
    taken = {minute % LOOK_AGAIN_MIN for minute in cron_fields(cron).minutes}
    free = [minute for minute in range(LOOK_AGAIN_MIN) if minute not in taken]
    if not free:
        return ""
    first = free[crc32(key.encode()) % len(free)]
    return f"{_listed(range(first, 60, LOOK_AGAIN_MIN))} * * * *"


def runs_after_gaps(cron: str, *, time_zone: str, now: datetime) -> tuple[datetime, ...]:
    """Return when an expression's runs are made that fall on times which clocks skip within the next 400 days."""
    minute, hour = fields_of(cron)[:2]
    if minute.startswith("*") or hour.startswith("*"):
        return ()  # it goes by real time, and skips nothing
    zone, fields = zone_of(time_zone), cron_fields(cron)
    found = []
    for start, end in gaps(zone, now):
        first, last = start.hour * 60 + start.minute, end.hour * 60 + end.minute
        if any(first <= at_hour * 60 + at_minute < last for at_hour in fields.hours for at_minute in fields.minutes):
            found.append(end.replace(tzinfo=zone))
    return tuple(found)


def _numbered(cron: str) -> str:
    """Return the expression with numbers for the names of months and days, of which cron takes no ranges."""
    minute, hour, day, month, weekday = (field.lower() for field in fields_of(cron))
    for number, name in enumerate(_MONTHS, start=1):
        month = month.replace(name, str(number))
    for number, name in enumerate(_WEEKDAYS):
        weekday = weekday.replace(name, str(number))
    return f"{minute} {hour} {day} {month} {weekday}"


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(set(numbers))))


def _days(now: datetime) -> list[datetime]:
    start = now.astimezone(UTC)
    return [start + timedelta(hours=12 * step) for step in range(2 * _OFFSETS_WITHIN_DAYS)]


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()
