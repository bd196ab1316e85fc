"""The profile's YAML, key by key: what may be written, its default, and what it means.

Pydantic stays in this package. Every description here is what `fleetctl schema` gives to editors.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from fleetctl.config.fields import (
    Bytes,
    ContextCapChoice,
    ControlMode,
    Duration,
    FilterName,
    Name,
    OnDemand,
    OnFailureChoice,
    OpenShare,
    Replicas,
    ScorerName,
    Share,
    Spot,
    Usd,
    Weight,
)
from fleetctl.config.generation_shape import ApiKey, GenerationShape
from fleetctl.config.lane_shape import EmulatorShape, EngineChoice, LaneShape
from fleetctl.config.model_shape import MODELS_MAX, ModelName, ModelShape, NamedModelShape
from fleetctl.config.provider_shape import HostChoiceShape, HostShape, ProviderChoiceShape
from fleetctl.config.section import Count, Positive, ProfileSection
from fleetctl.config.tier_shape import TIERS_MAX, TierShape
from fleetctl.config.tls_shape import TlsShape
from fleetctl.config.workflow_shape import WorkflowsShape
from fleetctl.model.host_choice import LOCAL_HOST
from fleetctl.model.profile import CapacitySpec, ControlSpec, GatewaySpec, Objective, ReplicaShare, SpotPolicy

_CONTROL = ControlSpec()
_GATEWAY = GatewaySpec()
_CAPACITY = CapacitySpec()
_OBJECTIVE = Objective()


class DistributionShape(ProfileSection):
    """A long-tailed quantity by its median and its 99th percentile."""

    p50: Positive = Field(description="The median, in tokens.")
    p99: Positive = Field(description="The 99th percentile, in tokens; at least p50.")

    @model_validator(mode="after")
    def _in_order(self) -> DistributionShape:
        if self.p50 > self.p99:
            raise ValueError(f"p50 ({self.p50:g}) is above p99 ({self.p99:g})")
        return self


class WorkloadShape(ProfileSection):
    """The demand to plan for, over all lanes, at the peak minute."""

    peak_rps: Positive | None = Field(
        default=None, description="Requests per second in the peak minute. With a trace: read from it unless given."
    )
    prompt_tokens: DistributionShape | None = Field(
        default=None, description="Prompt lengths. With a trace: read from it unless given."
    )
    output_tokens: DistributionShape | None = Field(
        default=None, description="Output lengths. With a trace: read from it unless given."
    )
    prefix_hit: Share = Field(
        default=0.0, description="Share of prompt tokens found in the prefix cache; they cost no prefill."
    )
    burst_cv: Positive | None = Field(
        default=None,
        description="Coefficient of variation of the time between arrivals: 1 is Poisson, more is burstier.",
    )
    dispersion_1s: Positive | None = Field(
        default=None,
        description="Variance of the arrivals in a second over their mean: 1 is Poisson, more is burstier.",
    )
    dispersion_10s: Positive | None = Field(default=None, description="The same of the arrivals in ten seconds.")
    batch_share: Share = Field(default=0.0, description="Share of requests that carry the batch hint.")
    stream_share: Share = Field(
        default=1.0, description="Share of the requests without the batch hint that stream; those with it do not."
    )
    trace: str = Field(
        default="", description="A CSV or CSV.gz with arrival_s, prompt_tokens, output_tokens; relative to this file."
    )

    @model_validator(mode="after")
    def _is_enough(self) -> WorkloadShape:
        missing = [key for key in ("peak_rps", "prompt_tokens", "output_tokens") if getattr(self, key) is None]
        if missing and not self.trace:
            raise ValueError(f"says too little: add {', '.join(missing)}, or a trace to read them from")
        return self


class ObjectiveShape(ProfileSection):
    """The share of requests that must be good, and over how long."""

    fraction: OpenShare = Field(
        alias="objective", default=_OBJECTIVE.fraction, description="Share of requests that meet their lane's SLO."
    )
    window_s: Duration = Field(default=_OBJECTIVE.window_s, description="The window the error budget is counted over.")


class CapacityShape(ProfileSection):
    """What may be bought."""

    on_demand: OnDemand = Field(
        default=_CAPACITY.on_demand,
        description="What on-demand nodes carry in lanes with spot: burst: minimum (replicas.min), "
        "baseline (the average load) or peak (the whole plan); whatever is more sits on spot.",
    )
    spot: Spot = Field(default=SpotPolicy.BURST, description="What may sit on spot nodes, in lanes that do not say.")
    gpus: list[str] = Field(
        default_factory=list, description="GPU names that may be used. Unset: any the provider offers."
    )
    region: str = Field(default=_CAPACITY.region, description="The provider's region. Unset: its default.")
    zones: list[str] = Field(default_factory=list, description="Zones that may be used. Unset: all of the region.")
    max_cost_usd_per_hour: Usd | None = Field(
        default=None, description="A hard cap on what live nodes may cost, such as $55."
    )
    max_nodes: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=_CAPACITY.max_nodes, description="A hard cap on live nodes."
    )
    calibration: str = Field(
        default=_CAPACITY.calibration,
        description="A calibration that `fleetctl calibrate` wrote: its GPU is planned by what your own engine showed. "
        "Unset: the GPU's measured kernels.",
    )
    gpu_usd_per_hour: Usd | None = Field(
        default=None,
        description="What an hour of one GPU costs you where the provider bills nothing, as on this machine: $2.10. Unset: $0.",
    )
    limits: dict[str, Annotated[int, Field(ge=0, le=10_000)]] = Field(
        default_factory=dict,
        description="The most machines of an instance type in the whole fleet, as quotas and stock have it: "
        "{p5.48xlarge: 2}. Unset: no limit of its own.",
    )


class LadderShape(ProfileSection):
    """What the degradation ladder's steps cut to."""

    cap_context: ContextCapChoice = Field(
        default=_CONTROL.ladder.cap_context,
        description="A prompt over context_tokens is refused with 429 and the reason, or loses a chat's oldest turns "
        "(trim), for as long as its lane is on that step.",
    )
    context_tokens: Count | None = Field(
        default=None, description="The longest prompt such a lane takes. Unset: twice the lane's planned mean."
    )
    answer_tokens_min: Count = Field(
        default=_CONTROL.ladder.answer_tokens_min,
        description="No answer is cut below this. Answers are cut to the median of workload.output_tokens, or to this "
        "where it is more.",
    )


