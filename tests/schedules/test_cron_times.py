"""The fields that cron gets: where the schedule's zone is another than the machine's, they cover every start it may make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.schedules.cron import next_run
from fleetctl.schedules.cron_times import LOOK_AGAIN_MIN, look_again_times, machine_times
from fleetctl.schedules.time_zones import machine_zone

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def test_names_become_numbers_and_a_macro_its_fields():
    assert machine_times("30 7 * JAN-mar Mon-FRI", time_zone="", now=NOW) == "30 7 * 1-3 1-5"
    assert machine_times("@weekly", time_zone="", now=NOW) == "0 0 * * 0"


@pytest.mark.parametrize("zone", ["Europe/Vienna", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 7 * * mon-fri", "0,15 2-3 * * *", "@hourly", "30 2 * * *"])
def test_cron_starts_at_every_instant_of_a_schedule_in_another_zone(cron, zone):
    line = machine_times(cron, time_zone=zone, now=NOW)
    # As cron reads it, by the machine's clock.
    machine = getattr(machine_zone(), "key", "UTC")
    at, end = NOW, NOW + timedelta(days=390)
    while at < end:
        at = next_run(cron, at, time_zone=zone)
        assert next_run(line, at - timedelta(seconds=1), time_zone=machine) == at


@pytest.mark.parametrize("cron", ["30 7 * * *", "*/15 * * * *", "0-4 * * * *", "@hourly"])
def test_it_is_looked_again_every_ten_minutes_beside_the_schedule_s_own(cron):
    line = look_again_times(cron, key="pre-warm on chat")
    runs = [next_run(line, NOW, time_zone="UTC")]
    runs += [next_run(line, runs[0] + timedelta(minutes=LOOK_AGAIN_MIN - 1), time_zone="UTC")]
    assert runs[1] - runs[0] == timedelta(minutes=LOOK_AGAIN_MIN)
    assert next_run(cron, runs[0] - timedelta(seconds=1), time_zone="UTC") != runs[0]


def test_what_runs_as_often_needs_no_second_line():
    assert look_again_times("* * * * *", key="x") == ""
    assert look_again_times("*/3 * * * *", key="x") == ""


def test_runbooks_are_spread():
    assert len({look_again_times("30 7 * * *", key=f"book-{n}") for n in range(30)}) > 5
