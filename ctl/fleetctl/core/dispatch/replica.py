"""A replica as the dispatcher knows it: the table's row, its load, its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.routing.candidate import Candidate
from fleetctl.core.routing.ejection import Ejection
from fleetctl.model.gateway import ReplicaSnapshot

if TYPE_CHECKING:
    from fleetctl.model.gateway import RouteReplica


class DispatchReplica:
    """Lives from the first table that names it until its last request has ended."""

    __slots__ = ("candidate", "ejection", "failures", "requests", "route")

    def __init__(self, route: RouteReplica) -> None:
        self.ejection = Ejection()
        self.requests = 0
        self.failures = 0
        self.candidate = Candidate(
            id=route.id,
            in_rotation=route.in_rotation,
            concurrency_max=route.concurrency_max,
            prefill_tokens_per_s=route.prefill_tokens_per_s,
        )
        self.apply(route)

    def apply(self, route: RouteReplica) -> None:
        """Take over a new row; what is in flight stays."""
        self.route = route
        candidate = self.candidate
        candidate.in_rotation = route.in_rotation
        candidate.concurrency_max = max(1, route.concurrency_max)
        candidate.prefill_tokens_per_s = route.prefill_tokens_per_s
        candidate.continues = route.continues

    def retire(self) -> None:
        """Take no more requests: the table names it no longer."""
        self.candidate.in_rotation = False

    def failed(self, now_s: float) -> None:
        """Count a failure; enough in a row eject it."""
        self.failures += 1
        self.ejection.failed(now_s)
        self.candidate.ejected_until_s = self.ejection.until_s

    def answered(self) -> None:
        """Count an answer: whatever was wrong is over."""
        if self.ejection.failures:
            self.ejection.answered()
            self.candidate.ejected_until_s = 0.0

    def snapshot(self) -> ReplicaSnapshot:
        """Return its figures."""
        return ReplicaSnapshot(
            id=self.route.id,
            in_flight=self.candidate.in_flight,
            failures=self.failures,
            consecutive_failures=self.ejection.failures,
        )
