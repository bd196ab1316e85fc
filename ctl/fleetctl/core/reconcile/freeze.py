"""A frozen lane's count: what it was as the freeze began, whatever the load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.scaling import Target
from fleetctl.model.reason import ReasonCode

if TYPE_CHECKING:
    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.desired import Terms

_UNPLANNED = -1


def held_still(view: LaneView, aim: Target, frozen: Terms | None) -> Target:
    """Return the target of a lane: as aimed at, or the count that a freeze holds it at.

    An operator's count goes before a freeze, and so does a plan that was applied in spite of it. A count that was an
    operator's until it ended within the freeze stays too.
    """
    memory = view.memory
    is_new_plan = memory.planned not in (_UNPLANNED, view.plan.replicas)
    has_begun = memory.planned != _UNPLANNED or memory.wanted > 0
    if frozen is None or view.override is not None or is_new_plan or not has_begun:
        return aim
    held = view.bounded(memory.wanted)
    # What was learned of arrivals is kept; of a change that is not made nothing is, else it would be regretted.
    kept = aim.memory if aim.wanted == held else replace(memory, arrivals=aim.memory.arrivals, breach=aim.memory.breach)
    else_ = "" if aim.wanted == held else f"; else {aim.reason}"
    return Target(
        wanted=held,
        memory=replace(kept, wanted=held, planned=memory.planned),
        code=ReasonCode.FROZEN,
        reason=f"held at {held}: frozen{frozen.text}{else_}",
        need=None,
    )
