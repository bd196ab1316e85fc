"""Whether a replica may be assigned to a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.replica import Replica


def assignment_refusal(record: Replica, lane: str, plan: Plan) -> str:
    """Return why a replica cannot serve a lane of this plan, one clause; empty when it can.

    Fewer requests at once than the lane was planned with are no reason: routing goes by what the replica holds.
    """
    lane_plan = next((each for each in plan.lanes if each.lane == lane), None)
    if lane_plan is None:
        return f"there is no lane {lane!r}"
    held, launch = record.capacity, lane_plan.launch
    if held is None:
        return f"what {record.id} can hold was not recorded when it was launched"
    if held.max_model_len < launch.max_model_len:
        return (
            f"lane {lane!r} takes requests of {launch.max_model_len} tokens, and {record.id} holds {held.max_model_len}"
        )
    if held.precision is not launch.quantization:
        return f"lane {lane!r} runs {launch.quantization}, and {record.id} was started with {held.precision}"
    return ""
