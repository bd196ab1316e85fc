"""A run's life: steps in order, on record before and after, idempotent, resumed, rolled back, limited."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError, DiskFullError, FleetctlError, LockHeldError, NotFoundError
from fleetctl.model.runbook_run import RunStatus, StepStatus
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.runbooks.run_log import find_run, put_run, runs_of

if TYPE_CHECKING:
    from tests.runbooks.conftest import Rig

SCALE = """
params: {replicas: {type: int, default: 3}}
steps:
  - name: warm
    scale: {lane: short, replicas: "${{ params.replicas }}"}
  - name: look
    check: {that: "status.fleet == 'demo'"}
"""


def test_steps_are_taken_in_order_and_each_is_on_record(rig: Rig) -> None:
    result = rig.run(SCALE)
    assert result.run.status is RunStatus.SUCCEEDED
    assert rig.steps == [("warm", "ok"), ("look", "ok")]
    assert rig.replicas("short") == 3
    assert find_run(rig.fakes.store, result.run.id) == result.run


def test_a_second_run_of_the_same_hour_does_nothing_and_one_of_the_next_hour_runs(rig: Rig) -> None:
    first = rig.run(SCALE).run
    again = rig.run(SCALE)
    assert again.is_earlier
    assert again.run.id == first.id
    assert rig.run(SCALE, parameters={"replicas": "2"}).run.id != first.id
    rig.fakes.clock.jump(3600)
    assert not rig.run(SCALE).is_earlier


def test_force_runs_again(rig: Rig) -> None:
    rig.run(SCALE)
    assert not rig.run(SCALE, is_forced=True).is_earlier
    assert len(runs_of(rig.fakes.store, "demo")) == 2


def test_a_run_that_failed_is_run_anew(rig: Rig) -> None:
    failing = 'steps:\n  - check: {that: "lanes.short.ready > 90"}\n'
    first, second = rig.run(failing).run, rig.run(failing).run
    assert (first.status, first.exit_code) == (RunStatus.FAILED, 5)
    assert first.id != second.id


def test_a_step_whose_condition_does_not_hold_is_skipped(rig: Rig) -> None:
    rig.run("steps:\n  - if: lanes.short.ready > 90\n    scale: {lane: short, replicas: 3}\n")
    assert rig.steps == [("scale-1", "skipped")]
    assert rig.replicas("short") is None


def test_a_later_step_sees_what_earlier_ones_did(rig: Rig) -> None:
    body = """
steps:
  - name: warm
    scale: {lane: short, replicas: 3}
  - name: told
    if: steps.warm.status == 'ok' && steps.warm.result.after == '3'
    check: {that: "steps['warm'].attempts == 1"}
"""
    assert rig.run(body).run.status is RunStatus.SUCCEEDED
    assert rig.steps[-1] == ("told", "ok")


FAILING = """
steps:
  - name: warm
    scale: {lane: short, replicas: 3}
  - name: broken
    check: {that: "false", message: it is broken}
  - name: never
    scale: {lane: short, replicas: 1}
on_failure:
  - name: back
    if: failure.step == 'broken'
    scale: {lane: short, replicas: auto}
