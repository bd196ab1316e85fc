"""What a simulation answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.model.slo import Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """One lane's figures. `good` and `offered` are those of core/slo/endings: a refusal is offered, and a miss."""

    lane: str
    offered: int
    good: int
    breached: dict[str, int]  # misses by BreachKind
    refused: dict[str, int]  # by Refusal
    endings: dict[str, int]  # by Ending; those turned away with 429 are under `refused` alone
    came_again: int  # arrivals that are a refused client's return
    goodput_rps: float
    prompt_tokens: int
    output_tokens: int
    ttft: Quantiles
    itl: Quantiles
    e2e: Quantiles
    queue_wait: Quantiles
    replicas_mean: float  # from order to end
    ready_mean: float  # in rotation
    wanted_max: int
    reversals: int  # how often the wanted count turned round
    gpu_hours: float
    usd: float
    over_slo_s: float  # buckets whose share of good requests was under the objective
    offered_over_time: tuple[int, ...] = field(default=(), repr=False)  # by bucket of arrival
    good_over_time: tuple[int, ...] = field(default=(), repr=False)
    refused_over_time: tuple[int, ...] = field(default=(), repr=False)

    @property
    def good_share(self) -> float:
        """Return the good among the offered, 0-1; 1 where nothing was offered."""
        return self.good / self.offered if self.offered else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """One run of one policy over one trace."""

    policy: str
    seed: int
    requests: int  # arrivals of the trace
    duration_s: float  # what was simulated
    bucket_s: float
    lanes: tuple[LaneResult, ...]
    decisions: dict[str, int]  # actions by name and reason code
    violations: tuple[str, ...] = ()  # of what must always hold; the first of each kind

    def lane(self, name: str) -> LaneResult:
        """Return a lane's figures. Raises KeyError."""
        for lane in self.lanes:
            if lane.lane == name:
                return lane
        raise KeyError(name)

    @property
    def replicas_mean(self) -> float:
        """Return the mean replicas of all lanes, from order to end."""
        return sum(lane.replicas_mean for lane in self.lanes)

    @property
    def usd(self) -> float:
        """Return what all nodes cost."""
        return sum(lane.usd for lane in self.lanes)

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours of all nodes."""
        return sum(lane.gpu_hours for lane in self.lanes)
