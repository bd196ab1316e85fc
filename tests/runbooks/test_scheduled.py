"""Starts by the clock: one run an instant, whoever starts it how often; cut runs finished, missed ones as the runbook says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError, LockHeldError
from fleetctl.model.runbook_run import RunbookRun, RunStatus
from fleetctl.runbooks.run_log import put_run, runs_of
from fleetctl.runbooks.runner import run_runbook
from fleetctl.runbooks.scheduled import run_scheduled

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.runbooks.runner import RunResult
    from tests.runbooks.conftest import Rig

# The clock of these tests begins at noon, UTC.
HOURLY = 'schedule: "@hourly"\ntime_zone: UTC\nsteps:\n  - scale: {lane: short, replicas: 3}\n'
MORNING = 'schedule: "30 7 * * *"\ntime_zone: UTC\nmissed: {missed}\nsteps:\n  - scale: {{lane: short, replicas: 3}}\n'
FAILING = 'schedule: "@hourly"\ntime_zone: UTC\nsteps:\n  - check: {that: "lanes.short.ready > 90"}\n'
ASKING = 'schedule: "@hourly"\ntime_zone: UTC\nsteps:\n  - approve: {message: sure, expires: 10m}\n'


def start(rig: Rig, text: str, *, since: datetime | None = None, **changes: object) -> RunResult | None:
    return run_scheduled(rig.fakes.site, rig.request(text, **changes), rig.company, since=since)


def runs(rig: Rig) -> list[RunbookRun]:
    return list(runs_of(rig.fakes.store))


def test_one_run_is_made_for_an_instant_however_often_it_is_started(rig: Rig) -> None:
    first = start(rig, HOURLY)
    assert first is not None
    assert first.run.stands_for == rig.fakes.clock.now()
    for _ in range(5):
        rig.fakes.clock.jump(600)
        assert start(rig, HOURLY) is None
    rig.fakes.clock.jump(601)
    assert start(rig, HOURLY) is not None
    assert len(runs(rig)) == 2


@pytest.mark.parametrize(("missed", "made"), [("skip", 0), ("run-once", 1)])
def test_a_missed_run_is_skipped_or_made_up_for_once(rig: Rig, missed: str, made: int) -> None:
    for _ in range(3):  # at noon: four and a half hours late
        start(rig, MORNING.format(missed=missed))
        rig.fakes.clock.jump(600)
    assert len([run for run in runs(rig) if run.status is RunStatus.SUCCEEDED]) == made


def test_a_run_that_was_missed_and_is_skipped_is_on_record_once_and_said_to_nobody(rig: Rig) -> None:
    for _ in range(3):
        assert start(rig, MORNING.format(missed="skip")) is None
        rig.fakes.clock.jump(600)
    (skipped,) = runs(rig)
    assert (skipped.status, skipped.exit_code, skipped.steps) == (RunStatus.SKIPPED, 0, ())
    assert skipped.stands_for == skipped.created_at - timedelta(hours=4, minutes=30)
    assert skipped.reason == "missed by 4h30m: missed runs are skipped"
    assert skipped.deliveries == ()


def test_a_skipped_run_says_how_late_it_might_have_been(rig: Rig) -> None:
    rig.fakes.clock.jump(2 * 3600)
    start(rig, MORNING.format(missed="run-once"))
    assert runs(rig)[0].reason == "missed by 6h30m: missed runs are made up for within 6h"


def test_a_skipped_run_is_made_by_hand_and_not_resumed(rig: Rig) -> None:
    body = MORNING.format(missed="skip")
    start(rig, body)
    with pytest.raises(ConfigError, match="was skipped"):
        rig.resume(runs(rig)[0].id)
    assert rig.run(body).run.status is RunStatus.SUCCEEDED
    assert start(rig, body) is None


def test_a_start_that_was_on_time_and_waited_for_the_fleet_is_not_undone_by_a_later_one(rig: Rig) -> None:
    on_time = rig.request(HOURLY, at=rig.fakes.clock.now(), is_scheduled=True)
    rig.fakes.clock.jump(301)
    assert start(rig, HOURLY) is None  # skipped by another start, while that one waits for the lock
    made = run_runbook(rig.fakes.site, on_time, rig.company)
    assert (made.is_earlier, made.run.status) == (False, RunStatus.SUCCEEDED)


def test_a_run_missed_too_long_ago_is_left(rig: Rig) -> None:
    rig.fakes.clock.jump(2 * 3600)
    assert start(rig, MORNING.format(missed="run-once")) is None


def test_what_lies_before_the_installation_is_not_made_up_for(rig: Rig) -> None:
    installed = rig.fakes.clock.now() - timedelta(hours=1)
    assert start(rig, MORNING.format(missed="run-once"), since=installed) is None
    assert start(rig, MORNING.format(missed="run-once"), since=installed - timedelta(hours=4)) is not None


def test_a_run_that_failed_is_not_tried_again_by_the_clock(rig: Rig) -> None:
    first = start(rig, FAILING)
    assert first is not None
    assert first.run.status is RunStatus.FAILED
    rig.fakes.clock.jump(60)
    assert start(rig, FAILING) is None
    assert len(runs(rig)) == 1


def test_a_run_that_was_cut_is_gone_on_with_once_its_lock_is_free(rig: Rig) -> None:
    done = start(rig, HOURLY)
    assert done is not None
    put_run(rig.fakes.store, replace(done.run, status=RunStatus.RUNNING, ended_at=None, steps=()))
    rig.fakes.clock.jump(1800)
    with rig.fakes.host.exclusive("demo", operation="runbook", wait_s=0.0, on_wait=print):
        assert start(rig, HOURLY) is None  # it is at work, or another is
    resumed = start(rig, HOURLY)
    assert resumed is not None
    assert (resumed.run.id, resumed.run.status, resumed.run.lives) == (done.run.id, RunStatus.SUCCEEDED, 2)


def test_a_run_that_was_cut_is_left_to_its_own_runbook_by_another(rig: Rig) -> None:
    done = start(rig, HOURLY)
    assert done is not None
    put_run(rig.fakes.store, replace(done.run, status=RunStatus.RUNNING, ended_at=None, steps=()))
    request = rig.request("steps:\n  - scale: {lane: short, replicas: 2}\n")
    other = replace(request.found, runbook=replace(request.found.runbook, name="other"))
    assert run_runbook(rig.fakes.site, replace(request, found=other), rig.company).run.status is RunStatus.SUCCEEDED
    resumed = start(rig, HOURLY)
    assert resumed is not None
    assert resumed.run.id == done.run.id


def test_one_that_waits_for_an_approval_is_left_until_that_expires(rig: Rig) -> None:
    waiting = start(rig, ASKING)
    assert waiting is not None
    assert waiting.run.status is RunStatus.WAITING
    rig.fakes.clock.jump(300)
    assert start(rig, ASKING) is None
    rig.fakes.clock.jump(300)
    closed = start(rig, ASKING)
    assert closed is not None
    assert closed.run.status is RunStatus.FAILED
    assert "nobody approved within 10m" in closed.run.reason


def test_another_runbook_s_lock_is_said(rig: Rig) -> None:
    with rig.fakes.host.exclusive("demo", operation="runbook", wait_s=0.0, on_wait=print), pytest.raises(LockHeldError):
        start(rig, HOURLY)
    assert runs(rig) == []
    assert start(rig, HOURLY) is not None  # within the five minutes it is on time


def test_a_run_that_cannot_begin_is_on_record_once(rig: Rig) -> None:
    first = start(rig, HOURLY, fleet="gone")
    assert first is not None
    assert (first.run.status, first.run.exit_code) == (RunStatus.FAILED, 8)
    assert "gone" in first.run.reason
    for _ in range(3):
        rig.fakes.clock.jump(60)
        assert start(rig, HOURLY, fleet="gone") is None
    rig.fakes.clock.jump(1800)  # no longer on time, and nothing is caught up
    assert start(rig, HOURLY, fleet="other") is None
    assert len(runs(rig)) == 1


def test_a_runbook_without_a_schedule_is_not_run_by_the_clock(rig: Rig) -> None:
    with pytest.raises(ConfigError, match="has no schedule"):
        start(rig, "steps:\n  - check:\n")
