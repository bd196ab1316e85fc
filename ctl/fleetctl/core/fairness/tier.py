"""A tier in a lane: what it had lately, what it has now, and what it is due."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from fleetctl.core.admission.drain_rate import AnswerLength, ServiceTime
from fleetctl.core.admission.return_line import ReturnLine
from fleetctl.core.fairness.clients import ClientShares
from fleetctl.core.fairness.decayed import DecayedSum
from fleetctl.core.fairness.figures import TierAccounts
from fleetctl.core.fairness.retries import RefusedRequests
from fleetctl.core.routing.budget import BUDGET_SHARE
from fleetctl.core.slo.breach import Limits
from fleetctl.model.tiers import own_metrics, slo_of

if TYPE_CHECKING:
    from fleetctl.core.admission.ladder import Degradation
    from fleetctl.core.routing.prefill_line import PrefillLine
    from fleetctl.model.slo import LaneSlo
    from fleetctl.model.tiers import RouteTier

# Shares are counted over about this time: long enough for some dozen requests, short enough that nobody waits for its turn.
MEMORY_S: Final = 10.0
# Of a tier's prompts: how much longer than the mean its long ones are, where a margin asks for all of it. Lengths vary by
# half of their mean, and one prompt in two hundred is 2.6 deviations longer.
_LONG: Final = 2.6 * 0.55


class TierStanding(msgspec.Struct, frozen=True, gc=False):
    """How a tier stood in its lane when one of its requests was refused; shares of the lane's tokens lately, 0-1."""

    had: float
    due: float
    floor: float
    client_share: float  # of the tier's tokens, of the request's client
    waiting_first: str  # the highest tier of which requests waited, or that was kept room for; "": none


class LaneTier:
    """Mutable: the dispatcher notes in it what becomes of each of its requests."""

    __slots__ = (
        "accounts",
        "arrivals",
        "arrived_s",
        "budget_s",
        "clients",
        "degradation",
        "header",
        "in_flight",
        "limits",
        "own_metrics",
        "promised",
        "prompts",
        "rank",
        "refused",
        "returns",
        "served",
        "service",
        "share",
        "spec",
        "stepped",
        "taken",
        "tokens",
        "unshed",
        "waiting",
        "work",
    )

    def __init__(self, spec: RouteTier, slo: LaneSlo, degradation: Degradation, *, rank: int, now_s: float) -> None:
        self.spec = spec
        self.rank = rank  # 0: the highest
        self.share = 1.0  # of the lane's tokens that is its due
        self.served = DecayedSum(MEMORY_S)  # tokens, of prompts and of answers
        self.arrivals = DecayedSum(MEMORY_S)
        self.taken = DecayedSum(MEMORY_S)  # the same, of those that were let in
        self.work = DecayedSum(MEMORY_S)  # seconds of a replica, over the prompts of its arrivals
        self.service = ServiceTime()
        self.tokens = AnswerLength(0.0)  # of whole requests: prompts and answers
        self.prompts = AnswerLength(0.0)  # what engines compute of them
        self.arrived_s = -math.inf  # its last request
        self.clients = ClientShares()
        self.returns = ReturnLine()
        self.refused = RefusedRequests()  # lately, where it has a retry budget
        self.in_flight = 0
        self.waiting = 0
        self.accounts = TierAccounts(now_s)
        self.hold_to(spec, slo, degradation, degradation)

    def hold_to(self, spec: RouteTier, slo: LaneSlo, stepped: Degradation, unshed: Degradation) -> None:
        """Take over new rules: what the lane's step does to it, and, `unshed`, what while it has less than its floor."""
        self.spec = spec
        self.header = spec.name.encode()  # as answers name it
        promised = slo_of(slo, spec)
        self.promised, self.own_metrics = promised, own_metrics(slo, spec)
        self.limits = Limits.of(promised) if promised is not slo else None  # None: the lane's
        ttft_s = Limits.of(promised).ttft_s
        self.budget_s = BUDGET_SHARE * ttft_s if ttft_s is not None else math.inf
        self.stepped, self.unshed = stepped, unshed
        self.degradation = stepped  # as of its last request

    @property
    def tokens_per_slot_s(self) -> float:
        """Return how many tokens it is served a second of a slot; 0: not known yet."""
        return self.tokens.mean_tokens / self.service.mean_s if self.service.mean_s else 0.0

    def slots_wanted(self, now_s: float) -> float:
        """Return how many slots its arrivals would hold on average, as long as its answers take (Little's law)."""
        return self.arrivals.rate(now_s) * self.service.mean_s if self.service.mean_s else float(self.in_flight)

    def slack_s(self, line: PrefillLine, margin: float) -> float:
        """Return how long a prompt of its own may wait at an engine and have its first token in time; 0: not at all.

        `margin`: how far from the mean to the longest that prompt is, 0-1.
        """
        long_tokens = self.prompts.mean_tokens * (1.0 + margin * _LONG)
        return max(0.0, self.budget_s - line.own_s(long_tokens))
