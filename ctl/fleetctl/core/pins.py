"""What a ladder step that an operator holds means to the lane's demand: what is refused on purpose asks for no replica."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.ladder import LadderStep

_LINGERS_S = 10.0  # the window that refusals are read from


class RefusedBy(Enum):
    """The one at whose will the ladder's step refuses."""

    CONTROLLER = "controller"  # for want of capacity
    OPERATOR = "operator"
    OPERATOR_LATELY = "operator-lately"  # let go, and the window still holds it


def refused_by(memory: LaneMemory, pinned: LadderStep | None, now: datetime) -> RefusedBy:
    """Return who refuses, by the lane's memory before this decision and the step that is pinned now."""
    if pinned is not None:
        return RefusedBy.OPERATOR
    since_s = None if memory.released_at is None else (now - memory.released_at).total_seconds()
    if memory.is_pinned or (since_s is not None and since_s < _LINGERS_S):
        return RefusedBy.OPERATOR_LATELY
    return RefusedBy.CONTROLLER
