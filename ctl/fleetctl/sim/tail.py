"""How long a simulation goes on after its last arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest

# For answers that nothing is promised of but their first token.
_ANSWER_S: Final = 60.0


def tail_s(lanes: Iterable[DispatchLane[ActiveRequest]]) -> float:
    """Return within how many seconds of an arrival each of these lanes has missed its promise or kept it, but for long streams."""
    return max((_lane_s(lane) for lane in lanes), default=0.0) + _ANSWER_S


def _lane_s(lane: DispatchLane[ActiveRequest]) -> float:
    limits = lane.accounts.limits
    return max(lane.max_wait_s + (limits.ttft_s or 0.0), limits.queue_wait_s or 0.0, limits.total_s or 0.0)
