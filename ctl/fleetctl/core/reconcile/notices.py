"""Until when a replica whose node is taken serves, and how its leaving is put."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.disruption import finish_s, notice_name, notice_of, serves_until
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.reconcile.replica_step import ReconcileContext
    from fleetctl.model.observation import ObservedReplica


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
    taker = f" for {replica.notice.taker}" if replica.notice is not None and replica.notice.taker else ""
    by = f" by {replica.notice.taken_by}" if replica.notice is not None and replica.notice.taken_by else ""
    return f"{notice_name(replica)} notice: {when}{by}{taker}{why}; {replica.in_flight} in flight"