class RolloutShape(ProfileSection):
    """How a changed profile reaches running replicas: lane by lane, new ones first."""

    canary: Replicas = Field(
        default=_CONTROL.rollout.canary,
        description="New replicas of a lane that serve beside its old ones and are judged before the rest follows: a "
        "share, rounded up, or a count; 0: none.",
    )
    bake_s: Duration = Field(
        default=_CONTROL.rollout.bake_s,
        description="For so long; while too few requests have come to judge by, up to five times that.",
    )
    max_surge: Replicas = Field(
        default=_CONTROL.rollout.max_surge,
        description="Replicas of a lane beyond what it wants, while it is rolled. Not 0 where max_unavailable is.",
    )
    max_unavailable: Replicas = Field(
        default=_CONTROL.rollout.max_unavailable,
        description="Replicas of a lane that may be missing meanwhile. 0: a new one is ready before an old one leaves.",
    )
    on_failure: OnFailureChoice = Field(
        default=_CONTROL.rollout.on_failure,
        description="rollback puts the last complete revision back; pause leaves everything as it is then.",
    )
    timeout_s: Duration = Field(
        default=_CONTROL.rollout.timeout_s, description="Without any progress: longer has failed."
    )

    @model_validator(mode="after")
    def _replaces_something(self) -> RolloutShape:
        if self.max_surge == self.max_unavailable == ReplicaShare():
            raise ValueError(
                "max_surge and max_unavailable are both 0, so no replica could ever be replaced; set max_surge: 1 "
                "(a new one first), or max_unavailable: 1 (an old one leaves first)"
            )
        return self


