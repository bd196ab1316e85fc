"""A third party's policy in thirty lines: as many replicas as keep the engines' own queues short."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation

NAME = "waiting"
_WAITING_MAX = 4  # requests in the engines' queues, for each replica in rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What it keeps of its own: the longest queue it has seen."""

    waiting: int = 0


def on_waiting(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
    longest = (memory.kept_by(NAME, Peak) or Peak()).waiting

    def scaling(view: LaneView) -> Target:
        nonlocal longest
        engines, ready = view.engines, view.counts.ready
        if engines.validity is not Validity.OK or view.counts.pending:
            wanted = view.bounded(max(1, view.memory.wanted))
        else:
            longest = max(longest, engines.waiting)
            wanted = view.bounded(ready + (engines.waiting > _WAITING_MAX * ready) - (engines.waiting == 0))
        reason = f"{engines.waiting} waiting in {ready} engines"
        return Target(wanted=wanted, memory=replace(view.memory, wanted=wanted), code=ReasonCode.LOAD, reason=reason)

    decision = reconcile(desired, observation, memory, now, scaling=scaling)
    return replace(decision, memory=decision.memory.keeping(NAME, Peak(waiting=longest)))
