"""A lane's YAML, key by key: who enters, what is promised, what it runs on."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.fields import (
    INSTALLED_ENGINE,
    Allowance,
    Duration,
    EngineName,
    Name,
    Number,
    PlayedEngineName,
    RateBelow,
    Spot,
    TokenRange,
)
from fleetctl.config.forms import VERSION_FORM
from fleetctl.config.generation_shape import GenerationShape
from fleetctl.config.launch_shape import LaunchShape
from fleetctl.config.model_shape import ModelName, WeightsPath
from fleetctl.config.section import Count, Positive, ProfileSection
from fleetctl.model.profile import EmulatorSpec
from fleetctl.model.slo import LaneSlo
from fleetctl.units import format_duration

_EMULATOR = EmulatorSpec()


class PercentilesShape(ProfileSection):
    """One latency's limits, by percentile."""

    _example: ClassVar[str] = "p99: 300ms"
    _unit: ClassVar[str] = " s"

    p50: Duration | None = Field(default=None, description="Half of all requests stay at or under this.")
    p90: Duration | None = Field(default=None, description="90 % stay at or under this.")
    p95: Duration | None = Field(default=None, description="95 % stay at or under this.")
    p99: Duration | None = Field(default=None, description="99 % stay at or under this.")
    p99_9: Duration | None = Field(default=None, alias="p99.9", description="99.9 % stay at or under this.")

    @model_validator(mode="after")
    def _in_order(self) -> PercentilesShape:
        given = self.given()
        if not given:
            raise ValueError(f"promises nothing; add a percentile, such as {self._example}")
        unit = self._unit
        for (low, low_s), (high, high_s) in pairwise(given):
            if low_s > high_s:
                raise ValueError(f"p{low * 100:g} ({low_s:g}{unit}) is above p{high * 100:g} ({high_s:g}{unit})")
        return self

    def given(self) -> list[tuple[float, float]]:
        """Return (percentile as a fraction, limit in seconds), lowest percentile first."""
        limits = ((0.5, self.p50), (0.9, self.p90), (0.95, self.p95), (0.99, self.p99), (0.999, self.p99_9))
        return [(percentile, limit_s) for percentile, limit_s in limits if limit_s is not None]


class TokensShape(PercentilesShape):
    """The limits of a count of tokens, by percentile."""

    p50: Positive | None = Field(default=None, description="Half of all answers stay at or under this.")
    p90: Positive | None = Field(default=None, description="90 % stay at or under this.")
    p95: Positive | None = Field(default=None, description="95 % stay at or under this.")
    p99: Positive | None = Field(default=None, description="99 % stay at or under this.")
    p99_9: Positive | None = Field(default=None, alias="p99.9", description="99.9 % stay at or under this.")

    _example: ClassVar[str] = "p99: 8"
    _unit: ClassVar[str] = " tokens"


class LaneSloShape(ProfileSection):
    """What a lane promises."""

    ttft: PercentilesShape | None = Field(default=None, description="Submission to first token.")
    itl: PercentilesShape | None = Field(default=None, description="Gap between tokens.")
    e2e: PercentilesShape | None = Field(default=None, description="Submission to last token.")
    queue_wait: PercentilesShape | None = Field(default=None, description="Submission to dispatch to a replica.")
    completion: PercentilesShape | None = Field(default=None, description="A batch request, submission to done.")

    stream_gap: PercentilesShape | None = Field(
        default=None, description="Gap between two chunks of an answer, as they leave for its client."
    )
    stall_rate: RateBelow | None = Field(
        default=None,
        description="The share of streamed answers that may have a stall: a far too long gap between two chunks.",
    )
    tokens_per_chunk: TokensShape | None = Field(
        default=None, description="Tokens that leave at once: of each answer the mean of its chunks."
    )
    shed: Allowance = Field(
        default=LaneSlo(targets=()).shed,
        description="The share of its requests that may be refused (429) and are good for all that; beyond it a refusal is a miss.",
    )

    @model_validator(mode="after")
    def _promises_something(self) -> LaneSloShape:
        names = [name for name in type(self).model_fields if name != "shed"]
        if all(getattr(self, name) is None for name in names):
            raise ValueError(f"promises nothing; add one of {', '.join(names)}")
        return self


