"""Until when a replica whose node is taken serves, and how its leaving is put."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import finish_s, notice_name, notice_of, serves_until
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.reconcile.replica_step import ReconcileContext
    from fleetctl.model.observation import Observation, ObservedReplica
    from fleetctl.model.plan import Plan

_WINDOWS_S = (300.0, 3600.0)


def e2e_s_p99(plan: Plan, observation: Observation) -> dict[str, float]:
    """Return how long requests take, P99, by lane: over the shortest window with samples enough, else as planned."""
    found = {lane.lane: lane.forecast.e2e_p99_s for lane in plan.lanes}
    gateway = observation.gateway
    if gateway is None or observation.gateway_validity is not Validity.OK:
        return found
    for lane in gateway.lanes:
        measured = [e2e for seconds in _WINDOWS_S if (e2e := lane.window(seconds).e2e).validity is Validity.OK]
        if measured:
            found[lane.name] = measured[0].p99_s
    return found


def leaves_rotation_at(replica: ObservedReplica, context: ReconcileContext) -> datetime | None:
    """Return until when a replica whose node is taken serves; None: nothing says that it is."""
    notice = notice_of(replica)
    if notice is None:
        return None
    record = replica.record
    needed_s = finish_s(record, context.e2e_s_p99.get(record.lane), drain_timeout_s=context.control.drain_timeout_s)
    return serves_until(notice, finish_s=needed_s)


def leaving_reason(replica: ObservedReplica, now: datetime, why: str = "") -> str:
    """Return why a replica whose node is taken leaves rotation now."""
    notice = notice_of(replica)
    left_s = (notice - now).total_seconds() if notice is not None else 0.0
    when = f"the node is taken in {format_duration(left_s)}"
    return f"{notice_name(replica)} notice: {when}{why}; {replica.in_flight} in flight"