class EvictionShape(ProfileSection):
    """What is done about KV caches that lose what conversations and streams still need."""

    rate_max: OpenShare = Field(
        default=_CONTROL.evictions.rate_max,
        description="Of a lane's requests, how many evictions there may be: preempted streams, and cached prefixes that "
        "others took the memory of.",
    )
    act: bool = Field(
        default=_CONTROL.evictions.act,
        description="Above it keep more of the lane's KV caches free, then give its replicas fewer slots, then send long "
        "prompts elsewhere; false: only say so.",
    )


class ControlShape(ProfileSection):
    """How the controller acts."""

    mode: ControlMode = Field(
        default=_CONTROL.mode, description="active acts; shadow decides, journals, and does nothing."
    )
    policy: Annotated[str, Field(min_length=1)] = Field(
        default=_CONTROL.policy, description="Who decides: built-in, or another by the name it is installed under."
    )
    shadow_policy: str = Field(
        default=_CONTROL.shadow_policy,
        description="Another policy that decides beside it on the same figures, and never acts: `fleetctl shadow` compares them.",
    )
    tick_s: Duration = Field(default=_CONTROL.tick_s, description="Time between two decisions.")
    scale_up_after_s: Duration = Field(
        default=_CONTROL.scale_up_after_s, description="Pressure must last this long to add a replica."
    )
    scale_down_after_s: Duration = Field(
        default=_CONTROL.scale_down_after_s, description="Calm must last this long to remove one."
    )
    drain_timeout_s: Duration = Field(
        default=_CONTROL.drain_timeout_s, description="In-flight requests get this long when a replica leaves."
    )
    start_timeout_s: Duration = Field(
        default=_CONTROL.start_timeout_s, description="Create to ready; longer is a failed start."
    )
    pause_batch_above: OpenShare = Field(
        default=_CONTROL.pause_batch_above,
        description="Share of a lane's wait limit, refusals and missed promises being more than all of it, at which interruptible lanes "
        "that may serve it pause.",
    )
    resume_batch_below: OpenShare = Field(
        default=_CONTROL.resume_batch_below, description="Pressure at which they resume; below pause_batch_above."
    )
    breaker_after_s: Duration = Field(
        default=_CONTROL.breaker_after_s, description="P99 over twice its SLO for this long refuses all new requests."
    )

    ladder: LadderShape = Field(default_factory=LadderShape, description="What the ladder's steps cut to.")
    rollout: RolloutShape = Field(
        default_factory=RolloutShape, description="How a changed profile reaches running replicas."
    )
    evictions: EvictionShape = Field(
        default_factory=EvictionShape, description="What is done about KV caches that lose what is still needed."
    )

    @model_validator(mode="after")
    def _has_hysteresis(self) -> ControlShape:
        if self.resume_batch_below >= self.pause_batch_above:
            raise ValueError("resume_batch_below must be below pause_batch_above, or batch would flap")
        return self


class RoutingShape(ProfileSection):
    """How the gateway chooses among the replicas that may take a request."""

    scorers: dict[ScorerName, Weight] = Field(
        default_factory=lambda: dict(_GATEWAY.routing.scorers),
        description="Scorer -> its weight in the sum of scores, each from 0 to 1. Those not named keep their default "
        "(least-predicted-ttft 3, prefix-affinity 1, others 0); 0 switches one off.",
    )
    filters: list[FilterName] = Field(
        default_factory=list,
        description="Filters to apply first, in this order; one that would leave no replica is ignored.",
    )

    @field_validator("scorers", mode="after")
    @classmethod
    def _over_defaults(cls, given: dict[str, float]) -> dict[str, float]:
        return {**_GATEWAY.routing.scorers, **given}


