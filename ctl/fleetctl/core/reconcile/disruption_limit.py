"""Bounds how much of a lane leaves rotation by choice within a minute: no bug and no lying signal empties a fleet at once.

Kubernetes' disruption budgets and Envoy's panic threshold are the like. A person's own orders, notices, deaths and what
the gateway hears nothing from are no choice, and are not bounded: waiting would serve nobody.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.changed import changed
from fleetctl.core.disruption import scale_down_order
from fleetctl.core.reconcile.lane_state import LaneState, unsettled_of, with_memory, with_steps
from fleetctl.core.reconcile.limits import GATEWAY_FAILURES_MAX, UNHEALTHY_AFTER_S
from fleetctl.core.reconcile.replica_step import Origin, ReplicaStep, altered
from fleetctl.model.decision import DrainReplica, LaneMemory
from fleetctl.model.reason import Reason, ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fleetctl.core.reconcile.replica_step import ReconcileContext

WINDOW_S = 60.0
# Of what was in rotation as the window began.
SHARE_MAX = 0.5
# So many may always leave as too many or slow: a lane of a few goes straight down to what its calm needed, its minimum stays.
LEAST_BY_CHOICE = 3
_BY_CHOICE = (ReasonCode.REPLICA_EXCESS, ReasonCode.SLOW_REPLICA)


def may_leave(memory: LaneMemory, ready: int, now: datetime, *, least: int = 1) -> int:
    """Return how many more of a lane's replicas in rotation may leave it now: half within a minute, or `least`."""
    lately = len(_lately(memory, now))
    return max(0, most_at_once(ready + lately, least=least) - lately)


def most_at_once(ready: int, *, least: int) -> int:
    """Return how many of a lane's replicas in rotation may leave it within a minute."""
    return max(least, math.ceil(SHARE_MAX * ready))


def hold_doubtful(
    steps: Iterable[ReplicaStep], context: ReconcileContext
) -> tuple[list[ReplicaStep], Mapping[str, tuple[Reason, ...]]]:
    """Return the steps without the convictions that are too many to believe, and why by lane.

    Where /health fails for more than half of a lane at once while the gateway hears from its engines, the probe is
    more likely wrong than they are.
    """
    found = list(steps)
    notes: dict[str, tuple[Reason, ...]] = {}
    doubtful = [o for o in found if not o.is_settled and is_doubtful(o)]
    for lane in sorted({o.replica.record.lane for o in doubtful}):
        ready = sum(o.replica.record.state is ReplicaState.READY and o.replica.record.lane == lane for o in found)
        memory = context.memory.lane(lane)
        held = [o.id for o in doubtful if o.replica.record.lane == lane][may_leave(memory, ready, context.now) :]
        if held:
            found = [_staying(o) if o.id in held else o for o in found]
            message = f"/health of {', '.join(held)} fails, and the gateway hears from them: left in rotation for now"
            notes[lane] = (ReasonCode.DISRUPTION_LIMIT.because(message),)
    return found, notes


def is_doubtful(step: ReplicaStep) -> bool:
    """Whether a replica is taken out of rotation on the word of /health alone, against the gateway's."""
    action, seen = step.action, step.replica
    if action is None or action.code is not ReasonCode.UNHEALTHY or not step.is_convicted:
        return False
    is_heard = seen.unheard_s is not None and seen.unheard_s < UNHEALTHY_AFTER_S
    return is_heard and seen.consecutive_failures < GATEWAY_FAILURES_MAX and not seen.is_stalled


def paced(before: LaneState, after: LaneState, context: ReconcileContext) -> tuple[LaneState, tuple[Reason, ...]]:
    """Return the lane with no more leaving by choice than may; the rest stays for now. `before`: nobody had been chosen."""
    leaving = {o.id: o for o in unsettled_of(after) if _leaves_by_choice(o)}
    doubtful = sum(is_doubtful(o) for o in unsettled_of(before))
    if after.shadow or (not leaving and not doubtful):
        return after, ()
    if after.target.code is ReasonCode.OPERATOR:  # a person's count is not the controller's choice
        return after, ()
    ready = sum(o.replica.record.state is ReplicaState.READY for o in before.steps)
    allowed = max(0, may_leave(after.memory, ready, context.now, least=LEAST_BY_CHOICE) - doubtful)
    order = [seen.record.id for seen in scale_down_order(o.replica for o in leaving.values())]
    held = set(order[allowed:])
    lately = (*_lately(after.memory, context.now), *[context.now] * (len(order[:allowed]) + doubtful))
    after = with_memory(after, changed(after.memory, left_at=lately))
    if not held:
        return after, ()
    after = with_steps(after, [o for o in before.steps if o.id in held])
    message = f"{len(held)} more leave later: {len(lately)} left by choice within {WINDOW_S:.0f}s"
    return after, (ReasonCode.DISRUPTION_LIMIT.because(message),)


def _leaves_by_choice(step: ReplicaStep) -> bool:
    return isinstance(step.action, DrainReplica) and step.action.code in _BY_CHOICE


def _lately(memory: LaneMemory, now: datetime) -> tuple[datetime, ...]:
    since = now - timedelta(seconds=WINDOW_S)
    return tuple(at for at in memory.left_at if at > since)


def _staying(step: ReplicaStep) -> ReplicaStep:
    return altered(step, state=ReplicaState.READY, action=None, failed_start=False, origin=Origin.FACT)
