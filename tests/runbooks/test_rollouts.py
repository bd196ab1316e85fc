"""Steps on rollouts: held, let go on, taken back once however often they are cut, and waited for by their revision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.rollout import RolloutPhase, RolloutStatus
from fleetctl.model.runbook_run import RunStatus, StepStatus
from fleetctl.operations import overrides, rollouts
from fleetctl.runbooks.run_log import put_run
from fleetctl.testing import samples

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus
    from tests.runbooks.conftest import Rig

UNDO = "steps:\n  - name: back\n    rollout: {do: undo}\n"
WAIT = "steps:\n  - rollout: {do: wait, to: 2}\n"


@pytest.fixture
def changed(rig: Rig) -> Rig:
    """A fleet whose profile was changed once: revision 2, complete."""
    rig.fakes.clock.jump(60)
    profile = replace(samples.profile(), model=replace(samples.profile().model, served_name="new"))
    rig.fakes.store.put_fleet(profile, samples.plan(), now=rig.fakes.clock.now(), by="ann")
    rig.fakes.clock.jump(60)
    seen(rig, RolloutPhase.COMPLETE)
    return rig


def seen(rig: Rig, phase: RolloutPhase, *, undoes: int | None = None) -> None:
    """Have the controller say so of the fleet's newest rollout."""

    def status() -> FleetStatus:
        found = rig.fakes.ready_status("demo")
        desired = rig.fakes.store.fleet("demo")
        assert desired is not None
        rollout = RolloutStatus(
            phase=phase,
            revision=desired.revision,
            stable=desired.revision - 1,
            lanes=(),
            started_at=desired.changed_at,
            ended_at=desired.changed_at if phase is RolloutPhase.COMPLETE else None,
            undoes=undoes,
            reason="lane short: its engine does not know --no-such-flag" if undoes else "",
        )
        return replace(found, rollout=rollout)

    rig.fakes.host.controllers["demo"] = status


def revision(rig: Rig) -> int:
    desired = rig.fakes.store.fleet("demo")
    assert desired is not None
    return desired.revision


def test_a_rollout_is_held_and_let_go_on(changed: Rig) -> None:
    run = changed.run("steps:\n  - rollout: {do: pause}\n  - rollout: {do: resume}\n  - rollout: {do: resume}\n").run
    assert [record.result for record in run.steps] == [
        {"was_paused": False, "held_by": ["it is paused by hand"]},
        {"was_paused": True, "held_by": []},
        {"was_paused": False, "held_by": []},
    ]


def test_a_rollout_that_a_freeze_holds_still_is_told_so_when_it_is_resumed(changed: Rig) -> None:
    run = changed.run("steps:\n  - freeze: {lane: short, reason: launch}\n  - rollout: {do: resume}\n").run
    (held,) = run.steps[-1].result["held_by"]
    assert held.startswith("lane short is frozen")
    assert changed.spoken[-1] == f"demo: the rollout is held still: {held}"


def test_undo_puts_the_revision_before_in_force_again_and_waits_for_it(changed: Rig) -> None:
    run = changed.run(UNDO).run
    assert run.steps[0].result == {"revision": 3}
    assert rollouts.earlier_revision(changed.fakes.site, "demo").number == 2


@pytest.mark.parametrize("is_done", [True, False])
def test_an_undo_that_was_cut_is_done_once(changed: Rig, is_done: bool) -> None:
    run = changed.run(UNDO).run
    assert revision(changed) == 3
    begun = run.steps[0].started_at if is_done else changed.fakes.clock.now()
    if not is_done:  # cut before it: what was undone was an earlier run's
        changed.fakes.clock.jump(1)
        begun = changed.fakes.clock.now()
    cut = replace(run.steps[0], status=StepStatus.STARTED, started_at=begun, ended_at=None, result={})
    put_run(changed.fakes.store, replace(run, status=RunStatus.RUNNING, ended_at=None, steps=(cut,)))
    assert changed.resume(run.id).run.status is RunStatus.SUCCEEDED
    assert revision(changed) == (3 if is_done else 4)


def test_an_undo_without_an_earlier_revision_fails_and_says_so(rig: Rig) -> None:
    run = rig.run(UNDO).run
    assert (run.status, run.exit_code) == (RunStatus.FAILED, 8)
    assert "has no earlier revision" in run.reason


def test_a_wait_for_a_revision_is_not_misled_by_a_lane_that_somebody_scales_meanwhile(changed: Rig) -> None:
    overrides.scale(changed.fakes.site, "demo", "short", 3)
    assert changed.run(WAIT).run.status is RunStatus.SUCCEEDED


def test_a_wait_for_a_revision_whose_place_another_took_fails(changed: Rig) -> None:
    rollouts.undo(changed.fakes.site, "demo")
    run = changed.run(WAIT).run
    assert (run.status, run.exit_code) == (RunStatus.FAILED, 17)
    assert "revision 2 is not in force: revision 3 is" in run.reason


@pytest.mark.parametrize("body", [WAIT, WAIT.replace(", to: 2", "")])
def test_a_wait_for_a_revision_that_was_rolled_back_fails_at_once_with_the_reason(changed: Rig, body: str) -> None:
    rollouts.undo(changed.fakes.site, "demo")
    seen(changed, RolloutPhase.ROLLING_BACK, undoes=2)
    begun = changed.fakes.clock.now()
    run = changed.run(body.replace("  - rollout", "  - retry: {attempts: 3}\n    rollout")).run
    assert (run.exit_code, run.steps[0].attempts) == (17, 1)
    assert "does not know --no-such-flag" in run.reason
    assert changed.fakes.clock.now() == begun


def test_a_wait_ends_at_its_timeout_and_says_how_far_the_rollout_is(changed: Rig) -> None:
    seen(changed, RolloutPhase.CANARY)
    run = changed.run(WAIT + "    timeout: 30s\n").run
    assert run.exit_code == 9
    assert "the rollout of revision 2 is canary" in run.reason


def test_an_undo_over_the_cost_cap_is_not_taken(changed: Rig) -> None:
    dear = replace(
        samples.plan(),
        lanes=tuple(
            replace(p, offering=replace(p.offering, price_usd_per_hour=3 * p.offering.price_usd_per_hour))
            for p in samples.plan().lanes
        ),
    )
    changed.fakes.store.put_fleet(samples.profile(), dear, now=changed.fakes.clock.now())
    changed.fakes.store.put_fleet(samples.profile(), samples.plan(), now=changed.fakes.clock.now())
    run = changed.run(UNDO, max_cost_usd_per_hour=samples.plan().cost_usd_per_hour).run
    assert run.exit_code == 6


def test_an_up_that_was_cut_rolls_out_nothing_that_has_been_rolled_back_meanwhile(changed: Rig) -> None:
    run = changed.run("steps:\n  - name: roll\n    up: {profile: quickstart}\n").run
    begun = replace(
        run.steps[0], status=StepStatus.STARTED, ended_at=None, result={}, arguments={"profile": "quickstart"}
    )
    put_run(changed.fakes.store, replace(run, status=RunStatus.RUNNING, ended_at=None, steps=(begun,)))
    changed.fakes.clock.jump(60)
    rollouts.undo(changed.fakes.site, "demo")  # as the controller does by itself
    seen(changed, RolloutPhase.COMPLETE, undoes=2)
    resumed = changed.resume(run.id).run
    assert (resumed.status, resumed.exit_code, revision(changed)) == (RunStatus.FAILED, 17, 3)
    assert "does not know --no-such-flag" in resumed.reason
