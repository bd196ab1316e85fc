"""The instants of cron expressions: as Debian's cron makes them, one truth from both sides, through clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.errors import ConfigError
from fleetctl.schedules.cron import check_cron, next_run, previous_run

VIENNA = ZoneInfo("Europe/Vienna")
EXPRESSIONS = (
    "30 7 * * mon-fri", "0 22 * * *", "*/10 * * * *", "15 2 * * *", "0,30 2-3 * * *", "0 0 1 * *", "17 4 29 2 *",
    "5 4 1,15 * 5", "@hourly", "@weekly", "0 */6 * * *", "59 23 31 12 *",
)  # fmt: skip
ZONES = ("UTC", "Europe/Vienna", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=VIENNA)


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("30 7 * * mon-fri", "2026-11-20T08:00", "2026-11-23T07:30"),  # a Friday to the Monday
        ("30 7 * * MON-FRI", "2026-11-23T07:29:59", "2026-11-23T07:30"),
        ("*/15 * * * *", "2026-11-23T07:30", "2026-11-23T07:45"),
        ("@daily", "2026-11-23T07:30", "2026-11-24T00:00"),
        ("0 9 1 jan,jul *", "2026-11-23T07:30", "2027-01-01T09:00"),
        ("0 9 13 * 5", "2026-11-23T07:30", "2026-11-27T09:00"),  # day and weekday both set: either will do
        ("0 9 */2 * 5", "2026-11-23T07:30", "2026-11-27T09:00"),  # one begins with a star: both must hold
    ],
)
def test_the_next_run_is_the_one_that_cron_makes(cron, now, expected):
    assert next_run(cron, local(now), time_zone="Europe/Vienna") == local(expected)


def test_a_time_that_clocks_skip_runs_right_after_the_gap():
    night = local("2026-03-29T00:00")  # 02:00 is followed by 03:00
    assert next_run("30 2 * * *", night, time_zone="Europe/Vienna") == local("2026-03-29T03:00")
    assert previous_run("30 2 * * *", local("2026-03-29T03:10"), time_zone="Europe/Vienna") == local("2026-03-29T03:00")
    assert next_run("30 2 * * *", local("2026-03-29T03:00"), time_zone="Europe/Vienna") == local("2026-03-30T02:30")


def test_a_time_that_comes_twice_runs_once():
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # 02:30 summer time; 02:30 comes again at 01:30 UTC
    assert next_run("30 2 * * *", local("2026-10-25T00:00"), time_zone="Europe/Vienna") == first
    second = first + timedelta(hours=1)
    assert previous_run("30 2 * * *", second, time_zone="Europe/Vienna") == first
    assert next_run("30 2 * * *", second, time_zone="Europe/Vienna") == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_what_runs_every_hour_runs_in_both_hours_of_the_same_name():
    start = datetime(2026, 10, 24, 23, 45, tzinfo=UTC)
    runs = []
    for _ in range(3):
        start = next_run("30 * * * *", start, time_zone="Europe/Vienna")
        runs.append(start)
    assert runs == [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1, 2)]


@given(
    cron=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    now=st.datetimes(datetime(2025, 1, 1), datetime(2028, 1, 1)),  # noqa: DTZ001  # made aware below
)
@settings(max_examples=150, deadline=None)
def test_previous_and_next_agree(cron, zone, now):
    at = now.replace(tzinfo=UTC)
    before, after = previous_run(cron, at, time_zone=zone), next_run(cron, at, time_zone=zone)
    assert before <= at < after
    assert next_run(cron, before, time_zone=zone) == after  # none between
    assert previous_run(cron, after, time_zone=zone) == after  # a run that starts on time stands for itself
    assert previous_run(cron, after - timedelta(microseconds=1), time_zone=zone) == before


@pytest.mark.parametrize("zone", ["Europe/Vienna", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["15 2 * * *", "0,30 2-3 * * *", "*/20 * * * *", "30 * * * *", "45 1 * * *"])
def test_every_quarter_hour_of_a_year_stands_for_the_instant_that_iteration_yields(cron, zone):
    at, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 10, tzinfo=UTC)
    while at < end:
        before = previous_run(cron, at, time_zone=zone)
        assert before <= at < next_run(cron, before, time_zone=zone)
        at += timedelta(hours=5, minutes=15)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("30 7 * *", "has 4 fields"),
        ("0 30 7 * * *", "has 6 fields"),
        ("61 * * * *", "bad minute"),
        ("0 25 * * *", "bad hour"),
        ("0 0 L * *", "'L' in '0 0 L * *' is nothing that cron takes"),
        ("0 0 * * mon#2", "is nothing that cron takes"),
        ("0 0 * * 5L", "is nothing that cron takes"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("@hourl", "did you mean '@hourly'"),
        ("@reboot", "names no time"),
        ("*/0 * * * *", "bad minute"),
        ("$(reboot) * * * *", "nothing that cron takes"),
        ("", "has 0 fields"),
    ],
)
def test_what_cron_would_not_take_is_refused(cron, message):
    with pytest.raises(ConfigError) as refused:
        check_cron(cron)
    assert message in refused.value.message


def test_names_of_months_and_days_are_taken():
    check_cron("0 0 1 jul-aug wed,Fri")


def test_an_unknown_time_zone_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'Europe/Vienna'"):
        next_run("@daily", local("2026-01-01T00:00"), time_zone="Europe/Viena")
    for name in ("../etc/passwd", "/etc/localtime", "Europe"):
        with pytest.raises(ConfigError):
            next_run("@daily", local("2026-01-01T00:00"), time_zone=name)
