"""A profile, parsed: what one YAML file says, with every default filled in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fleetctl.model.catalogue import Precision
from fleetctl.model.eviction import EvictionRules
from fleetctl.model.generation import GenerationSpec
from fleetctl.model.host_choice import HostChoice
from fleetctl.model.provider_setting import ProviderChoice, SettingValue
from fleetctl.model.serving import PerformanceMode, Speculation
from fleetctl.model.slo import LaneSlo
from fleetctl.model.tiers import TierSpec
from fleetctl.model.tls import TlsSpec, base_url
from fleetctl.model.workflows import WorkflowsSpec


class Mode(StrEnum):
    """Whether the controller acts or only says what it would do."""

    ACTIVE = "active"
    SHADOW = "shadow"


class SpotPolicy(StrEnum):
    """Which share of a lane may sit on spot capacity."""

    NONE = "none"
    BURST = "burst"  # what exceeds the on-demand baseline
    ALL = "all"


class OnDemandPolicy(StrEnum):
    """What on-demand nodes carry in lanes that may burst to spot; whatever is more sits on spot."""

    MINIMUM = "minimum"  # the lane's replicas.min
    BASELINE = "baseline"  # the average load
    PEAK = "peak"  # all that the plan needs: spot is for what scaling adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A positive, long-tailed quantity by two percentiles; read as lognormal through both."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which weights, in which precision. `path` is a local directory, a GGUF file or a place in S3; else the hub id is used."""

    id: str
    quantization: Precision = Precision.BF16
    kv_cache: Precision | None = None  # None: as the engine's "auto", the model's own precision
    served_name: str = ""  # what clients put in "model"; empty: the id
    path: str = ""
    aliases: tuple[str, ...] = ()  # further names that clients may use
    adapters: dict[str, str] = field(default_factory=dict)  # LoRA adapters: by the name clients use, where they lie
    fallback: str = ""  # the model that serves its requests where its own lanes cannot; empty: none does
    share: float = 1.0  # of the workload's requests

    @property
    def name(self) -> str:
        """Return the name clients use, and lanes."""
        return self.served_name or self.id

    @property
    def root(self) -> str:
        """Return the hub id, as /v1/models calls it."""
        return self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSpec:
    """A lane's own copy of the fleet's model, for an engine that reads another format."""

    path: str
    quantization: Precision | None = None  # None: the model's


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """The demand to plan for, over all lanes, at the peak minute."""

    peak_rps: float
    prompt_tokens: Distribution
    output_tokens: Distribution
    prefix_hit: float = 0.0  # fraction of prompt tokens found in the prefix cache
    burst_cv: float | None = None  # coefficient of variation of inter-arrival times; 1 is Poisson; None: not known
    dispersion_1s: float | None = None  # variance of the arrivals of a second over their mean; 1 is Poisson
    dispersion_10s: float | None = None  # the same of ten seconds
    batch_share: float = 0.0  # fraction of requests that carry the batch hint
    stream_share: float = 1.0  # fraction of the others that stream; hinted ones do not
    trace: str = ""  # a CSV(.gz) or JSON lines of arrival_s,prompt_tokens,output_tokens, or a public trace as it is published; replaces the distributions


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMatch:
    """Which requests a lane takes when no header names it. None means "any"."""

    uncached_prompt_tokens_min: int | None = None  # inclusive
    uncached_prompt_tokens_max: int | None = None  # exclusive
    stream: bool | None = None
    batch: bool = False  # takes requests that carry the batch hint


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """Hard limits on a lane's replicas; the plan and the controller stay inside."""

    min: int = 1
    max: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOverrides:
    """Launch settings the user pins; None means computed by the plan. `extra_args` go to the engine as they are."""

    tensor_parallel: int | None = None  # GPUs of one machine
    pipeline_parallel: int | None = None  # machines a replica spans, a pipeline stage each
    pipeline_parallel_local: int | None = None  # stages on one machine
    data_parallel: int | None = None  # ranks of one replica
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    prefix_caching: bool | None = None
    tool_call_parser: str | None = None  # "none": none
    reasoning_parser: str | None = None
    stream_interval: int | None = None
    performance_mode: PerformanceMode | None = None
    long_prefill_tokens: int | None = None
    max_queued_requests: int | None = None
    expert_parallel: bool | None = None
    speculation: Speculation | None = None
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    hub_cache: str = ""  # the directory weights from the hub are kept in; empty: the engine's own
    image: str = ""  # in rendered files; empty: the engine's publisher's
    # In rendered files, each `SOURCE:TARGET:ro` or `:rw`; a source is a path or a volume's name.
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSpec:
    """How emulated engines look and behave; ignored by real ones."""

    flavour: str = "vllm"  # the engine they play, by its name
    seed: int = 0
    startup_s: float = 2.0  # process start -> healthy, standing for weight loading
    speed: float = 1.0  # 2.0: every engine step takes half its modelled time
    version: str = ""  # that they say they are; empty: the one that is asked for, else the newest known of that engine


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalesceSpec:
    """In which chunks a lane's streams leave for their clients."""

    tokens: int  # of a chunk
    within_s: float  # so long a chunk waits for them; after a burst chunks leave so far apart


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRules:
    """The part of a lane that the gateway keeps to; a key added here is in every routing table."""

    name: str
    match: LaneMatch
    slo: LaneSlo
    max_wait_s: float  # in the gateway's queue; longer, or predicted longer, is refused with 429
    # While it has no replica and has lost none: scaled to zero, or not started. None: as long as one takes; in a table: as ever.
    max_wait_from_zero_s: float | None = None
    queue_max: int = 256  # requests
    interruptible: bool = False  # batch: may be paused under pressure and sits on spot first
    spill_to: tuple[str, ...] = ()  # lanes whose idle replicas may serve this one, in order
    # Lanes of the same engine may use its replicas, request by request, while its own promise is kept.
    lends: bool = True
    generation: GenerationSpec = field(default_factory=GenerationSpec)  # the bounds of its answers
    coalesce: CoalesceSpec | None = None  # None: what comes from an engine leaves as it comes
    tier: str = ""  # of requests whose key has none; "": the lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec(LaneRules):
    """One lane: its rules at the gateway, and what it runs on."""

    replicas: ReplicaBounds = field(default_factory=ReplicaBounds)
    spot: SpotPolicy = SpotPolicy.BURST
    engine: str  # by the name it is installed under
    engine_version: str = ""  # that its replicas must say they are; empty: any
    engine_executable: str = ""  # the program to start in place of the engine's own; a path is absolute
    emulator: EmulatorSpec = field(default_factory=EmulatorSpec)
    launch: LaunchOverrides = field(default_factory=LaunchOverrides)
    model: str = ""  # by its name; empty: the fleet's only one, or its first
    weights: WeightsSpec | None = None  # None: the model's
    ttft_budget: dict[str, float] = field(default_factory=dict)  # s by name; what is before the gateway is off `slo`

    def own_model(self, model: ModelSpec) -> ModelSpec:
        """Return its model as this lane loads it."""
        if self.weights is None:
            return model
        return replace(model, path=self.weights.path, quantization=self.weights.quantization or model.quantization)

    def serves_as(self, other: LaneSpec) -> bool:
        """Whether its replicas are from outside what another lane's are: the same engine, with the same model."""
        return (self.engine, self.emulator.flavour, self.model) == (other.engine, other.emulator.flavour, other.model)

    @property
    def max_model_len(self) -> int:
        """The prompt and output tokens of one request, where the profile pins them; 0: as planned."""
        return self.launch.max_model_len or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySpec:
    """What may be bought."""

    on_demand: OnDemandPolicy = OnDemandPolicy.BASELINE  # in lanes with spot: burst
    gpus: tuple[str, ...] = ()  # allowed GPU names; empty: any the provider offers
    region: str = ""
    zones: tuple[str, ...] = ()
    max_cost_usd_per_hour: float | None = None
    max_nodes: int = 16
    calibration: str = ""  # by whose figures its GPU is planned; empty: gpus.yaml's
    gpu_usd_per_hour: float | None = None  # of one GPU, where the provider prices its offerings at nothing
    limits: dict[str, int] = field(default_factory=dict)  # most machines of an instance type, by its name


