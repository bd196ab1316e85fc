"""What status, load, the exit codes and the journal say of two incidents on one fleet: the same, and in time."""

from __future__ import annotations

import pytest

from tests.bench.verdict_live import FLEET, Drill

# So long the load goes on after the incident: a breach is over once requests show it, and a busy machine recovers late.
AFTER_S = 24.0

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.timeout(500)]


def test_an_incident_is_named_and_let_go_of_by_all_who_are_asked(home):
    drill = Drill(home)
    drill.up()
    assert drill.run("slow", seed=1, calm_s=6.0, after_s=AFTER_S).complaints() == []
    assert drill.run("refuse", seed=2, calm_s=6.0, after_s=AFTER_S).complaints() == []
    assert drill.journal()[0] == "breach"
    home.fleetctl("down", FLEET, "-y", timeout_s=120)
