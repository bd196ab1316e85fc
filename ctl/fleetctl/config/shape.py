"""The profile's YAML, key by key: what may be written, its default, and what it means.

Pydantic stays in this room. Every description here is what `fleetctl schema` gives to editors.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from fleetctl.config import fields
from fleetctl.config.fields import (
    Bytes,
    ControlMode,
    Duration,
    Engine,
    Name,
    Number,
    OpenShare,
    Reference,
    Share,
    Spot,
    TokenRange,
    Usd,
)
from fleetctl.model.catalogue import Precision
from fleetctl.model.profile import (
    CapacitySpec,
    ControlSpec,
    EmulatorSpec,
    EngineKind,
    GatewaySpec,
    Objective,
    SpotPolicy,
)

_CONTROL = ControlSpec()
_GATEWAY = GatewaySpec()
_CAPACITY = CapacitySpec()
_EMULATOR = EmulatorSpec()
_OBJECTIVE = Objective()

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Section(BaseModel):
    """Is the base of every section: unknown keys are faults, and 5 is not "5"."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)


class DistributionShape(Section):
    """A long-tailed quantity by its median and its 99th percentile."""

    p50: Positive = Field(description="The median, in tokens.")
    p99: Positive = Field(description="The 99th percentile, in tokens; at least p50.")

    @model_validator(mode="after")
    def _in_order(self) -> DistributionShape:
        if self.p50 > self.p99:
            raise ValueError(f"p50 ({self.p50:g}) is above p99 ({self.p99:g})")
        return self


class ModelShape(Section):
    """Which weights are served, in which precision."""

    id: Annotated[str, Field(min_length=1)] = Field(
        description="The model's hub id, such as meta-llama/Llama-3.1-8B-Instruct."
    )
    quantization: Number = Field(default=Precision.BF16, description="Number format of the weights.")
    kv_cache: Number | None = Field(
        default=None, description="Number format of the KV cache. Unset: the engine's own choice."
    )
    served_name: str = Field(default="", description='What clients put in "model". Unset: the id.')
    path: str = Field(
        default="", description="A local directory with the weights, for a real engine; relative to this file."
    )


class WorkloadShape(Section):
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
    burst_cv: Positive = Field(
        default=1.0,
        description="Coefficient of variation of the time between arrivals: 1 is Poisson, more is burstier.",
    )
    batch_share: Share = Field(default=0.0, description="Share of requests that carry the batch hint.")
    trace: str = Field(
        default="", description="A CSV or CSV.gz with arrival_s, prompt_tokens, output_tokens; relative to this file."
    )

    @model_validator(mode="after")
    def _is_enough(self) -> WorkloadShape:
        missing = [key for key in ("peak_rps", "prompt_tokens", "output_tokens") if getattr(self, key) is None]
        if missing and not self.trace:
            raise ValueError(f"says too little: add {', '.join(missing)}, or a trace to read them from")
        return self


class ObjectiveShape(Section):
    """The share of requests that must be good, and over how long."""

    objective: OpenShare = Field(
        default=_OBJECTIVE.fraction, description="Share of requests that meet their lane's SLO."
    )
    window: Duration = Field(default=_OBJECTIVE.window_s, description="The window the error budget is counted over.")


class PercentilesShape(Section):
    """One latency's limits, by percentile."""

    p50: Duration | None = Field(default=None, description="Half of all requests stay at or under this.")
    p90: Duration | None = Field(default=None, description="90 % stay at or under this.")
    p95: Duration | None = Field(default=None, description="95 % stay at or under this.")
    p99: Duration | None = Field(default=None, description="99 % stay at or under this.")
    p99_9: Duration | None = Field(default=None, alias="p99.9", description="99.9 % stay at or under this.")

    @model_validator(mode="after")
    def _in_order(self) -> PercentilesShape:
        given = self.given()
        if not given:
            raise ValueError("promises nothing; add a percentile, such as p99: 300ms")
        for (low, low_s), (high, high_s) in pairwise(given):
            if low_s > high_s:
                raise ValueError(f"p{low * 100:g} ({low_s:g} s) is above p{high * 100:g} ({high_s:g} s)")
        return self

    def given(self) -> list[tuple[float, float]]:
        """Return (percentile as a fraction, limit in seconds), lowest percentile first."""
        limits = ((0.5, self.p50), (0.9, self.p90), (0.95, self.p95), (0.99, self.p99), (0.999, self.p99_9))
        return [(percentile, limit_s) for percentile, limit_s in limits if limit_s is not None]


