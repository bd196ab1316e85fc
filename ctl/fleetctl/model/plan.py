"""What planning answers: replicas, launch settings, cost, forecast, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fleetctl.model.catalogue import GpuSpec, Market, ModelCard, Offering, Precision
from fleetctl.model.pinned_image import PinnedImage
from fleetctl.model.serving import PerformanceMode, Speculation
from fleetctl.model.traffic import Dispersion


class Sizing(StrEnum):
    """How replicas are counted."""

    FULL = "full"  # prefill, decode, KV memory, interference, tail
    PREFILL_ONLY = "prefill-only"  # the published rule of thumb; reproduces its tables, and is not enough


class Constraint(StrEnum):
    """What sets the number of replicas of a lane."""

    PREFILL = "prefill"  # TTFT under load
    DECODE = "decode"  # token throughput
    ITL = "itl"  # the batch size at which gaps reach their limit
    KV_MEMORY = "kv-memory"  # resident sequences
    COMPLETION = "completion"  # a batch deadline
    WORKFLOW = "workflow"  # what a workflow of several calls may take
    MINIMUM = "minimum"  # the profile's own lower bound
    UTILISATION = "utilisation"  # prefill-only mode's ceiling


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """Engine-neutral launch settings; each engine adapter spells them in its own flags."""

    model: str  # id or path given to the engine
    served_name: str
    tensor_parallel: int  # inside a machine
    pipeline_parallel: int = 1  # machines that a replica spans: `pipeline_parallel_local` stages on each
    pipeline_parallel_local: int = 1  # stages on one machine
    data_parallel: int = 1  # ranks of one replica: whole copies of the model in one engine, on one machine
    quantization: Precision
    kv_cache: Precision | None  # None: the engine's "auto"
    max_num_seqs: int  # of one rank
    max_model_len: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    prefix_caching: bool = True
    priority_scheduling: bool = False  # requests go by the priority of their tier, not by arrival alone
    tool_call_parser: str = (
        ""  # which notation of tool calls the model writes, by the field's usual name; empty: none is read
    )
    reasoning_parser: str = ""  # the same for what it thinks before it answers
    stream_interval: int = 1  # tokens an event of a stream carries
    performance_mode: PerformanceMode | None = None  # None: as the engine does by itself
    long_prefill_tokens: int | None = None  # of one prompt in a step; None: as many as a step holds
    max_queued_requests: int | None = None  # in the engine's own queue; None: it has no bound, the gateway's has
    expert_parallel: bool = False  # whole experts on each GPU, in place of a slice of every one
    speculation: Speculation | None = None
    shutdown_timeout_s: float = 100.0
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    adapters: dict[str, str] = field(default_factory=dict)  # LoRA adapters: by name, where they lie
    adapter_rank: int = 0  # of the largest that has room; 0: none has
    adapter_slots: int = 0  # of adapters that one batch may use
    image: PinnedImage | None = None  # of its containers; None: whatever their image's name stands for at each start
    machine_image: PinnedImage | None = None  # of its machines; None: as the provider finds it


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetItem:
    """One component's share of the TTFT limit."""

    component: str  # "network in", "queue", "prefill", "running step", "tokenization", "gateway"
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted latency at the peak minute, with the model's own error as an interval (`_low`, `_high`)."""

    ttft_p50_s: float
    ttft_p99_s: float
    ttft_p99_low_s: float
    ttft_p99_high_s: float
    itl_p99_s: float
    itl_p99_low_s: float
    itl_p99_high_s: float
    e2e_p99_s: float
    utilisation: float  # rho at the peak minute
    concurrency: float  # mean running sequences on one replica, all its ranks together
    knee_rps: float  # lane demand at which this many replicas saturate


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaThroughput:
    """What one replica carries with every promise kept, and how that moves with the requests' lengths."""

    rps: float  # of requests as planned; unrounded: neither a ceiling nor a spare replica is in it
    prompt_share: float  # of a request's cost at the knee: what is proportional to its prompt tokens
    output_share: float  # the same for its output tokens; the rest comes with every request


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWorkflow:
    """What a promise of a kind of workflow asks of the calls of a lane, and what keeping it costs."""

    kind: str
    percentile: float  # 0-1, promised of its elapsed time
    limit_s: float
    steps: int
    fan_out: int
    call_percentile: float  # 0-1, that each call keeps its own limit at
    call_limit_s: float  # of a call, submission to last token
    elapsed_s: float  # forecast at the promised percentile, without the client's own time
    replicas_without: (
        int  # that the lane would be planned with, had it no workflows; 0: no number keeps its own promises
    )
    cost_usd_per_hour_without: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBurst:
    """Up to which burst a lane's planned replicas keep the objective: indices of dispersion of its own arrivals, simulated."""

    kept_1s: float  # variance of the counts of a second over their mean
    kept_10s: float | None  # the same of ten seconds; null: too few of them were simulated
    broken_1s: float | None  # the least that was tried and breaks it; null: none does
    broken_10s: float | None
    broken_good_share: float | None  # of its requests then


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProof:
    """What a simulation of the planned fleet came to in one lane; its tail is the lane's forecast."""

    replicas: int  # that were simulated: the lane's, or a part of them with as much of the load
    offered: int  # requests that arrived once the fleet was full
    good_share: float | None  # of them; null: none arrived
    covered: int = 0  # of the good: refusals that the lane's shed allowance covers
    good_share_low: float | None  # the lower end of its interval, the step model's own error included
    dispersion_1s: (
        float | None
    )  # of the lane's arrivals: variance of the counts of a second over their mean; null: too few
    dispersion_10s: float | None  # the same of ten seconds
    burst: LaneBurst | None = None  # which burst breaks it; null: it was not looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCount:
    """So many machines of an offering; of replicas that span several, so many such groups."""

    offering: Offering
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePlan:
    """One lane's answer."""

    lane: str
    engine: str
    rps: float  # this lane's share of the peak
    prompt_tokens_mean: float
    replicas: int
    on_demand: int
    spot: int
    gpu: str
    tensor_parallel: int
    offering: Offering
    spot_offering: Offering | None
    launch: LaunchSettings
    budget: tuple[BudgetItem, ...]
    constraint: Constraint
    forecast: Forecast
    cost_usd_per_hour: float
    cost_usd_per_1m_tokens: float  # prompt + output, at the peak
    reasons: tuple[str, ...] = ()
    gpu_spec: GpuSpec | None = None  # the card of this lane's instances
    output_tokens_mean: float = 0.0  # 0: planned before this was kept
    throughput: ReplicaThroughput | None = None  # None: planned before this was kept
    bound_by: str = (
        ""  # the profile's key that set the count, as lanes.short.slo.ttft.p99; empty: one replica is enough
    )
    workflows: tuple[PlannedWorkflow, ...] = ()  # whose calls are the lane's, a promise each
    model_card: ModelCard | None = None  # None: the plan's
    # How bursty its arrivals are planned to be; None: by a rule that knows no bursts, or by a trace that was not simulated.
    arrivals: Dispersion | None = None
    proof: LaneProof | None = None  # None: the forecast is the closed form's, and nothing was simulated
    # Where its replicas are bought on machines of several types; empty: all are of `offering` and `spot_offering`.
    mix: tuple[MachineCount, ...] = ()

    @property
    def node_count(self) -> int:
        """How many machines one replica spans."""
        return self.launch.pipeline_parallel

    @property
    def stages(self) -> int:
        """How many pipeline stages one replica has, over all its machines."""
        return self.node_count * self.launch.pipeline_parallel_local

    @property
    def ranks(self) -> int:
        """How many copies of the model one replica is, that share its requests."""
        return self.launch.data_parallel

    @property
    def gpus_each_node(self) -> int:
        """How many GPUs of each of its machines one replica takes: the product of its parallel sizes there."""
        return self.tensor_parallel * self.launch.pipeline_parallel_local * self.ranks

    @property
    def gpu_count(self) -> int:
        """How many GPUs one replica takes, over all its machines."""
        return self.gpus_each_node * self.node_count

    @property
    def sequences_max(self) -> int:
        """How many sequences the batches of one replica hold, those of all its ranks."""
        return self.launch.max_num_seqs * self.ranks

    @property
    def replicas_each_machine(self) -> int:
        """How many of its replicas share one machine; 1: each has its own."""
        return self.room_on(self.offering)

    def machines(self, replicas: int) -> int:
        """Return how many machines so many replicas of one market take."""
        return -(-replicas // self.replicas_each_machine) * self.node_count

    def machines_of(self, replicas: int) -> int:
        """Return how many machines so many replicas take, the on-demand ones first."""
        on_demand = min(replicas, self.on_demand)
        return (
            sum(each.machines for each in self.bought(on_demand=on_demand, spot=replicas - on_demand)) * self.node_count
        )

    def bought(self, *, on_demand: int, spot: int) -> tuple[MachineCount, ...]:
        """Return the machines under so many replicas of each market: those of the mix, and beyond it the lane's own type."""
        found = self._filled(self.offering, Market.ON_DEMAND, on_demand)
        found += self._filled(self.spot_offering or self.offering, Market.SPOT, spot)
        return tuple(each for each, _ in found)

    @property
    def replicas_by_offering(self) -> tuple[tuple[Offering, int], ...]:
        """Which offering is planned to carry how many of its replicas."""
        found = self._filled(self.offering, Market.ON_DEMAND, self.on_demand)
        found += self._filled(self.spot_offering or self.offering, Market.SPOT, self.spot)
        return tuple((each.offering, replicas) for each, replicas in found)

    def room_on(self, offering: Offering) -> int:
        """Return how many of its replicas one machine of an offering carries; of those that span several, one a group."""
        return offering.replicas_max(self.gpus_each_node) if self.node_count == 1 else 1

    def _filled(self, own: Offering, market: Market, replicas: int) -> list[tuple[MachineCount, int]]:
        """Return the machines of a market that so many replicas fill, with how many are on them."""
        found: dict[str, tuple[MachineCount, int]] = {}
        planned = [(each.offering, each.machines) for each in self.mix if each.offering.market is market]
        for offering, most in (*planned, (own, replicas)):
            taken = min(most, -(-replicas // self.room_on(offering)))
            carried = min(replicas, taken * self.room_on(offering))
            replicas -= carried
            known, before = found.get(offering.key, (MachineCount(offering=offering, machines=0), 0))
            if taken:
                found[offering.key] = MachineCount(offering=offering, machines=known.machines + taken), before + carried
        return list(found.values())

    @property
    def nodes(self) -> int:
        """How many machines its replicas take."""
        return self.machines_of(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole fleet's answer; a saved plan carries the hash of the profile it answers."""

    fleet: str
    profile_hash: str
    sizing: Sizing
    lanes: tuple[LanePlan, ...]
    cost_usd_per_hour: float
    cost_usd_per_1m_tokens: float
    gpu_spec: GpuSpec | None = None  # the card every lane was planned on, if one
    model_card: ModelCard | None = None  # of the first model
    cautions: tuple[str, ...] = ()
    head_usd_per_hour: float = 0.0  # of the machine that controller and gateway have of their own, in the cost; 0: none
    proof: str = ""  # what was simulated; empty: nothing was
    risks: tuple[str, ...] = ()  # promises that the intervals of forecasts cross, accepted with --accept-risk

    @property
    def nodes(self) -> int:
        """How many machines all lanes take."""
        return sum(lane.nodes for lane in self.lanes)

    def card_of(self, lane: LanePlan) -> ModelCard | None:
        """Return the shape of the model that a lane was planned with. None: it was planned before that was kept."""
        return lane.model_card or self.model_card

    def card_loaded(self, model: str) -> ModelCard | None:
        """Return the shape of what engines load under this id or path. None as for `card_of`."""
        return next((self.card_of(lane) for lane in self.lanes if lane.launch.model == model), self.model_card)

    def lane(self, name: str) -> LanePlan:
        """Return the answer for the lane called `name`. Raises KeyError."""
        for lane in self.lanes:
            if lane.lane == name:
                return lane
        raise KeyError(name)
