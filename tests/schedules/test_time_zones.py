"""Time zones of schedules: the machine's by default, and the local times that clocks skip."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleetctl.schedules.time_zones import gaps, machine_zone, zone_label, zone_of

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Europe/Vienna", [("2027-03-28T02:00", "2027-03-28T03:00")]),
        ("America/New_York", [("2027-03-14T02:00", "2027-03-14T03:00")]),
        ("Australia/Lord_Howe", [("2027-10-03T02:00", "2027-10-03T02:30")]),  # half an hour
        ("UTC", []),
        ("Asia/Kolkata", []),
    ],
)
def test_the_times_that_clocks_skip_are_known(zone, expected):
    assert [(a.isoformat("T", "minutes"), b.isoformat("T", "minutes")) for a, b in gaps(zone_of(zone), NOW)] == expected


def test_no_name_is_the_machine_s_own_zone_and_is_said_to_be():
    assert zone_of("") is machine_zone()
    assert zone_label("").endswith("(the machine's)")
    assert zone_label("Europe/Vienna") == "Europe/Vienna"