class LaneSloShape(Section):
    """What a lane promises."""

    ttft: PercentilesShape | None = Field(default=None, description="Submission to first token.")
    itl: PercentilesShape | None = Field(default=None, description="Gap between tokens.")
    e2e: PercentilesShape | None = Field(default=None, description="Submission to last token.")
    queue_wait: PercentilesShape | None = Field(default=None, description="Submission to dispatch to a replica.")
    completion: PercentilesShape | None = Field(default=None, description="A batch request, submission to done.")

    @model_validator(mode="after")
    def _promises_something(self) -> LaneSloShape:
        if all(limits is None for limits in (self.ttft, self.itl, self.e2e, self.queue_wait, self.completion)):
            raise ValueError("promises nothing; add one of ttft, itl, e2e, queue_wait, completion")
        return self


class MatchShape(Section):
    """Which requests a lane takes when no header names it. Lanes are tried in the order they are written."""

    uncached_prompt_tokens: TokenRange | None = Field(
        default=None, description="Estimated prompt tokens not in the prefix cache. Unset: any."
    )
    stream: bool | None = Field(
        default=None, description="Only streaming (true) or only non-streaming (false) requests. Unset: both."
    )
    batch: bool = Field(default=False, description="Takes the requests that carry the batch hint, and no others.")


class ReplicasShape(Section):
    """Hard limits on a lane's replicas."""

    min: int = Field(ge=0, le=10_000, description="Never fewer; 0 lets the lane go away when idle.")
    max: Count = Field(description="Never more.")

    @model_validator(mode="after")
    def _in_order(self) -> ReplicasShape:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) is above max ({self.max})")
        return self


def _one_or_bounds(value: object) -> object:
    """Read 3 as {min: 3, max: 3}."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    return value


Replicas = Annotated[
    ReplicasShape,
    BeforeValidator(_one_or_bounds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {
                    "type": "object",
                    "properties": {
                        "min": {"type": "integer", "minimum": 0, "description": "Never fewer."},
                        "max": {"type": "integer", "minimum": 1, "description": "Never more."},
                    },
                    "required": ["min", "max"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


def _is_real_engine(kind: EngineKind) -> EngineKind:
    if kind is EngineKind.EMULATOR:
        raise ValueError("an emulator looks like a real engine; one of: vllm, tgi, sglang")
    return kind


Flavour = Annotated[
    Engine, AfterValidator(_is_real_engine), WithJsonSchema({"type": "string", "enum": ["vllm", "tgi", "sglang"]})
]


class EmulatorShape(Section):
    """How emulated engines look and behave. A lane's own section changes only the keys it names."""

    flavour: Flavour = Field(default=_EMULATOR.flavour, description="The engine it looks like from outside.")
    seed: int = Field(default=_EMULATOR.seed, ge=0, le=2**31, description="Same seed, same behaviour.")
    startup: Duration = Field(
        default=_EMULATOR.startup_s, description="Process start to healthy; stands for loading weights."
    )
    speed: Positive = Field(
        default=_EMULATOR.speed, description="2 takes half the modelled time for every engine step."
    )


def _env_is_safe(env: dict[str, str]) -> dict[str, str]:
    bare = [name for name, value in env.items() if _names_a_secret(name) and not fields.is_reference(value)]
    if bare:
        raise ValueError(
            f"{', '.join(bare)} looks like a secret; say where it lies: env:NAME, file:PATH or keyring:SERVICE/USER"
        )
    return env


