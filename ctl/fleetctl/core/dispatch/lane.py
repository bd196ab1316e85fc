"""A lane as the dispatcher knows it: its rules, its queues, who may serve it, its figures."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

from fleetctl.core.admission.admit import Admission, LaneLoad, admit
from fleetctl.core.admission.drain_rate import AnswerLength, Departures, ServiceTime
from fleetctl.core.admission.ladder import Degradation, ProbeGate, degradation_of
from fleetctl.core.admission.queue import LaneQueue
from fleetctl.core.admission.return_line import ReturnLine
from fleetctl.core.dispatch.demand import PrefillDemand
from fleetctl.core.fairness.former_tiers import FormerTiers
from fleetctl.core.fairness.snapshots import tier_snapshots
from fleetctl.core.routing.borrowed import BorrowedAnswers
from fleetctl.core.routing.budget import BUDGET_SHARE, LINE_S_MAX
from fleetctl.core.routing.usable import serving
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.streams import replica_figures
from fleetctl.core.workflows.order import BoundedOrder, QueuedCall
from fleetctl.model.gateway import LaneSnapshot, RouteLane

if TYPE_CHECKING:
    from fleetctl.core.dispatch.ports import Wakeup
    from fleetctl.core.fairness.lane_tiers import LaneTiers
    from fleetctl.core.fairness.tier import LaneTier
    from fleetctl.core.routing.candidate import Candidate
    from fleetctl.core.workflows.order import CallOrder
    from fleetctl.model.generation import BoundReason

R = TypeVar("R", bound=QueuedCall)

_FREE = LaneLoad(queued=0, queue_max=1, max_wait_s=0.0, has_slot=True, drain_rate_rps=None)
UNLIMITED_TOKENS = 2**62
# Displaced requests are bounded by what was in flight; this is only a ceiling.
_DISPLACED_MAX = 1_000_000


class DispatchLane(Generic[R]):
    """Lives from the first table that names it until nothing of it is left."""

    __slots__ = (
        "accounts",
        "always_takes_slot",
        "answers",
        "arrivals",
        "borrowed",
        "bounded",
        "budget_s",
        "candidates",
        "degradation",
        "demand",
        "departures",
        "displaced",
        "former_tiers",
        "held_by_all",
        "in_flight",
        "late",
        "lenders",
        "line_s_max",
        "places",
        "probe",
        "queue",
        "returns",
        "route",
        "service",
        "spill",
        "tiers",
        "wake_at_s",
        "wakeup",
    )  # fmt: skip

    def __init__(self, route: RouteLane, *, now_s: float) -> None:
        self.accounts = LaneAccounts(route.slo, now_s=now_s)
        self.queue: LaneQueue[R] = LaneQueue(route.queue_max)
        self.displaced: LaneQueue[R] = LaneQueue(_DISPLACED_MAX)
        # Those who cannot be in time any more, in a lane that lets requests wait for longer than it promises.
        self.late: LaneQueue[R] = LaneQueue(route.queue_max)
        self.demand = PrefillDemand()
        self.lenders: tuple[DispatchLane[R], ...] = ()  # whose replicas may take a request of this lane
        self.borrowed: dict[str, BorrowedAnswers] = {}  # by the lane whose replicas gave them
        self.in_flight = self.arrivals = 0  # now; since it began
        self.tiers: LaneTiers | None = None  # None: all requests are alike
        self.former_tiers = FormerTiers()
        self.service = ServiceTime()
        self.answers = AnswerLength(route.output_tokens)
        self.departures = Departures()
        self.bounded: Counter[BoundReason] = Counter()  # answers that a bound of the server's ended, since the start
        self.returns = ReturnLine()
        self.probe = ProbeGate()
        self.candidates: list[Candidate] = []
        self.spill: list[list[Candidate]] = []  # of the spill_to lanes, in order
        self.held_by_all = UNLIMITED_TOKENS  # every replica of its own holds a request of so many tokens
        self.places: int | None = None  # of its queues, those this gateway has; None: all
        self.wakeup: Wakeup | None = None  # due at the next deadline of a queue
        self.wake_at_s = 0.0
        self.apply(route)

    def apply(self, route: RouteLane) -> None:
        """Take over new rules; those who wait keep their deadlines."""
        self.route = route
        self.degradation: Degradation = degradation_of(route)
        # If admission lets the longest prompt take a free slot at once, it need not be asked about any other.
        self.always_takes_slot = (
            admit(_FREE, self.degradation, prompt_tokens=UNLIMITED_TOKENS, is_probe=False) is Admission.DISPATCH
        )
        self.accounts.hold_to(route.slo)
        self.allot(self.places)
        limits = self.accounts.limits
        # From arrival to the first token, as far as it may be planned; infinite where none is promised.
        self.budget_s = BUDGET_SHARE * limits.ttft_s if limits.ttft_s is not None else math.inf
        # The longest line of prompts that one of this lane may join.
        self.line_s_max = LINE_S_MAX if math.isinf(self.budget_s) else math.inf

    def allot(self, places: int | None) -> None:
        """Let so many wait here at most, or None: as many as its rules say."""
        self.places, most = places, self.route.queue_max
        self.queue.size_max = self.late.size_max = most if places is None else min(most, places)

    def order_by(self, order: CallOrder | None) -> None:
        """Let those who join from now on leave in this order; those who wait keep their places. None: as they came."""
        bounded = BoundedOrder(order, max_wait_s=self.route.max_wait_s) if order is not None else None
        self.queue.order = self.late.order = bounded

    @property
    def waits_late(self) -> bool:
        """Whether a request that cannot be in time may wait all the same: the lane's longest wait says so."""
        return self.route.max_wait_s > self.budget_s

    def may_borrow_of(self, other: DispatchLane[R]) -> bool:
        """Whether another lane's replicas may take a request of this one, now and then."""
        own, its = self.route, other.route
        return other is not self and its.lends and (its.engine, its.model) == (own.engine, own.model)

    def note_borrowed(self, owner: str, now_s: float, *, sent_s: float, missed: bool) -> None:
        """Learn from an answer that another lane's replica gave to a request of this one."""
        self.borrowed.setdefault(owner, BorrowedAnswers()).note(now_s, sent_s=sent_s, missed=missed)

    def is_kept(self, candidate: Candidate, count: int) -> bool:
        """Whether a replica is among the first so many of its own that take requests."""
        for own in self.candidates:
            if count <= 0:
                return False
            if own.in_rotation and not own.ejected_until_s:
                count -= 1
                if own is candidate:
                    return True
        return False

    @property
    def is_idle(self) -> bool:
        """Whether it carries and keeps no request."""
        return not self.in_flight and not self.has_queued

    @property
    def has_queued(self) -> bool:
        """Whether anybody waits."""
        return bool(self.queue.size or self.late.size or self.displaced.size)

    @property
    def may_spill(self) -> bool:
        """Whether its requests may go to the replicas of the spill_to lanes: by its step, or for want of any other."""
        return bool(self.spill) and (
            self.degradation.spills or self.route.lacks_replicas or not any(c.in_rotation for c in self.candidates)
        )

    @property
    def has_replica(self) -> bool:
        """Whether anybody in rotation answers, spill lanes included: full is overload, none to be used is broken."""
        lent = (lender.candidates for lender in self.lenders)
        return any(serving(pool) for pool in (self.candidates, *self.spill, *lent))

    @property
    def holds_from_zero(self) -> bool:
        """Whether requests wait for its first replica: it is scaled to zero, or has not started yet."""
        from_zero_s = self.route.max_wait_from_zero_s
        if from_zero_s is None or from_zero_s <= self.route.max_wait_s:
            return False
        return not any(c.in_rotation for c in self.candidates)

    @property
    def max_wait_s(self) -> float:
        """How long a request that arrives now may wait."""
        from_zero_s = self.route.max_wait_from_zero_s
        return from_zero_s if from_zero_s is not None and self.holds_from_zero else self.route.max_wait_s

    def load(self, *, has_slot: bool, late_s: float | None = None) -> LaneLoad:
        """Return what admission decides on; `late_s` is what one that cannot be in time would wait for its turn."""
        return LaneLoad(
            late_s=late_s,
            waits_late=self.waits_late,
            queued_late=len(self.late),
            queued=len(self.late if self.holds_from_zero and not has_slot else self.queue),
            queue_max=self.queue.size_max,
            max_wait_s=self.max_wait_s,
            has_slot=has_slot,
            drain_rate_rps=self.service.drain_rate_rps(self.in_flight),
        )

    def arrived(self, client: int, now_s: float, *, is_again: bool = False) -> None:
        """Count a request that arrives; `is_again`: its client says that it has sent it before."""
        self.arrivals += 1
        self.accounts.offered(now_s, is_again=is_again)
        self.returns.arrived(client)

    def return_s(self, client: int, now_s: float, tier: LaneTier | None = None) -> float:
        """Return when a refused client should come back: not before there is a replica, where one is on its way."""
        coming_s = self.route.replacement_s
        # How many are held says little where it is the prompts that are bounded, and what left says little after a lull.
        prompts_rps = self._prompts_rps()
        held_rps = self.service.drain_rate_rps(self.in_flight) or prompts_rps
        rate_rps = max(min(held_rps, prompts_rps) if prompts_rps else held_rps, self.departures.rate_rps(now_s))
        returns, queued = self.returns, len(self.queue)
        if tier is not None and self.tiers is not None:  # each tier's line moves as fast as the tier is served
            returns, queued = tier.returns, tier.waiting
            rate_rps *= self.tiers.rate_share(tier, rate_rps, now_s)
        return returns.place_s(
            client,
            now_s,
            queued=queued,
            max_wait_s=self.route.max_wait_s,
            rate_rps=rate_rps,
            not_before_s=0.0 if coming_s is None or self.has_replica else coming_s,
        )

    def _prompts_rps(self) -> float:
        """Return how many mean prompts of its own its replicas read a second; 0: it has none, or none has come."""
        tokens = self.demand.mean_tokens
        return sum(1.0 / c.line.own_s(tokens) for c in serving(self.candidates)) if tokens else 0.0

    def next_deadline_s(self) -> float | None:
        """Return when the first of those who wait has waited long enough. None: nobody waits."""
        queues = (self.displaced, self.queue, self.late)
        return min((at_s for queue in queues if (at_s := queue.next_deadline_s()) is not None), default=None)

    def snapshot(self, now_s: float) -> LaneSnapshot:
        """Return its figures."""
        return LaneSnapshot(
            name=self.route.name,
            in_flight=self.in_flight,
            queued=len(self.queue) + len(self.late) + len(self.displaced),
            oldest_wait_s=max(q.oldest_wait_s(now_s) for q in (self.queue, self.late, self.displaced)),
            windows=self.accounts.snapshot(now_s),
            ejected=sum([c.in_rotation and c.ejected_until_s > 0.0 for c in self.candidates]),
            serves=bool(serving(self.candidates)) or (self.may_spill and self.has_replica),
            totals=self.accounts.totals(), tokens=self.accounts.token_totals(), arrivals=self.accounts.arrivals.burst(now_s),
            replica_streams=replica_figures(self.accounts.streams, now_s), tiers=tier_snapshots(self.tiers, self.former_tiers, now_s),
        )  # fmt: skip
