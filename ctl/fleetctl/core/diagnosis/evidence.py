"""What a diagnosis stands on: a lane's status, its last requests, its replicas and what was decided about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from fleetctl.core.slo.tier_promises import TierPromise, tier_promise
from fleetctl.model.desired import Desired
from fleetctl.model.gateway import LaneWindow
from fleetctl.model.journal import JournalEntry
from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import LaneSpec
from fleetctl.model.request_trace import RequestTrace, RunningAnswer
from fleetctl.model.slo import UNEVEN, BreachKind, covered_refusals
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.reason import ReasonCode

# What happened longer ago explains nothing that is wrong now.
REQUESTS_S = 120.0
EVENTS_S = 300.0
# The shortest window in which so many requests were judged says how it is now.
_WINDOWS_S = (60.0, 300.0)
_JUDGED_MIN = 20
MISSED_REQUESTS_MIN = 3  # one or two late requests are no trouble of a lane's
NOT_SERVED = frozenset(("ttft", "refused", "timeout", "incomplete", "error"))


# With a dictionary: what is computed once is kept there.
@dataclass(frozen=True, kw_only=True)
class FleetEvidence:
    """Everything that was looked at."""

    desired: Desired
    status: FleetStatus
    requests: tuple[RequestTrace, ...] = ()  # as the gateway remembers them
    running: tuple[RunningAnswer, ...] = ()  # the longest answers under way
    journal: tuple[JournalEntry, ...] = ()

    @property
    def now(self) -> datetime:
        """Return when the status was made."""
        return self.status.at

    @cached_property
    def recent(self) -> tuple[RequestTrace, ...]:
        """Return the requests that were accepted lately."""
        since = self.now - timedelta(seconds=REQUESTS_S)
        return tuple(trace for trace in self.requests if trace.at >= since)

    @cached_property
    def events(self) -> tuple[JournalEntry, ...]:
        """Return what happened lately."""
        since = self.now - timedelta(seconds=EVENTS_S)
        return tuple(entry for entry in self.journal if entry.at >= since)

    def lane(self, status: LaneStatus) -> LaneEvidence:
        """Return one lane's part."""
        return LaneEvidence(
            fleet=self,
            status=status,
            spec=self.desired.profile.lane(status.name),
            plan=self.desired.plan.lane(status.name),
            replicas=tuple(r for r in self.status.replicas if r.record.lane == status.name and r.record.state.is_live),
            requests=tuple(trace for trace in self.recent if trace.lane == status.name),
        )


@dataclass(frozen=True, kw_only=True)
class LaneEvidence:
    """One lane's part of it."""

    fleet: FleetEvidence
    status: LaneStatus
    spec: LaneSpec
    plan: LanePlan
    replicas: tuple[ReplicaStatus, ...] = ()
    requests: tuple[RequestTrace, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """The lane's."""
        return self.spec.name

    @cached_property
    def window(self) -> LaneWindow:
        """Return its figures over the shortest window with requests enough."""
        traffic = self.status.traffic
        found = [traffic.window(seconds) for seconds in _WINDOWS_S] if traffic is not None else []
        enough = [window for window in found if window.judged >= _JUDGED_MIN]
        return enough[0] if enough else found[-1] if found else LaneWindow(seconds=_WINDOWS_S[-1])

    @cached_property
    def missed(self) -> tuple[RequestTrace, ...]:
        """Return its last requests that missed their SLO."""
        return tuple(trace for trace in self.requests if self.is_missed(trace))

    def is_missed(self, trace: RequestTrace) -> bool:
        """Whether a request missed its SLO."""
        return trace.verdict in NOT_SERVED or trace.verdict in UNEVEN

    @cached_property
    def late(self) -> tuple[RequestTrace, ...]:
        """Return those of them whose first token came too late, or never."""
        return tuple(trace for trace in self.missed if trace.verdict in ("ttft", "timeout"))

    @property
    def is_in_trouble(self) -> bool:
        """Whether more requests miss than the objective lets."""
        window = self.window
        allowed = 1.0 - self.fleet.desired.profile.objective.fraction
        if window.missed >= MISSED_REQUESTS_MIN and window.missed > allowed * window.judged:
            return True
        finished = [trace for trace in self.requests if trace.verdict not in ("cancelled", "rejected")]
        refused = sum(trace.verdict == BreachKind.REFUSED for trace in self.missed)
        missed = len(self.missed) - covered_refusals(refused, allowance=self.spec.slo.shed * len(finished))
        return missed >= MISSED_REQUESTS_MIN and missed > allowed * len(finished)

    def share(self, explained: Iterable[RequestTrace]) -> float:
        """Return which share of its misses these are."""
        return sum(1 for _ in explained) / max(1, len(self.missed))

    def tier_promise(self, missed: Iterable[RequestTrace]) -> TierPromise | None:
        """Return the promise of a tier's own that most of these requests missed. None: the lane's, or several."""
        misses = [(trace.tier, trace.verdict) for trace in missed]
        return tier_promise(misses, self.spec.slo, self.fleet.desired.profile.tiers)

    def events(self, *codes: ReasonCode) -> tuple[JournalEntry, ...]:
        """Return what happened lately to it or to its replicas, of these kinds."""
        known = {r.record.id for r in self.fleet.status.replicas if r.record.lane == self.name}
        # Of those that are gone only their last requests tell whose they were.
        served = {attempt.replica for trace in self.requests for attempt in trace.attempts}
        others = {r.record.id for r in self.fleet.status.replicas if r.record.lane != self.name}
        names = known | (served - others) | {self.name}
        return tuple(entry for entry in self.fleet.events if entry.code in codes and entry.subject.name in names)

    def reasons(self, *codes: ReasonCode) -> tuple[str, ...]:
        """Return what its last decision gave as reasons, of these kinds."""
        return tuple(reason.message for reason in self.status.reasons if reason.code in codes)


def lacked_memory(trace: RequestTrace) -> bool:
    """Whether a full KV cache is all that replicas failed a request for (`RequestEvent.PREEMPTED`)."""
    return {attempt.failure for attempt in trace.attempts if attempt.failure} == {"preempted"}