def _names_a_secret(name: str) -> bool:
    words = name.upper().split("_")
    return any(word in ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIALS") for word in words)


class LaunchShape(Section):
    """Launch settings pinned by hand; what is not pinned is computed by the plan."""

    tensor_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="GPUs one replica spans."
    )
    max_num_seqs: Count | None = Field(default=None, description="Sequences in one batch.")
    max_model_len: Count | None = Field(default=None, description="Prompt and output tokens of one sequence.")
    max_num_batched_tokens: Count | None = Field(
        default=None, description="Tokens in one engine step: the chunk of chunked prefill."
    )
    gpu_memory_utilization: OpenShare | None = Field(
        default=None, description="Share of GPU memory the engine may take."
    )
    extra_args: list[str] = Field(default_factory=list, description="Given to the engine as they are.")
    env: Annotated[dict[str, str], AfterValidator(_env_is_safe)] = Field(
        default_factory=dict, description="Environment of the engine; secrets as references."
    )


class LaneShape(Section):
    """One lane: who enters, what is promised, how long one may wait, what it runs on."""

    match: MatchShape = Field(
        default_factory=MatchShape, description="Which requests it takes. Unset: all that no earlier lane took."
    )
    slo: LaneSloShape = Field(description="What it promises.")
    max_wait: Duration = Field(
        description="Longest wait in the gateway's queue; a request that would wait longer is refused with 429."
    )
    queue_max: Count = Field(default=256, description="Requests that may wait.")
    interruptible: bool = Field(default=False, description="May be paused under pressure, and moves to spot first.")
    replicas: Replicas = Field(default=ReplicasShape(min=1, max=8), description="How many: a number, or {min, max}.")
    spot: Spot | None = Field(
        default=None,
        description="What may sit on spot nodes: none, burst (beyond the baseline) or all. Unset: as capacity.spot.",
    )
    engine: Engine | None = Field(default=None, description="Another engine than the profile's.")
    emulator: EmulatorShape | None = Field(default=None, description="How this lane's emulated engines differ.")
    launch: LaunchShape = Field(default_factory=LaunchShape, description="Launch settings pinned by hand.")
    spill_to: list[str] = Field(
        default_factory=list, description="Lanes whose idle replicas may serve this one, in order."
    )


class CapacityShape(Section):
    """What may be bought."""

    on_demand: Literal["baseline"] = Field(default="baseline", description="On-demand nodes carry the baseline load.")
    spot: Spot = Field(default=SpotPolicy.BURST, description="What may sit on spot nodes, in lanes that do not say.")
    gpus: list[str] = Field(
        default_factory=list, description="GPU names that may be used. Unset: any the provider offers."
    )
    region: str = Field(default=_CAPACITY.region, description="The provider's region. Unset: its default.")
    zones: list[str] = Field(default_factory=list, description="Zones that may be used. Unset: all of the region.")
    max_cost_per_hour: Usd | None = Field(
        default=None, description="A hard cap on what live nodes may cost, such as $55."
    )
    max_nodes: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=_CAPACITY.max_nodes, description="A hard cap on live nodes."
    )


class ControlShape(Section):
    """How the controller acts."""

    mode: ControlMode = Field(
        default=_CONTROL.mode, description="active acts; shadow decides, journals, and does nothing."
    )
    tick: Duration = Field(default=_CONTROL.tick_s, description="Time between two decisions.")
    scale_up_after: Duration = Field(
        default=_CONTROL.scale_up_after_s, description="Pressure must last this long to add a replica."
    )
    scale_down_after: Duration = Field(
        default=_CONTROL.scale_down_after_s, description="Calm must last this long to remove one."
    )
    drain_timeout: Duration = Field(
        default=_CONTROL.drain_timeout_s, description="In-flight requests get this long when a replica leaves."
    )
    start_timeout: Duration = Field(
        default=_CONTROL.start_timeout_s, description="Create to ready; longer is a failed start."
    )
    pause_batch_above: OpenShare = Field(
        default=_CONTROL.pause_batch_above, description="Pressure at which interruptible lanes pause."
    )
    resume_batch_below: OpenShare = Field(
        default=_CONTROL.resume_batch_below, description="Pressure at which they resume; below pause_batch_above."
    )
    breaker_after: Duration = Field(
        default=_CONTROL.breaker_after_s, description="P99 over twice its SLO for this long refuses all new requests."
    )

    @model_validator(mode="after")
    def _has_hysteresis(self) -> ControlShape:
        if self.resume_batch_below >= self.pause_batch_above:
            raise ValueError("resume_batch_below must be below pause_batch_above, or batch would flap")
        return self