"""


def test_a_failed_step_is_rolled_back_and_gives_the_run_its_exit_code(rig: Rig) -> None:
    run = rig.run(FAILING).run
    assert rig.steps == [("warm", "ok"), ("broken", "failed"), ("back", "ok")]
    assert (run.status, run.exit_code, run.reason) == (RunStatus.FAILED, 5, "broken: it is broken")
    assert rig.replicas("short") is None


def test_a_rollback_that_fails_goes_on_and_is_said(rig: Rig) -> None:
    body = FAILING.replace("on_failure:", "on_failure:\n  - scale: {lane: nowhere, replicas: 1}")
    run = rig.run(body).run
    assert rig.steps[-2:] == [("undo-scale-1", "failed"), ("back", "ok")]
    assert "its rollback failed too, at undo-scale-1" in run.reason


def test_continue_on_error_goes_on(rig: Rig) -> None:
    body = 'steps:\n  - check: {that: "false"}\n    continue_on_error: true\n  - scale: {lane: short, replicas: 3}\n'
    assert rig.run(body).run.status is RunStatus.SUCCEEDED
    assert rig.steps == [("check-1", "failed"), ("scale-2", "ok")]


def test_a_step_is_tried_as_often_as_it_says_with_waits_that_grow(rig: Rig) -> None:
    body = 'steps:\n  - check: {that: "false"}\n    retry: {attempts: 4, backoff: 10s, backoff_max: 20s}\n'
    begun = rig.fakes.clock.now()
    run = rig.run(body).run
    waited = (rig.fakes.clock.now() - begun).total_seconds()
    assert run.steps[0].attempts == 4
    assert 5 + 10 + 10 <= waited <= 10 + 20 + 20


def test_what_trying_again_does_not_mend_is_tried_once(rig: Rig) -> None:
    body = "steps:\n  - scale: {lane: short, replicas: 99}\n    retry: {attempts: 4}\n"
    run = rig.run(body).run
    assert (run.steps[0].attempts, run.exit_code) == (1, ConfigError.exit_code)


@pytest.mark.parametrize("verdict", ["kept", "missed"])
def test_a_wait_ends_at_its_timeout_and_says_what_lacks(rig: Rig, verdict: str) -> None:
    run = rig.run(f"steps:\n  - wait: {{verdict: {verdict}, lane: short}}\n    timeout: 30s\n").run
    assert run.exit_code == 9
    assert "timed out after 30s" in run.reason
    assert f"short: verdict none, not {verdict}" in run.reason


def test_a_wait_is_over_once_its_condition_holds(rig: Rig) -> None:
    run = rig.run("steps:\n  - wait: {ready: 2, until: 'lanes.all(l, lanes[l].ready >= lanes[l].wanted)'}\n").run
    assert run.status is RunStatus.SUCCEEDED


def test_a_wait_for_a_duration_needs_no_timeout_of_its_own(rig: Rig) -> None:
    begun = rig.fakes.clock.now()
    assert rig.run("timeout: 5h\nsteps:\n  - wait: {for: 2h}\n").run.status is RunStatus.SUCCEEDED
    assert rig.fakes.clock.now() - begun == timedelta(hours=2)


def test_a_wait_for_a_time_of_day_is_over_at_the_next_one_in_the_runbooks_zone(rig: Rig) -> None:
    # The clock stands at 12:00 UTC, 13:00 in Vienna.
    begun = rig.fakes.clock.now()
    body = "time_zone: Europe/Vienna\ntimeout: 30h\nsteps:\n  - wait: {until_time: '13:30', every: 1m}\n"
    assert rig.run(body).run.status is RunStatus.SUCCEEDED
    assert rig.fakes.clock.now() - begun == timedelta(minutes=30)


def test_a_run_over_its_timeout_fails_and_is_still_rolled_back(rig: Rig) -> None:
    body = "timeout: 1m\nsteps:\n  - wait: {for: 5m}\non_failure:\n  - scale: {lane: short, replicas: 3}\n"
    run = rig.run(body).run
    assert run.exit_code == 9
    assert rig.replicas("short") == 3


def test_a_step_that_would_pass_the_cost_cap_is_not_taken(rig: Rig) -> None:
    run = rig.run(SCALE, max_cost_usd_per_hour=0.5).run
    assert run.exit_code == 6
    assert "over the cap of $0.50/h" in run.reason
    assert rig.replicas("short") is None


def test_a_step_that_makes_it_cheaper_is_taken_however_far_over_the_cap_it_is(rig: Rig) -> None:
    rig.run(SCALE)
    down = "max_cost: $0.5\nsteps:\n  - scale: {lane: short, replicas: 1}\n"
    assert rig.run(down).run.status is RunStatus.SUCCEEDED


def test_another_run_on_the_fleet_is_named(rig: Rig) -> None:
    rig.fakes.host.held.add(("demo", "runbook"))
    with pytest.raises(LockHeldError):
        rig.run(SCALE)
    assert runs_of(rig.fakes.store) == ()


def test_a_fleet_that_does_not_exist_is_a_clear_error(rig: Rig) -> None:
    with pytest.raises(NotFoundError, match="no fleet named 'nowhere'"):
        rig.run(SCALE, fleet="nowhere")


def test_a_full_disk_refuses_before_the_first_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(rig.fakes.store), "has_disk_space", lambda _: False)
    with pytest.raises(DiskFullError):
        rig.run(SCALE)
    assert rig.replicas("short") is None


def test_parameters_are_checked_all_at_once(rig: Rig) -> None:
    with pytest.raises(ConfigError) as caught:
        rig.run(SCALE, parameters={"replcas": "2", "replicas": "two"})
    assert "no parameter 'replcas' (did you mean 'replicas'?)" in caught.value.message
    assert "'replicas' is of type int, not 'two'" in caught.value.message


def test_a_parameter_that_looks_like_a_secret_is_refused_and_kept_nowhere(rig: Rig) -> None:
    secret = "sk-" + "a" * 30
    with pytest.raises(ConfigError, match="looks like a secret"):
        rig.run("params: {x: {default: y}}\nsteps:\n  - check: {that: 'true'}\n", parameters={"x": secret})
    assert runs_of(rig.fakes.store) == ()


APPROVAL = """
steps:
  - scale: {lane: short, replicas: 3}
  - name: gate
    approve: {message: "Go on?", expires: 1h}
  - scale: {lane: short, replicas: 1}