class ContextCap(StrEnum):
    """What becomes of a prompt over the context cap."""

    REFUSE = "refuse"
    TRIM = "trim"  # the oldest turns of a chat go; what cannot be trimmed is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderSpec:
    """What the degradation ladder's steps cut to."""

    cap_context: ContextCap = ContextCap.REFUSE
    context_tokens: int | None = None  # of a prompt; None: twice the lane's planned mean
    answer_tokens_min: int = 128  # no answer is cut below this, however short the expected ones are


class OnFailure(StrEnum):
    """What follows where a rollout fails."""

    ROLLBACK = "rollback"  # the revision before takes its place
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaShare:
    """So many of a lane's replicas, or a share of them rounded up."""

    count: int = 0
    share: float = 0.0

    def of(self, replicas: int) -> int:
        """Return how many that is."""
        return math.ceil(self.share * replicas - 1e-9) if self.share else self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """How a changed profile reaches running replicas."""

    canary: ReplicaShare = field(default_factory=lambda: ReplicaShare(share=0.1))
    bake_s: float = 60.0  # canaries serve for so long before the rest follows; five times that while undecided
    max_surge: ReplicaShare = field(default_factory=lambda: ReplicaShare(count=1))  # beyond what a lane wants
    max_unavailable: ReplicaShare = field(default_factory=ReplicaShare)  # of what a lane wants
    on_failure: OnFailure = OnFailure.ROLLBACK
    timeout_s: float = 1200.0  # without any progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSpec:
    """How the controller acts. Every duration is clock time."""

    mode: Mode = Mode.ACTIVE
    policy: str = "built-in"  # by the name it is installed under
    shadow_policy: str = ""  # decides beside it, and never acts; empty: none does
    tick_s: float = 1.0
    scale_up_after_s: float = 10.0
    scale_down_after_s: float = 120.0  # or a replica's start, or three requests; longer for bursty arrivals
    drain_timeout_s: float = 100.0  # a notice is 120 s, best effort: be done by +100
    start_timeout_s: float = 600.0  # create -> ready; longer is a failed start
    pause_batch_above: float = 0.8  # pressure in [0, 1]
    resume_batch_below: float = 0.5
    breaker_after_s: float = 30.0  # P99 over 2x its SLO for this long: refuse all new
    ladder: LadderSpec = field(default_factory=LadderSpec)
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    evictions: EvictionRules = field(default_factory=EvictionRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRules:
    """How the gateway chooses among the replicas that may take a request; the names are core/routing/registry's."""

    scorers: dict[str, float] = field(
        default_factory=lambda: {"least-predicted-ttft": 3.0, "prefix-affinity": 1.0}
    )  # -> weight in the sum; the time to the first token is what the lanes promise
    filters: tuple[str, ...] = ()  # in this order; one that would leave nobody is ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules:
    """What holds for the requests of every lane; a key added here is in every routing table."""

    request_timeout_s: float = 600.0
    stall_timeout_s: float = 60.0  # no byte from a replica for this long ends the request
    body_bytes_max: int = 16 * 1024 * 1024
    conversations: int = 16_384  # that the gateway follows, some 0.4 KB each; 0: none
    routing: RoutingRules = field(default_factory=RoutingRules)
    tier_header: bool = False  # a request may name its tier, up to its key's


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec(RequestRules):
    """The public endpoint."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls: TlsSpec | None = None  # None: in clear
    processes: int = 1  # that share the port; of several each has its part of every limit
    port_is_given: bool = False  # by an option at `up`, which outlasts what the profile's file says
    api_keys: tuple[str, ...] = ()  # references: env:NAME or file:PATH; never the key itself
    key_generation: dict[str, GenerationSpec] = field(default_factory=dict)  # by reference: bounds beside the lane's
    key_names: dict[str, str] = field(default_factory=dict)  # by reference: what figures call their clients
    key_tiers: dict[str, str] = field(default_factory=dict)  # by reference: the highest that their requests may have

    @property
    def url(self) -> str:
        """The address clients give as their base URL, without its /v1."""
        return base_url(self.host, self.port, self.tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The share of good requests promised over a window."""

    fraction: float = 0.995
    window_s: float = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The specification of a whole fleet."""

    name: str
    model: ModelSpec  # the only one, or the first
    provider: str
    workload: WorkloadSpec
    objective: Objective
    lanes: tuple[LaneSpec, ...]
    capacity: CapacitySpec
    control: ControlSpec
    gateway: GatewaySpec
    workflows: WorkflowsSpec | None = None  # None: each request is by itself
    tiers: tuple[TierSpec, ...] = ()  # highest first; empty: all requests are alike
    provider_settings: dict[str, SettingValue] = field(default_factory=dict)  # by name; the others are as ever
    host_choice: HostChoice = field(default_factory=HostChoice)  # where controller and gateway run
    other_models: tuple[ModelSpec, ...] = ()  # of a fleet that serves several, those after the first

    @property
    def provider_choice(self) -> ProviderChoice:
        """Return who sells its nodes, with the settings."""
        return ProviderChoice(name=self.provider, settings=self.provider_settings)

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """Return all that the fleet serves, in the profile's order."""
        return (self.model, *self.other_models)

    @property
    def names_models(self) -> bool:
        """Whether it describes its models by name, and each lane says which it serves."""
        return bool(self.lanes[0].model)

    @property
    def lane_models(self) -> dict[str, str]:
        """Return the model of each lane by name, where the fleet has several; else nothing."""
        return {lane.name: lane.model for lane in self.lanes} if self.other_models else {}

    def model_of(self, lane: LaneSpec) -> ModelSpec:
        """Return the model that a lane serves. Raises KeyError for a name there is not."""
        if found := [model for model in self.models if lane.model in ("", model.name)]:
            return found[0]
        raise KeyError(lane.model)

    def lane(self, name: str) -> LaneSpec:
        """Return the lane called `name`. Raises KeyError."""
        if found := [lane for lane in self.lanes if lane.name == name]:
            return found[0]
        raise KeyError(name)
