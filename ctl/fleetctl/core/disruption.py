"""What takes replicas away: notices, drains; and when each must be over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.observation import ObservedReplica
    from fleetctl.model.replica import Replica

# A notice of 120 s is best effort (ends after a few seconds were seen): be done well before it.
_NOTICE_MARGIN_S = 10.0
_NOTICE_MARGIN_SHARE = 0.2


def notice_of(replica: ObservedReplica) -> datetime | None:
    """Return when the node is taken, if that is known."""
    return replica.notice_deadline or replica.record.notice_deadline


def notice_code(replica: ObservedReplica) -> ReasonCode:
    """Return why a replica leaves on a notice. One on record that is no longer shown was a spot node's."""
    notice = replica.notice
    is_spot = notice is None or not notice.takes_node or notice.kind is NoticeKind.INTERRUPTION
    return ReasonCode.SPOT_NOTICE if is_spot else ReasonCode.NODE_NOTICE


def notice_name(replica: ObservedReplica) -> str:
    """Return what the notice that takes a replica's node is called."""
    return "spot" if notice_code(replica) is ReasonCode.SPOT_NOTICE or not replica.notice else replica.notice.kind


def notice_text(notice: Notice, now: datetime) -> str:
    """Return a notice in words: its kind, when, and whether it is certain."""
    left_s = (notice.deadline - now).total_seconds() if notice.deadline is not None else None
    when = "" if left_s is None else (f" in {format_duration(left_s)}" if left_s > 0 else " due")
    return f"{notice.kind} notice{when}" + ("" if notice.is_certain else ", it may yet stay")


def is_node_ready(record: Replica) -> bool:
    """Whether nothing says that the replica's node does not report."""
    return record.notice is None or record.notice.kind is not NoticeKind.NOT_READY


def drain_deadline(now: datetime, drain_timeout_s: float, notice: datetime | None) -> datetime:
    """Return when a drain ends: its own timeout, or a margin before the node is taken; never in the past."""
    own = now + timedelta(seconds=drain_timeout_s)
    if notice is None:
        return own
    left_s = (notice - now).total_seconds()
    margin_s = min(_NOTICE_MARGIN_S, _NOTICE_MARGIN_SHARE * max(0.0, left_s))
    return max(now, min(own, notice - timedelta(seconds=margin_s)))


def scale_down_order(replicas: Iterable[ObservedReplica]) -> list[ObservedReplica]:
    """Return replicas in the order they are scaled down.

    What a notice hints at goes first, for it may go anyway; then unready before ready, spot before on-demand, newest.
    """
    return sorted(
        sorted(replicas, key=lambda r: (r.record.created_at, r.record.id), reverse=True),
        key=lambda r: (
            r.notice is None,
            r.record.state is ReplicaState.READY,
            r.record.market is not Market.SPOT,
        ),
    )
