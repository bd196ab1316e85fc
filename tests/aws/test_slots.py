"""A fleet whose processes are killed on a cloud that loses replies: no order is lost, none is doubled."""

from __future__ import annotations

import pytest

from tests.aws.slots import run_ordeal


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_kills_and_lost_replies_leave_no_orphan_and_no_double() -> None:
    verdict = run_ordeal(slots=24, kills=8, lag_s=5.0, seed=1, patience_s=300.0)
    assert (verdict.unknown, verdict.doubles) == ([], [])
    assert verdict.faults.keys() >= {"cut-after", "cut-before", "error"}, (
        "faults struck while there was something to launch"
    )
    assert verdict.reached == verdict.slots
    assert verdict.living_most <= verdict.cap
    assert verdict.is_down
    assert verdict.left == 0
