"""Orders that are far behind: others are placed in their stead, and they are taken in if they come after all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.boot_times import late_after_s
from fleetctl.core.reconcile.limits import since_s
from fleetctl.core.reconcile.replica_step import unsettled
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from fleetctl.core.reconcile.lane_state import LaneState
    from fleetctl.core.reconcile.replica_step import ReplicaStep
    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.plan import LanePlan

_COMING = (ReplicaState.PENDING, ReplicaState.BOOTING)
# Of a lane's wanted replicas, as many orders may be late and replaced at once: where nothing comes, more orders do not help.
_REPLACED_SHARE = 0.25
_REPLACED_MIN = 2


def late_ids(
    plan: LanePlan, memory: LaneMemory, steps: Sequence[ReplicaStep], *, boot_s: dict[str, float], now: datetime
) -> frozenset[str]:
    """Return the lane's replicas that no longer count as capacity until they are ready; the oldest, where many are late.

    Only while fewer serve than are wanted, and where a start is known to work: a lane that nobody has served yet waits for
    its first ones. `boot_s` is what was measured, by offering.
    """
    # One that is being admitted is not there yet: it must not be given up for the one whose stead it is in.
    others = unsettled(steps)
    coming = [o for o in others if _is_coming(o)]
    if not coming:
        return frozenset()
    serving = sum(o.state is o.replica.record.state is ReplicaState.READY for o in others)
    ready = len(steps) - len(others) + serving
    if ready >= memory.wanted or not max(ready, memory.had_ready):
        return frozenset()
    limit_s = late_after_s(plan, [o.replica.record for o in steps], boot_s)
    late = [o.id for o in coming if since_s(o.replica.record.requested_at, now) > limit_s(o.replica.record)]
    return frozenset(late[: max(_REPLACED_MIN, math.ceil(_REPLACED_SHARE * memory.wanted))])


def _is_coming(step: ReplicaStep) -> bool:
    """Whether it is a first start that was sent: one that the provider has not been asked for waits for our own pace."""
    replica = step.replica
    return step.state in _COMING and replica.record.ready_at is None and replica.was_requested


def late_note(lane: LaneState, now: datetime) -> tuple[Reason, ...]:
    """Return which orders are late and by how much, where another stands in their stead."""
    if not lane.late:
        return ()
    late = [o for o in lane.steps if o.id in lane.late and o.state.counts_as_capacity]
    if not late:
        return ()
    ages = ", ".join(
        f"{o.id} on {o.replica.record.offering} {format_duration(since_s(o.replica.record.requested_at, now))}"
        for o in late
    )
    message = f"late since their order: {ages}; {format_duration(lane.boot_s)} expected; counted again once ready"
    return (ReasonCode.REPLICA_LATE.because(message),)
