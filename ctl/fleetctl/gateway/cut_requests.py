"""How many requests each replica broke off, and how many of these were lost: counted when they are over, wherever they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.dispatch.failure import CONSEQUENCES
from fleetctl.core.slo.endings import Ending
from fleetctl.model.gateway import ReplicaCuts

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest

# Replica ids are never used again, and only those that broke something off are here: the oldest are forgotten.
_REPLICAS_MAX = 512
# Answered in full, or ended by its client: that it was cut has cost it time at the most.
_NOT_LOST = (Ending.COMPLETE, Ending.CANCELLED, Ending.REJECTED)


class CutRequests:
    """Counts by replica id since the gateway's start."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def note(self, request: ActiveRequest) -> None:
        """Count a request that is over for each replica from which nothing came any more: of those, see `failure`."""
        cut, attempt = set(), request.attempt
        while attempt is not None:
            if attempt.failure is not None and CONSEQUENCES[attempt.failure].may_be_death:
                cut.add(attempt.replica_id)
            attempt = attempt.before
        is_lost = request.stopwatch.ending not in _NOT_LOST
        for replica_id in sorted(cut):
            count, lost = self._counts.pop(replica_id, (0, 0))
            self._counts[replica_id] = count + 1, lost + is_lost
        while len(self._counts) > _REPLICAS_MAX:
            del self._counts[next(iter(self._counts))]

    def counts(self) -> tuple[ReplicaCuts, ...]:
        """Return them, those that broke something off last at the end."""
        return tuple(ReplicaCuts(id=name, cut=cut, lost=lost) for name, (cut, lost) in self._counts.items())
