"""What takes replicas away: notices, drains; and when each must be over."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.observation import Observation, ObservedReplica
    from fleetctl.model.plan import Plan
    from fleetctl.model.replica import Replica

# A notice of 120 s is best effort (ends after a few seconds were seen): be done well before it.
_NOTICE_MARGIN_S = 10.0
_NOTICE_MARGIN_SHARE = 0.2
_WINDOWS_S = (300.0, 3600.0)  # over which the length of requests is measured
# Streams are given so long to finish while nothing is known of how long they take.
_FINISH_S = 25.0
# A stream that another replica can continue loses nothing when it is cut; what is nearly done still finishes.
_CONTINUED_S = 10.0


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


def notice_of(replica: ObservedReplica) -> datetime | None:
    """Return when the node is taken, if that is known."""
    return replica.notice_deadline or replica.record.notice_deadline


def notice_code(replica: ObservedReplica) -> ReasonCode:
    """Return why a replica leaves on a notice. One on record that is no longer shown was a spot node's."""
    notice = replica.notice
    return ReasonCode.SPOT_NOTICE if notice is None or not notice.takes_node else code_of_notice(notice)


def code_of_notice(notice: Notice) -> ReasonCode:
    """Return the code of a notice: a node that somebody is known to take is no spot node that its provider wants back."""
    is_spot = notice.kind is NoticeKind.INTERRUPTION and not notice.taken_by
    return ReasonCode.SPOT_NOTICE if is_spot else ReasonCode.NODE_NOTICE


def notice_name(replica: ObservedReplica) -> str:
    """Return what the notice that takes a replica's node is called."""
    if notice_code(replica) is ReasonCode.SPOT_NOTICE or not replica.notice:
        return "spot"
    return "eviction" if replica.notice.taken_by else replica.notice.kind


def notice_text(notice: Notice, now: datetime) -> str:
    """Return a notice in words: its kind, when, and whether it is certain."""
    left_s = (notice.deadline - now).total_seconds() if notice.deadline is not None else None
    when = "" if left_s is None else (f" in {format_duration(left_s)}" if left_s > 0 else " due")
    by = notice.taker or notice.taken_by
    taker = f", by {by}" if by else ""
    return f"{'eviction' if notice.taken_by else notice.kind} notice{when}{taker}" + (
        "" if notice.is_certain else ", it may yet stay"
    )


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


def serves_until(notice: datetime, *, finish_s: float) -> datetime:
    """Return when a replica leaves rotation for the node's end, so that its streams have `finish_s` before the margin."""
    return notice - timedelta(seconds=leaves_before_s(finish_s))


def leaves_before_s(finish_s: float) -> float:
    """Return how long before its node's end a replica leaves rotation."""
    return _NOTICE_MARGIN_S + finish_s


def finish_s(record: Replica, e2e_s_p99: float | None, *, drain_timeout_s: float) -> float:
    """Return how long a replica's streams need to finish, or to be continued elsewhere where its engine can."""
    needed_s = _FINISH_S if e2e_s_p99 is None else e2e_s_p99
    continues = record.capacity is not None and record.capacity.continues_streams
    return min(drain_timeout_s, needed_s, _CONTINUED_S if continues else math.inf)


def scale_down_order(replicas: Iterable[ObservedReplica], *, baseline: int | None = None) -> list[ObservedReplica]:
    """Return replicas in the order they are scaled down.

    What a notice hints at goes first, for it may go anyway; then on-demand replicas beyond `baseline`, which stand in for
    spot; then unready before ready, spot before on-demand, dear before cheap, newest. No baseline: all on demand are of it.
    """
    replicas = sorted(replicas, key=lambda r: (r.record.created_at, r.record.id), reverse=True)
    surplus = {r.record.id for r in on_demand_surplus(replicas, baseline)} if baseline is not None else set()
    return sorted(
        replicas,
        key=lambda r: (
            r.notice is None,
            r.record.id not in surplus,
            r.record.state is ReplicaState.READY,
            r.record.market is not Market.SPOT,
            -r.record.price_usd_per_hour,
        ),
    )


def on_demand_surplus(replicas: Iterable[ObservedReplica], baseline: int) -> list[ObservedReplica]:
    """Return the on-demand replicas beyond the baseline; of it are the ready, then the cheap, then the old.

    One that came from another lane was not bought in place of spot, and is none of them.
    """
    found = [r for r in replicas if r.record.market is Market.ON_DEMAND and r.record.assigned_at is None]
    if len(found) <= max(0, baseline):
        return []
    kept = sorted(
        found,
        key=lambda r: (
            r.record.state is not ReplicaState.READY,
            r.record.price_usd_per_hour,
            r.record.created_at,
            r.record.id,
        ),
    )
    return kept[max(0, baseline) :]