class MatchShape(ProfileSection):
    """Which requests a lane takes when no header names it. Lanes are tried in the order they are written."""

    uncached_prompt_tokens: TokenRange | None = Field(
        default=None, description="Estimated prompt tokens not in the prefix cache. Unset: any."
    )
    stream: bool | None = Field(
        default=None, description="Only streaming (true) or only non-streaming (false) requests. Unset: both."
    )
    batch: bool = Field(default=False, description="Takes the requests that carry the batch hint, and no others.")


class ReplicasShape(ProfileSection):
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


class EngineShape(ProfileSection):
    """Which engine, and which installation of it."""

    kind: EngineName = Field(description="The engine, by the name it is installed under.")
    version: Annotated[str, Field(pattern=VERSION_FORM, max_length=80)] | None = Field(
        default=None,
        description="The version that replicas must say they are, such as 0.32.0, in quotes; it also chooses the image of rendered "
        "container files. A changed one is rolled out. Unset: any.",
    )
    executable: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The program to start in place of the engine's own, so that versions can lie side by side; a path is "
        "relative to this file. For sglang: the Python it is installed in.",
    )


def _one_or_section(value: object) -> object:
    """Read vllm as {kind: vllm}."""
    return {"kind": value} if isinstance(value, str) else value


EngineChoice = Annotated[
    EngineShape,
    BeforeValidator(_one_or_section),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "$comment": INSTALLED_ENGINE},
                {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string", "$comment": INSTALLED_ENGINE, "description": "The engine."},
                        "version": {
                            "type": "string",
                            "pattern": VERSION_FORM,
                            "description": "The version that replicas must say they are. Unset: any.",
                        },
                        "executable": {
                            "type": "string",
                            "description": "The program to start in place of the engine's own.",
                        },
                    },
                    "required": ["kind"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class EmulatorShape(ProfileSection):
    """How emulated engines look and behave. A lane's own section changes only the keys it names."""

    flavour: PlayedEngineName = Field(default=_EMULATOR.flavour, description="The engine it looks like from outside.")
    seed: int = Field(default=_EMULATOR.seed, ge=0, le=2**31, description="Same seed, same behaviour.")
    startup_s: Duration = Field(
        default=_EMULATOR.startup_s, description="Process start to healthy; stands for loading weights."
    )
    speed: Positive = Field(
        default=_EMULATOR.speed, description="2 takes half the modelled time for every engine step."
    )
    version: str = Field(
        default=_EMULATOR.version,
        description="The version it says it is. Unset: engine.version, or the newest known of the engine it plays.",
    )


class WeightsShape(ProfileSection):
    """A lane's own copy of the fleet's model."""

    path: Annotated[WeightsPath, Field(min_length=1)] = Field(
        description="A local directory, or a GGUF file for an engine that reads those; relative to this file. Or, on AWS, "
        "s3://BUCKET/PREFIX."
    )
    quantization: Number | None = Field(
        default=None, description="Number format of these weights. Unset: as model.quantization."
    )


class CoalesceShape(ProfileSection):
    """In which chunks a lane's streams leave."""

    tokens: int = Field(ge=2, le=256, description="Tokens of a chunk.")
    within_s: Annotated[Duration, Field(ge=0.005, le=1.0)] = Field(
        description="How long a chunk waits for them, and how far apart chunks leave after a burst: 5ms to 1s."
    )


class LaneShape(ProfileSection):
    """One lane: who enters, what is promised, how long one may wait, what it runs on."""

    match: MatchShape = Field(
        default_factory=MatchShape, description="Which requests it takes. Unset: all that no earlier lane took."
    )
    slo: LaneSloShape = Field(description="What it promises.")
    max_wait_s: Duration = Field(
        description="Longest wait in the gateway's queue; a request that would wait longer is refused with 429."
    )
    max_wait_from_zero_s: Duration | None = Field(
        default=None,
        description=(
            "Longest wait for the lane's first replica, when it is scaled to zero or has not started yet; then 503. "
            "Unset: half as long again as one takes from order to ready, and 15 s, but 5 minutes at most. Below max_wait: as max_wait."
        ),
    )
    queue_max: Count = Field(default=256, description="Requests that may wait.")
    interruptible: bool = Field(default=False, description="May be paused under pressure, and moves to spot first.")
    replicas: Replicas = Field(default=ReplicasShape(min=1, max=8), description="How many: a number, or {min, max}.")
    spot: Spot | None = Field(
        default=None,
        description="What may sit on spot nodes: none, burst (beyond the baseline) or all. Unset: as capacity.spot.",
    )
    engine: EngineChoice | None = Field(
        default=None, description="Another engine than the profile's, or another version; it replaces that key whole."
    )
    emulator: EmulatorShape | None = Field(default=None, description="How this lane's emulated engines differ.")
    launch: LaunchShape = Field(default_factory=LaunchShape, description="Launch settings pinned by hand.")
    model: ModelName | None = Field(
        default=None, description="Which of the fleet's models it serves, by name. Unset: the only one."
    )
    weights: WeightsShape | None = Field(
        default=None,
        description="The fleet's model from elsewhere, where this lane's engine reads another format. Unset: as model says.",
    )
    spill_to: list[str] = Field(
        default_factory=list, description="Lanes whose idle replicas may serve this one, in order."
    )
    lends: bool = Field(
        default=True,
        description="Whether other lanes of the same engine may use its replicas, request by request, while its promise is kept.",
    )
    generation: GenerationShape | None = Field(
        default=None, description="The bounds of this lane's answers; it changes only the keys it names."
    )
    coalesce: CoalesceShape | None = Field(
        default=None,
        description="Streams leave in fewer and evener chunks; the first token is never held. Unset: as they come from the engine.",
    )

    tier: Name | None = Field(
        default=None,
        description="The tier of the requests whose key has none. Unset: the lowest, where tiers are declared.",
    )
    ttft_budget: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")], Duration] = Field(
        default_factory=dict,
        description="Parts of slo.ttft by name. network (the client's way in) and every name of your own (safety_filter) pass before "
        "the gateway: they are off the limit that gateway, load and plan hold. gateway and tokenization are planned with in place of 1ms "
        "and 15ms.",
    )

    @model_validator(mode="after")
    def _leaves_time_to_answer(self) -> LaneShape:
        if not self.ttft_budget:
            return self
        if self.slo.ttft is None:
            raise ValueError("ttft_budget is a part of slo.ttft, which promises nothing; add slo.ttft.p99")
        percentile, limit_s = self.slo.ttft.given()[0]
        taken_s = sum(self.ttft_budget.values())
        if taken_s >= limit_s:
            raise ValueError(
                f"ttft_budget takes {format_duration(taken_s)} and leaves nothing of slo.ttft P{percentile * 100:g} "
                f"({format_duration(limit_s)}) to queue and engine"
            )
        return self

    @model_validator(mode="after")
    def _promises_what_it_does(self) -> LaneShape:
        if self.coalesce is None:
            return self
        tokens, within_s = self.coalesce.tokens, self.coalesce.within_s
        promised = dict(self.slo.stream_gap.given()) if self.slo.stream_gap else {}
        for percentile, limit_s in promised.items():
            if limit_s < within_s:
                raise ValueError(
                    f"coalesce.within ({format_duration(within_s)}) is above the promised stream_gap "
                    f"P{percentile * 100:g} ({format_duration(limit_s)})"
                )
        units = dict(self.slo.tokens_per_chunk.given()) if self.slo.tokens_per_chunk else {}
        if units and max(units.values()) < tokens:
            raise ValueError(
                f"coalesce.tokens ({tokens}) is above the promised tokens_per_chunk ({max(units.values()):g} tokens)"
            )
        return self
