"""The ladder's one table."""

from __future__ import annotations

import pytest

from fleetctl import codec
from fleetctl.model.ladder import LADDER, LadderStep, StepEffect, entries_up_to, loss


def test_the_table_has_every_step_in_order_and_every_effect_once() -> None:
    assert [entry.step for entry in LADDER] == list(LadderStep)
    assert sorted(entry.effect for entry in LADDER) == sorted(StepEffect)
    assert all(entry.meaning for entry in LADDER)


def test_steps_are_ordered_as_they_are_taken() -> None:
    assert sorted([LadderStep.BREAKER, LadderStep.NORMAL, LadderStep.SPILL]) == [
        LadderStep.NORMAL,
        LadderStep.SPILL,
        LadderStep.BREAKER,
    ]
    assert max(LadderStep.CAP_TOKENS, LadderStep.SPILL) is LadderStep.SPILL
    assert LadderStep.SHED >= LadderStep.SHED > LadderStep.NORMAL


@pytest.mark.parametrize("step", LadderStep)
def test_json_writes_the_name_people_write(step: LadderStep) -> None:
    assert codec.encode(step) == f'"{step}"'.encode()
    assert codec.decode(LadderStep, codec.encode(step)) is step
    assert str(step) == step.name.lower().replace("_", "-")


def test_a_lane_people_wait_on_never_holds_its_queue() -> None:
    found = {entry.effect for entry in entries_up_to(LadderStep.BREAKER, interruptible=False)}
    assert found == set(StepEffect) - {StepEffect.HOLDS_QUEUE}


@pytest.mark.parametrize(
    ("step", "interruptible", "expected"),
    [
        (LadderStep.NORMAL, True, ""),
        (LadderStep.PAUSE_BATCH, False, ""),
        (LadderStep.PAUSE_BATCH, True, "hold its queue"),
        (LadderStep.BREAKER, True, "hold its queue"),
        (LadderStep.CAP_TOKENS, False, ""),
        (LadderStep.SPILL, False, "context cap"),
        (LadderStep.BREAKER, False, "a probe a second"),
    ],
)
def test_what_is_lost_by_a_step_is_named(step: LadderStep, interruptible: bool, expected: str) -> None:
    assert expected in loss(step, interruptible=interruptible)
    assert bool(loss(step, interruptible=interruptible)) == bool(expected)
