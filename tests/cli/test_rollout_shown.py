"""What `status` says of a rollout that is over."""

from __future__ import annotations

from fleetctl.model.decision import Memory
from fleetctl.model.rollout import Rollout
from fleetctl.testing import samples


def test_a_rollback_is_said_with_its_reason_until_the_next_rollout(dead_fleet, store, fleetctl):
    def rolled(*, undoes: int | None = None, reason: str = "") -> str:
        over = Rollout(
            revision=3,
            stable=1,
            started_at=samples.EPOCH,
            progressed_at=samples.EPOCH,
            ended_at=samples.EPOCH,
            undoes=undoes,
            reason=reason,
        )
        store.put_memory(dead_fleet, Memory(rollout=over))
        shown: str = fleetctl("status", dead_fleet).out
        return shown

    assert "Rollout" not in rolled()
    assert "Rollout  revision 1 -> 3 complete; revision 2 failed: r5 cannot start" in rolled(
        undoes=2, reason="r5 cannot start"
    )
