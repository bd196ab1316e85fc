"""The bounds of answers, key by key: for the fleet, for a lane, for an API key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.fields import REFERENCE_SCHEMA, Duration, Name, Reference, choice, choice_schema, reference
from fleetctl.config.section import Count, ProfileSection
from fleetctl.model.generation import CappedIs, GenerationSpec, LoopAction

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_GENERATION = GenerationSpec()
# As many as OpenAI takes of one request; vLLM, SGLang and TGI take more, and a client's own come on top.
_STOPS_MAX = 4
_STOP_CHARS_MAX = 256

CappedIsChoice = Annotated[
    CappedIs, BeforeValidator(choice(CappedIs, "how such an answer counts")), WithJsonSchema(choice_schema(CappedIs))
]
LoopChoice = Annotated[
    LoopAction,
    BeforeValidator(choice(LoopAction, "what becomes of answers that repeat themselves")),
    WithJsonSchema(choice_schema(LoopAction)),
]
StopText = Annotated[str, Field(min_length=1, max_length=_STOP_CHARS_MAX)]


def _distinct(stops: list[str]) -> list[str]:
    return list(dict.fromkeys(stops))


class AnswerBoundsShape(ProfileSection):
    """How long an answer may get, whatever its request says."""

    default_max_tokens: Count | None = Field(
        default=_GENERATION.default_max_tokens,
        description="max_tokens of a request that names none. Unset: the engine's own, which may be the rest of the context.",
    )
    max_tokens: Count | None = Field(
        default=_GENERATION.max_tokens,
        description="The most output tokens of one choice. A request for more is answered up to here, and a header says "
        "so. Unset: what the context leaves.",
    )
    stop: Annotated[list[StopText], Field(max_length=_STOPS_MAX), AfterValidator(_distinct)] = Field(
        default_factory=list, description="Stop sequences added to those of the request; four at most."
    )
    max_duration_s: Duration | None = Field(
        default=_GENERATION.max_duration_s,
        description="The longest that tokens are generated for, from the first one on. The answer then ends with what "
        "there is, and finish_reason length. Unset: gateway.request_timeout, which ends it with an error.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> AnswerBoundsShape:
        if self.default_max_tokens and self.max_tokens and self.default_max_tokens > self.max_tokens:
            raise ValueError(f"default_max_tokens ({self.default_max_tokens}) is above max_tokens ({self.max_tokens})")
        return self


class GenerationShape(AnswerBoundsShape):
    """How long an answer may get, whatever its request says, and how one counts that was ended so."""

    loop: LoopChoice = Field(
        default=_GENERATION.loop,
        description="What becomes of an answer that only repeats itself: off (nobody looks), observe (it is counted and "
        "shown), or stop (a stream is ended as well, with finish_reason length).",
    )
    capped_is: CappedIsChoice = Field(
        default=_GENERATION.capped_is,
        description="How an answer counts that one of these bounds ended: good (as any other, by its lane's limits) or bad.",
    )


class ApiKeyShape(ProfileSection):
    """An API key, and what holds for the requests that bring it."""

    key: Reference = Field(description="Where the key lies: env:NAME, file:PATH or keyring:SERVICE/USER.")
    name: Name | None = Field(
        default=None,
        description="What figures, requests and metrics call whoever brings it. Unset: eight digits that change with each start.",
    )
    tier: Name | None = Field(
        default=None, description="The tier of its requests, the highest that they may name. Unset: their lane's."
    )
    generation: AnswerBoundsShape | None = Field(
        default=None,
        description="The bounds of the answers to it. Of these and the lane's the stricter one holds. Unset: the lane's.",
    )


def _one_or_section(value: object) -> object:
    """Read env:NAME as {key: env:NAME}."""
    return value if isinstance(value, dict) else {"key": reference(value)}


class _OrReference:
    """Adds to a section's schema that a reference may stand for it."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [REFERENCE_SCHEMA, handler(core_schema)]}


ApiKey = Annotated[ApiKeyShape, BeforeValidator(_one_or_section), _OrReference()]