class GatewayShape(Section):
    """The public door."""

    host: Annotated[str, Field(min_length=1)] = Field(
        default=_GATEWAY.host, description="Address to listen on. Beyond loopback api_keys are required."
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(default=_GATEWAY.port, description="Port to listen on.")
    api_keys: list[Reference] = Field(
        default_factory=list,
        description="Where the accepted keys lie: env:NAME, file:PATH or keyring:SERVICE/USER; never the keys.",
    )
    request_timeout: Duration = Field(
        default=_GATEWAY.request_timeout_s, description="Longest a request may take in all."
    )
    stall_timeout: Duration = Field(
        default=_GATEWAY.stall_timeout_s, description="No byte from a replica for this long ends the request."
    )
    body_max: Bytes = Field(default=float(_GATEWAY.body_bytes_max), description="Largest request body.")


class ProfileShape(Section):
    """A fleet of LLM inference engines, as wished: one model, lanes with SLOs, the demand, the limits."""

    api_version: Literal["fleetctl/v1"] = Field(alias="apiVersion", description="The profile language: fleetctl/v1.")
    name: Name = Field(description="The fleet's name.")
    model: ModelShape = Field(description="Which weights are served.")
    engine: Engine = Field(description="The engine of every lane that names no other.")
    emulator: EmulatorShape = Field(default_factory=EmulatorShape, description="How emulated engines look and behave.")
    provider: Name = Field(
        description="Who sells the nodes: local (processes on this machine), or an installed provider."
    )
    workload: WorkloadShape = Field(description="The demand to plan for.")
    slo: ObjectiveShape = Field(default_factory=ObjectiveShape, description="The share of good requests promised.")
    lanes: Annotated[dict[Name, LaneShape], Field(min_length=1)] = Field(
        description="The lanes by name, tried in this order."
    )
    capacity: CapacityShape = Field(default_factory=CapacityShape, description="What may be bought.")
    control: ControlShape = Field(default_factory=ControlShape, description="How the controller acts.")
    gateway: GatewayShape = Field(default_factory=GatewayShape, description="The public door.")


def known_keys(path: tuple[str | int, ...]) -> list[str]:
    """Return the keys a section at this path may hold; empty when the path is no section of a profile."""
    return list(_entries(path))


def describe(path: tuple[str | int, ...]) -> str:
    """Return what the key at this path means, or nothing for a key there is not."""
    return _entries(path[:-1]).get(str(path[-1]), "")


def _entries(path: tuple[str | int, ...]) -> dict[str, str]:
    """Return key -> description of the section at this path."""
    kind: Any = ProfileShape
    for part in path:
        kind = _section_below(kind, part)
    if isinstance(kind, type) and issubclass(kind, Section):
        return {entry.alias or name: entry.description or "" for name, entry in kind.model_fields.items()}
    return {}


def _section_below(kind: Any, part: str | int) -> Any:  # noqa: ANN401  # annotations have no narrower type
    if isinstance(kind, type) and issubclass(kind, Section):
        found = [entry for name, entry in kind.model_fields.items() if (entry.alias or name) == part]
        return _unwrap(found[0].annotation) if found else None
    return kind[0] if isinstance(kind, tuple) else None


def _unwrap(annotation: Any) -> Any:  # noqa: ANN401
    """Return the section an annotation names; a one-tuple of it when it is a mapping of sections."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    inner = [_unwrap(part) for part in getattr(annotation, "__args__", ())]
    sections = [part for part in inner if part is not None]
    if not sections:
        return None
    is_mapping = getattr(annotation, "__origin__", None) is dict
    return (sections[0],) if is_mapping else sections[0]
