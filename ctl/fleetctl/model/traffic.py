"""How requests arrived, and what became of a part of them: of one tier's, or of one client's."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.model.slo import Quantiles
from fleetctl.model.verdict import PromiseFinding

OTHERS = "(others)"  # the name of the row that sums up the clients too many to be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion:
    """How bursty arrivals are: indices of dispersion, the variance of their counts over the mean; 1 is Poisson."""

    over_1s: float | None  # of counts of a second; null: too few to tell
    over_10s: float | None  # of counts of ten seconds; null: too few to tell, as in a run under 100 s


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalBurst:
    """How bursty a lane's offered requests were, each counted when it was due, beside what its plan stands on."""

    measured: Dispersion
    planned: Dispersion | None  # null: there is no plan, or it does not say
    seconds: int  # of arrivals that were counted
    exceeds_plan: bool  # surely (99 %) burstier than planned, over one second or over ten


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficFigures:
    """Figures of one tier or client. `good` and `offered` are those of core/slo/endings: a refusal is offered, and a miss."""

    name: str  # empty: of the requests that name none; OTHERS: of several clients together
    offered: int = 0
    good: int = 0
    undecided: int = 0  # ended, or were cut, inside every limit and without an answer in full: in no share
    good_share: float | None = None  # good of what was offered and is decided; null where nothing is
    refused: dict[str, int] = field(default_factory=dict)  # by Refusal
    served_tokens: int = 0  # prompts that were computed and what was generated
    token_share: float = 0.0  # of all served tokens
    ttft: Quantiles = field(default_factory=Quantiles)
    promises: tuple[PromiseFinding, ...] = ()  # of a tier with an SLO of its own: the share of good requests, then TTFT

    @property
    def refusals(self) -> int:
        """Return how many were refused."""
        return sum(self.refused.values())
