"""A replica as the dispatcher knows it: the table's row, its load, its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.routing.candidate import Candidate, EngineLoad
from fleetctl.core.routing.ejection import Ejection
from fleetctl.model.gateway import ReplicaSnapshot

if TYPE_CHECKING:
    from fleetctl.model.gateway import ReplicaSignals, RouteReplica

# Three of the controller's scrapes, which come every 5 s (controller/probes).
SIGNAL_AGE_S_MAX = 15.0


class DispatchReplica:
    """Lives from the first table that names it until its last request has ended."""

    __slots__ = ("candidate", "ejection", "failures", "requests", "route", "signals_until_s")

    def __init__(self, route: RouteReplica) -> None:
        self.ejection = Ejection()
        self.requests = 0
        self.signals_until_s = 0.0
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
        candidate.node_ready = route.node_ready
        candidate.max_model_len = route.max_model_len

    def take_signals(self, signals: ReplicaSignals, now_s: float) -> None:
        """Let routing see what the engine said of itself, until it is too old. What cannot be true is not shown."""
        is_sound = signals.running >= 0 and signals.waiting >= 0 and 0.0 <= signals.kv_usage <= 1.0  # NaN fails this
        self.signals_until_s = now_s + SIGNAL_AGE_S_MAX - max(0.0, signals.age_s)
        self.candidate.engine = (
            EngineLoad(running=signals.running, waiting=signals.waiting, kv_usage=signals.kv_usage)
            if is_sound and now_s < self.signals_until_s
            else None
        )

    def expire_signals(self, now_s: float) -> None:
        """Forget figures that are too old to be decided on."""
        if self.candidate.engine is not None and now_s >= self.signals_until_s:
            self.candidate.engine = None

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