class GatewayShape(ProfileSection):
    """The public endpoint."""

    host: Annotated[str, Field(min_length=1)] = Field(
        default=_GATEWAY.host, description="Address to listen on. Beyond loopback api_keys are required."
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(default=_GATEWAY.port, description="Port to listen on.")
    tls: TlsShape | None = Field(
        default=None,
        description="The certificate that clients are served by: {certificate: FILE, key: FILE}, read again when they change; "
        "on host kubernetes {secret: NAME}. Unset: in clear.",
    )
    processes: Annotated[int, Field(ge=1, le=16)] = Field(
        default=_GATEWAY.processes,
        description="Gateway processes that share the port, one processor each; together they keep every limit. On host kubernetes "
        "each is a pod of its own.",
    )
    api_keys: list[ApiKey] = Field(
        default_factory=list,
        description="Where the accepted keys lie: env:NAME, file:PATH or keyring:SERVICE/USER; never the keys. "
        "{key: env:NAME, name: search, tier: premium, generation: {...}} names one of them, gives it a tier, and bounds.",
    )
    tier_header: bool = Field(
        default=_GATEWAY.tier_header,
        description="Whether a request may name its tier (x-fleetctl-tier): its key's, or a lower one.",
    )
    request_timeout_s: Duration = Field(
        default=_GATEWAY.request_timeout_s, description="Longest a request may take in all."
    )
    stall_timeout_s: Duration = Field(
        default=_GATEWAY.stall_timeout_s, description="No byte from a replica for this long ends the request."
    )
    body_bytes_max: Bytes = Field(default=_GATEWAY.body_bytes_max, description="Largest request body.")
    conversations: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=_GATEWAY.conversations,
        description="Conversations the gateway remembers, by hashes and not by text, some 0.4 KB each, so that a lost "
        "prefix is named; 0: none.",
    )
    routing: RoutingShape = Field(default_factory=RoutingShape, description="How a replica is chosen for a request.")


class ProfileShape(ProfileSection):
    """A fleet of LLM inference engines: its models, lanes with SLOs, the demand, the limits."""

    api_version: Literal["fleetctl/v1"] = Field(alias="apiVersion", description="The profile language: fleetctl/v1.")
    name: Name = Field(description="The fleet's name.")
    model: ModelShape | None = Field(
        default=None, description="Which weights are served. A fleet of several has models in its place."
    )
    models: Annotated[dict[ModelName, NamedModelShape], Field(max_length=MODELS_MAX)] = Field(
        default_factory=dict,
        description='Several models by name: what clients put in "model". Each lane names its own. Unset: model says which.',
    )
    engine: EngineChoice = Field(
        description="The engine of every lane that names no other: its name, or {kind, version, executable}."
    )
    emulator: EmulatorShape = Field(default_factory=EmulatorShape, description="How emulated engines look and behave.")
    provider: ProviderChoiceShape = Field(
        description="Who sells the nodes: local (processes on this machine), or an installed provider; {kind: NAME, ...} "
        "gives it settings of its own."
    )
    host: HostChoiceShape = Field(
        default_factory=lambda: HostShape(kind=LOCAL_HOST),
        description="Where controller and gateway run: local (the machine of `up`), or an installed host; {kind: NAME, ...} gives it settings.",
    )
    workload: WorkloadShape = Field(description="The demand to plan for.")
    objective: ObjectiveShape = Field(
        alias="slo", default_factory=ObjectiveShape, description="The share of good requests promised."
    )
    generation: GenerationShape = Field(
        default_factory=GenerationShape, description="The bounds of answers, in lanes that do not say otherwise."
    )
    lanes: Annotated[dict[Name, LaneShape], Field(min_length=1)] = Field(
        description="The lanes by name, tried in this order."
    )
    workflows: WorkflowsShape | None = Field(
        default=None, description="Calls that belong together, seen as one. Unset: each request is by itself."
    )
    tiers: Annotated[dict[Name, TierShape], Field(max_length=TIERS_MAX)] = Field(
        default_factory=dict,
        description="Classes of service by name, the highest first: lower ones are shed and capped before higher ones. "
        "Unset: all requests are alike.",
    )
    capacity: CapacityShape = Field(default_factory=CapacityShape, description="What may be bought.")
    control: ControlShape = Field(default_factory=ControlShape, description="How the controller acts.")
    gateway: GatewayShape = Field(default_factory=GatewayShape, description="The public endpoint.")
