"""Whatever of a profile changes, and wherever its controllers are killed, a fleet comes to be what the profile says."""

from __future__ import annotations

import pytest

from tests.controller.rollout_seeds import run_seed

# 12: a pause in the middle of a surge had an old replica leave before its successor served. 61: a lane that a revision had
# begun which was never complete kept that one's replicas. 130: killed between a drain and the admission that allowed it, a
# controller left the lane one short.
_SEEDS = (12, 61, 130, *range(8))


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_rollout_whose_controllers_are_killed_converges_and_keeps_every_lanes_capacity(tmp_path, seed):
    assert run_seed(seed, tmp_path).faults == []


@pytest.mark.parametrize("step", range(1, 80, 11))
def test_a_controller_killed_at_a_step_of_a_rollout_is_followed_by_one_that_finishes_it(tmp_path, step):
    assert run_seed(6, tmp_path, steps=(step,)).faults == []
