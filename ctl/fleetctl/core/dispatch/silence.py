"""What it means that a replica says nothing: a prompt takes its time, a stream was preempted, or the engine is hung."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.dispatch.failover import has_other
from fleetctl.core.dispatch.state import RequestEvent, RequestState
from fleetctl.core.liveness import RETIRED_SILENT_S, UNHEALTHY_SILENT_S, stall_limit_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState


def note_heard(active: Iterable[ActiveRequest], replicas: Iterable[DispatchReplica], now_s: float) -> None:
    """Note of every replica when it last said something of any request; forget what its engine said too long ago."""
    for replica in replicas:
        replica.expire_signals(now_s)
        replica.has_whole_requests = False
    for request in active:
        holder = request.replica
        if holder is not None:
            if not request.is_stream:
                holder.has_whole_requests = True
            if request.heard_s > holder.heard_s and request.heard_s > request.dispatched_s:
                holder.heard_s = request.heard_s


def silence(
    request: ActiveRequest, replica: DispatchReplica, routes: RoutingState, now_s: float, *, may_move: bool
) -> RequestEvent | None:
    """Return how a replica fails a request by its silence. None: it may go on waiting.

    One that may not move any more would be ended: it stays until the stall timeout, as its replica may only be slow.
    """
    table = routes.table
    silent_s = now_s - request.heard_s
    if table is None or silent_s <= min(UNHEALTHY_SILENT_S, table.stall_timeout_s):
        return None
    if not may_move and silent_s <= table.stall_timeout_s:
        return None
    is_retired = replica.retired_s is not None and now_s - max(request.heard_s, replica.retired_s) > RETIRED_SILENT_S
    if is_retired or (not replica.route.healthy and silent_s > UNHEALTHY_SILENT_S):
        return RequestEvent.UNHEALTHY
    if not request.is_stream or request.state is RequestState.CONNECTING:
        return None  # A whole answer is silent until it is there.
    if not _is_stalled(request, replica, routes, now_s, table.stall_timeout_s):
        return None
    limit_s = stall_limit_s(request.lane.route.slo, table.stall_timeout_s)
    return RequestEvent.PREEMPTED if _is_preempted(request, replica, now_s, limit_s) else RequestEvent.STALLED


def _is_stalled(
    request: ActiveRequest, replica: DispatchReplica, routes: RoutingState, now_s: float, timeout_s: float
) -> bool:
    """Whether a stream has been silent for too long; where all of its replica has, that one is ejected."""
    silent_s = now_s - request.heard_s
    limit_s = stall_limit_s(request.lane.route.slo, timeout_s)
    if request.awaits_token and _has_spoken(replica, now_s, limit_s):
        return False  # Its prompt waits behind those of others; how long a request may take is bounded elsewhere.
    is_timed_out = silent_s > timeout_s
    if silent_s <= limit_s or not (is_timed_out or has_other(routes, request)):
        return False
    if _is_hung(request, replica, now_s, limit_s):
        replica.eject_at_next_failure()
        return True
    return is_timed_out


def _is_preempted(request: ActiveRequest, replica: DispatchReplica, now_s: float, limit_s: float) -> bool:
    """Whether it is this stream alone that is silent, for want of memory: its replica's KV cache was full meanwhile."""
    return _has_spoken(replica, now_s, limit_s) and replica.kv_record.was_full(since_s=request.heard_s, until_s=now_s)


def _is_hung(request: ActiveRequest, replica: DispatchReplica, now_s: float, limit_s: float) -> bool:
    """Whether a replica says nothing of any request, for longer than its prompts could take it."""
    if request.awaits_token and replica.has_whole_requests:
        return False  # It may wait in the engine's own queue, behind requests that nobody hears of.
    return replica.silent_s(now_s) > limit_s + replica.prefill_allowance_s


def _has_spoken(replica: DispatchReplica, now_s: float, limit_s: float) -> bool:
    """Whether a replica has said something of another request so lately that it works."""
    return replica.heard_s > 0.0 and now_s - replica.heard_s <= limit_s
