"""Whether a scheduled start is due: on time, caught up, left, or never missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from fleetctl.schedules.due import ON_TIME_WITHIN_S, Timeliness, due

MORNING = datetime(2026, 11, 23, 7, 30, tzinfo=UTC)
CRON = "30 7 * * *"
SIX_HOURS_S = 6 * 3600.0


def timeliness(late: timedelta, *, within_s: float | None, since: datetime | None = None) -> Timeliness:
    found = due(CRON, MORNING + late, time_zone="UTC", catch_up_within_s=within_s, since=since)
    assert found.scheduled_at == MORNING
    assert found.late_s == late.total_seconds()
    return found.timeliness


def test_a_start_within_minutes_is_on_time():
    for late in (timedelta(), timedelta(seconds=1), timedelta(seconds=ON_TIME_WITHIN_S)):
        assert timeliness(late, within_s=None) is Timeliness.ON_TIME


def test_a_missed_run_is_skipped_unless_the_runbook_says_otherwise():
    assert timeliness(timedelta(hours=1), within_s=None) is Timeliness.TOO_LATE
    assert timeliness(timedelta(hours=1), within_s=SIX_HOURS_S) is Timeliness.CATCH_UP
    assert timeliness(timedelta(hours=7), within_s=SIX_HOURS_S) is Timeliness.TOO_LATE


def test_what_lies_before_the_installation_was_never_missed():
    installed = MORNING + timedelta(minutes=30)
    late = timedelta(hours=1)
    assert timeliness(late, within_s=SIX_HOURS_S, since=installed) is Timeliness.NOT_YET
    assert timeliness(late, within_s=SIX_HOURS_S, since=MORNING) is Timeliness.CATCH_UP


def test_several_missed_runs_are_the_last_of_them():
    found = due("@hourly", MORNING + timedelta(hours=5), time_zone="UTC", catch_up_within_s=SIX_HOURS_S)
    assert found.scheduled_at == datetime(2026, 11, 23, 12, tzinfo=UTC)


@given(late_s=st.floats(0, 86_399), within_s=st.none() | st.floats(1, 86_400))
def test_a_later_start_is_never_more_due(late_s, within_s):
    now = due(CRON, MORNING + timedelta(seconds=late_s), time_zone="UTC", catch_up_within_s=within_s)
    earlier = due(CRON, MORNING + timedelta(seconds=late_s / 2), time_zone="UTC", catch_up_within_s=within_s)
    assert earlier.is_due >= now.is_due
