"""What a simulation answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.load.calls import PlayedWorkflows
from fleetctl.model.slo import Quantiles
from fleetctl.model.traffic import ArrivalBurst, TrafficFigures
from fleetctl.model.verdict import SloVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """One lane's figures. `good` and `offered` are those of core/slo/endings: a refusal is offered, and a miss."""

    lane: str
    offered: int  # every arrival that the lane took
    good: int
    unfinished: int  # waited or ran when the simulation ended: missed if a limit had passed, else undecided
    undecided: int  # of these: neither good nor missed
    good_share: float | None  # good of what was offered and is decided; null where nothing is
    breached: dict[str, int]  # misses by BreachKind
    refused: dict[str, int]  # by Refusal
    endings: dict[str, int]  # by Ending; those turned away with 429 are under `refused` alone
    came_again: int  # arrivals that are a refused client's return
    arrivals: ArrivalBurst  # of all others, beside what the lane is planned for
    goodput_rps: float
    prompt_tokens: int
    output_tokens: int
    ttft: Quantiles
    itl: Quantiles
    tpot: Quantiles  # the mean gap of each whole streamed answer
    e2e: Quantiles
    queue_wait: Quantiles
    replicas_mean: float  # from order to end
    ready_mean: float  # in rotation
    wanted_max: int
    reversals: int  # how often the wanted count turned round
    gpu_hours: float
    cost_usd: float
    over_slo_s: float  # buckets whose share of good requests was under the objective
    verdict: SloVerdict = field(
        default_factory=SloVerdict
    )  # the judge's, as of a finished `load`; what was counted decides
    offered_over_time: tuple[int, ...] = field(default=(), repr=False)  # by bucket of arrival
    good_over_time: tuple[int, ...] = field(default=(), repr=False)  # the same
    refused_over_time: tuple[int, ...] = field(default=(), repr=False)  # the same
    ready_over_time: tuple[float, ...] = field(default=(), repr=False)  # replicas in rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFallback:
    """How often a model stood in for another one, whose lane had no replica or refused the request for load."""

    model: str
    served_by: str
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """One run of one policy over one trace."""

    policy: str
    seed: int
    requests: int  # arrivals of the trace
    duration_s: float  # of arrivals; replicas and cost are counted for as long
    bucket_s: float  # of the figures over time
    replicas_mean: float  # of all lanes, from order to end
    gpu_hours: float
    cost_usd: float
    lanes: tuple[LaneResult, ...]
    unrouted: dict[str, int]  # arrivals that no lane took, answered with an error, by Refusal; in no lane's figures
    decisions: dict[str, int]  # actions by name and reason code
    violations: tuple[str, ...] = ()  # of what must always hold; the first of each kind
    tiers: tuple[TrafficFigures, ...] = ()  # of all lanes, in the profile's order; none where no request had one
    clients: tuple[TrafficFigures, ...] = ()  # those that offered the most, then the rest together; the same
    workflows: tuple[PlayedWorkflows, ...] = ()  # by kind, where the trace has any
    fallbacks: tuple[ModelFallback, ...] = ()  # none: no model stood in for another

    def lane(self, name: str) -> LaneResult:
        """Return a lane's figures. Raises KeyError."""
        for lane in self.lanes:
            if lane.lane == name:
                return lane
        raise KeyError(name)