on_failure:
  - scale: {lane: short, replicas: auto}
"""


def test_a_run_waits_for_an_approval_with_its_own_exit_code_and_goes_on_once_it_is_given(rig: Rig) -> None:
    run = rig.run(APPROVAL).run
    assert (run.status, run.exit_code) == (RunStatus.WAITING, 16)
    assert rig.replicas("short") == 3
    again = rig.run(APPROVAL)
    assert (again.run.id, again.run.status) == (run.id, RunStatus.WAITING)
    rig.answer = True
    done = rig.resume(run.id).run
    assert (done.status, rig.replicas("short")) == (RunStatus.SUCCEEDED, 1)


@pytest.mark.parametrize(("answer", "jump_s", "code"), [(False, 0, 1), (True, 3601, 9)])
def test_an_approval_that_is_refused_or_comes_too_late_is_rolled_back(
    rig: Rig, answer: bool, jump_s: float, code: int
) -> None:
    run = rig.run(APPROVAL).run
    rig.answer = answer
    rig.fakes.clock.jump(jump_s)
    ended = rig.resume(run.id).run
    assert (ended.status, ended.exit_code) == (RunStatus.FAILED, code)
    assert rig.replicas("short") is None


def cut_after(rig: Rig, body: str, name: str, *, status: StepStatus = StepStatus.STARTED) -> str:
    """Have a run that was cut in the middle of a step, and return its id."""
    run = rig.run(body).run
    at = next(n for n, record in enumerate(run.steps) if record.name == name)
    cut = replace(run.steps[at], status=status, ended_at=None, result={})
    put_run(rig.fakes.store, replace(run, status=RunStatus.RUNNING, ended_at=None, steps=(*run.steps[:at], cut)))
    rig.steps.clear()
    return run.id


def test_the_next_run_of_the_period_goes_on_with_one_that_was_cut(rig: Rig) -> None:
    run_id = cut_after(rig, SCALE, "look")
    result = rig.run(SCALE)
    assert (result.run.id, result.run.status, result.run.lives) == (run_id, RunStatus.SUCCEEDED, 2)
    assert rig.steps == [("look", "ok")]
    assert find_run(rig.fakes.store, run_id).steps[1].cuts == 1


def test_a_run_that_was_cut_is_closed_by_one_of_another_period(rig: Rig) -> None:
    run_id = cut_after(rig, SCALE, "look")
    rig.fakes.clock.jump(3600)
    assert rig.run(SCALE).run.status is RunStatus.SUCCEEDED
    assert find_run(rig.fakes.store, run_id).status is RunStatus.ABANDONED


def test_a_run_goes_on_with_the_arguments_it_began_with(rig: Rig) -> None:
    body = 'steps:\n  - name: warm\n    scale: {lane: short, replicas: "${{ 1 + int(lanes.short.wanted) }}"}\n'
    run_id = cut_after(rig, body, "warm")
    before = rig.replicas("short")
    assert rig.resume(run_id).run.status is RunStatus.SUCCEEDED
    assert rig.replicas("short") == before


def test_a_notification_that_was_cut_is_not_sent_twice(rig: Rig) -> None:
    body = "steps:\n  - name: tell\n    notify: {message: hello}\n  - check: {that: 'true'}\n"
    run_id = cut_after(rig, body, "tell")
    done = rig.resume(run_id).run
    assert done.status is RunStatus.SUCCEEDED
    assert rig.steps == [("tell", "uncertain"), ("check-2", "ok")]


def test_a_run_cut_in_its_rollback_goes_on_with_it(rig: Rig) -> None:
    run_id = cut_after(rig, FAILING, "back")
    ended = rig.resume(run_id).run
    assert rig.steps == [("back", "ok")]
    assert (ended.status, ended.exit_code) == (RunStatus.FAILED, 5)


def test_a_run_that_is_over_is_not_resumed(rig: Rig) -> None:
    assert rig.resume(rig.run(SCALE).run.id).is_earlier
    with pytest.raises(FleetctlError, match="has failed"):
        rig.resume(rig.run(FAILING).run.id)
    with pytest.raises(NotFoundError, match="there is no run 'x'"):
        rig.resume("x")


def test_a_record_that_cannot_be_read_keeps_no_run_from_being_made(rig: Rig) -> None:
    broken = StoredRecord(
        collection=Collection.RUNBOOK_RUNS, fleet="demo", key="old", at=rig.fakes.clock.now(), text='{"id": "old"}'
    )
    rig.fakes.store.put_record(broken)
    assert rig.run(SCALE).run.status is RunStatus.SUCCEEDED
    assert [run.id for run in runs_of(rig.fakes.store)] == ["nightly-20260105-120000"]
