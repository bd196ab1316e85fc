"""Reads the gaps of running streams, replica by replica, and moves how many each may decode at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleetctl.core.routing.decode_limit import GAPS_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState

_EVERY_S: Final = 1.0


@dataclass(slots=True)
class _Gaps:
    """What a replica's streams came to since the last look."""

    count: int = 0
    seconds: float = 0.0
    limit_s: float = math.inf  # the strictest of theirs
    over: int = 0  # their own
    allowed_share: float = 1.0  # of gaps that may be, by the strictest


class DecodeWatch:
    """Looks once a second."""

    __slots__ = ("_looked_s", "_routes")

    def __init__(self, routes: RoutingState) -> None:
        self._looked_s = 0.0
        self._routes = routes

    def check(self, active: Iterable[ActiveRequest], now_s: float) -> None:
        """Move the limits of replicas whose streams have a promise to keep, if it is time to look."""
        if now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        found: dict[DispatchReplica, _Gaps] = {}
        for request in active:
            replica = request.replica
            if replica is None or request.awaits_token or not request.is_stream:
                continue
            count, seconds, over = request.stopwatch.take_gaps()
            if request.is_paused or not count:
                continue
            gaps = found.get(replica)
            if gaps is None:
                gaps = found[replica] = _Gaps()
            gaps.count += count
            gaps.seconds += seconds
            gaps.over += over
            accounts = request.lane.accounts
            if accounts.gap_limit_s < gaps.limit_s:  # noqa: PLR1730  # a call, for every stream once a second
                gaps.limit_s = accounts.gap_limit_s
            if accounts.gap_limit_s < math.inf and accounts.limits.jitter_share < gaps.allowed_share:
                gaps.allowed_share = accounts.limits.jitter_share
        for replica, gaps in found.items():
            if gaps.count >= GAPS_MIN and math.isfinite(gaps.limit_s):
                owner = self._routes.lanes.get(replica.route.lane)
                replica.note_gaps(
                    gap_s=gaps.seconds / gaps.count,
                    limit_s=gaps.limit_s,
                    missed_share=gaps.over / gaps.count,
                    allowed_share=gaps.allowed_share,
                    binds_owner=owner is None or owner.accounts.gap_limit_s < math.inf,
                )
