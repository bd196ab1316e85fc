"""A dry run says what the run would be refused, and asks the operations themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.operations import freezing
from fleetctl.runbooks.dry_run import PlannedStep, plan_run
from fleetctl.runbooks.runner import draft_run

if TYPE_CHECKING:
    from tests.runbooks.conftest import Rig


def planned(rig: Rig, steps: str) -> tuple[PlannedStep, ...]:
    """Return what a dry run says of these steps."""
    return plan_run(rig.fakes.site, draft_run(rig.fakes.site, rig.request(f"steps:\n{steps}"))).steps


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("scale: {lane: nope, replicas: 2}", "has no lane 'nope'"),
        ("scale: {lane: short, replicas: 99}", "replicas, not 99"),
        ("shed: {lane: nope, step: shed}", "has no lane 'nope'"),
        ("freeze: {lane: nope, reason: launch}", "has no lane 'nope'"),
        ("thaw: {lane: nope}", "has no lane 'nope'"),
        ("wait: {ready: 1, lane: nope}", "has no lane 'nope'"),
        ("drain: {zone: nope}", "no zone 'nope'"),
        ("drain: {replica: r99}", "no live replica or node 'r99'"),
        ("interrupt: {replica: r99}", "no live replica or node 'r99'"),
    ],
)
def test_a_step_that_would_be_refused_is_said_to_be(rig: Rig, step: str, reason: str) -> None:
    (found,) = planned(rig, f"  - {step}\n")
    assert reason in found.reason
    assert found.cost_usd_per_hour is None


def test_a_step_that_would_be_taken_is_not(rig: Rig) -> None:
    (found,) = planned(rig, "  - scale: {lane: short, replicas: 3}\n")
    assert found.reason == ""
    assert rig.replicas("short") is None


def test_a_frozen_fleet_is_said_unless_an_earlier_step_thaws_it(rig: Rig) -> None:
    freezing.freeze(rig.fakes.site, "demo", reason="launch")
    scale = "  - scale: {lane: short, replicas: 3}\n"
    assert "frozen" in planned(rig, scale)[0].reason
    assert planned(rig, f"  - thaw: {{}}\n{scale}")[1].reason == ""


@pytest.mark.parametrize(
    ("steps", "codes"),
    [
        ("  - check: {that: 'lanes.short.ready >= 99'}\n", [5]),
        ("  - check: {that: 'lanes.short.ready > 0'}\n", [0]),
        ("  - check: {that: 'lanes.nope.ready > 0'}\n", [3]),
        ("  - check: {}\n    if: lanes.nope.ready > 0\n", [3]),
        ("  - check: {that: 'false'}\n    continue_on_error: true\n", [0]),
        ("  - scale: {lane: short, replicas: 3}\n  - check: {that: 'lanes.short.ready >= 3'}\n", [0, 0]),
        ("  - wait: {for: 5m}\n  - check: {that: 'lanes.short.ready >= 3'}\n", [0, 0]),
        ("  - scale: {lane: short, replicas: 3}\n    if: 'false'\n  - check: {that: 'false'}\n", [0, 5]),
    ],
)
def test_a_check_is_made_where_nothing_before_it_changes_what_it_sees(rig: Rig, steps: str, codes: list[int]) -> None:
    found = planned(rig, steps)
    assert [step.exit_code for step in found] == codes
    assert all(step.reason for step in found if step.exit_code)
