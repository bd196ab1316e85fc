"""What takes replicas away: spot notices, drains; and when each must be over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.observation import ObservedReplica

# A notice of 120 s is best effort (ends after a few seconds were seen): be done well before it.
_NOTICE_MARGIN_S = 10.0
_NOTICE_MARGIN_SHARE = 0.2


def notice_of(replica: ObservedReplica) -> datetime | None:
    """Return when the node is taken, if that is known."""
    return replica.notice_deadline or replica.record.notice_deadline


def drain_deadline(now: datetime, drain_timeout_s: float, notice: datetime | None) -> datetime:
    """Return when a drain ends: its own timeout, or a margin before the node is taken; never in the past."""
    own = now + timedelta(seconds=drain_timeout_s)
    if notice is None:
        return own
    left_s = (notice - now).total_seconds()
    margin_s = min(_NOTICE_MARGIN_S, _NOTICE_MARGIN_SHARE * max(0.0, left_s))
    return max(now, min(own, notice - timedelta(seconds=margin_s)))


def scale_down_order(replicas: Iterable[ObservedReplica]) -> list[ObservedReplica]:
    """Return replicas in the order they are scaled down: unready before ready, spot before on-demand, then newest."""
    return sorted(
        sorted(replicas, key=lambda r: (r.record.created_at, r.record.id), reverse=True),
        key=lambda r: (r.record.state is ReplicaState.READY, r.record.market is not Market.SPOT),
    )
