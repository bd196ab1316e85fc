"""A lane's launch settings in YAML, key by key: what of its engines' start the user decides."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.fields import Guess, OpenShare, Performance, is_reference, shown
from fleetctl.config.forms import IMAGE_FORM
from fleetctl.config.section import Count, ProfileSection
from fleetctl.model.serving import SpeculationMethod
from fleetctl.secret_shapes import is_secret_shaped, names_a_secret, secret_argument

ParserName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


_VOLUMES_MAX = 32
_PATH_MAX = 1000
_VOLUME_PATTERN = r"^([~.]{0,2}/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]*):/[^:]*(:(ro|rw))?$"


def _volume(text: str) -> str:
    if not re.fullmatch(_VOLUME_PATTERN, text) or not text.isprintable() or len(text) > _PATH_MAX:
        raise ValueError(
            f"{shown(text)} is no volume; write SOURCE:TARGET, or SOURCE:TARGET:ro, with an absolute TARGET: "
            "/data/models:/models:ro; a source is a path (/, ./, ~/) or a volume's name"
        )
    return text if text.endswith((":ro", ":rw")) else f"{text}:rw"


Volume = Annotated[str, AfterValidator(_volume), WithJsonSchema({"type": "string", "pattern": _VOLUME_PATTERN})]


def _env_is_safe(env: dict[str, str]) -> dict[str, str]:
    bare = [n for n, value in env.items() if not is_reference(value) and (names_a_secret(n) or is_secret_shaped(value))]
    if bare:
        raise ValueError(
            f"{', '.join(bare)} looks like a secret; say where it lies: env:NAME, file:PATH or keyring:SERVICE/USER"
        )
    return env


def _arguments_are_safe(arguments: list[str]) -> list[str]:
    if found := secret_argument(arguments):
        # Neither the value nor what stands beside it is repeated: it may be the secret itself.
        raise ValueError(
            f"{found} looks like a secret, and whoever lists processes reads arguments; give it to the engine by its "
            "environment: env: {NAME: env:NAME}"
        )
    return arguments


class SpeculationShape(ProfileSection):
    """How an engine guesses ahead: several tokens a step, of which it keeps those that were right."""

    method: Guess = Field(
        description="ngram: from what prompt and answer have said already, as where code is edited; eagle, eagle3: from a head; none."
    )
    tokens: int = Field(default=4, ge=1, le=16, description="Tokens guessed at once.")
    model: str = Field(default="", description="The head of eagle and eagle3: a hub id or a directory.")

    @model_validator(mode="after")
    def _has_a_head(self) -> SpeculationShape:
        needs = self.method in {SpeculationMethod.EAGLE, SpeculationMethod.EAGLE3}
        if needs and not self.model:
            raise ValueError(f"{self.method} needs the head that guesses: model: HUB_ID_OR_DIRECTORY")
        if self.model and not needs:
            raise ValueError(f"{self.method} takes no model of its own; leave model out")
        return self


class LaunchShape(ProfileSection):
    """Launch settings pinned by hand; what is not pinned is computed by the plan."""

    tensor_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="GPUs of one machine that a replica spans."
    )
    pipeline_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Machines one replica spans, a pipeline stage each; what max_nodes counts. Unset: 1, and as many as a model needs that no machine holds.",
    )
    pipeline_parallel_local: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Pipeline stages on each machine of a replica. Unset: 1, and more for a model that tensor parallel GPUs of a machine do not hold.",
    )
    data_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Ranks of one replica: copies of the model in one engine on one machine, each on GPUs of its own. Unset: by cost where machines are sold whole, else 1.",
    )
    max_num_seqs: Count | None = Field(default=None, description="Sequences in one batch.")
    max_model_len: Count | None = Field(default=None, description="Prompt and output tokens of one sequence.")
    max_num_batched_tokens: Count | None = Field(
        default=None, description="Tokens in one engine step: the chunk of chunked prefill."
    )
    gpu_memory_utilization: OpenShare | None = Field(
        default=None, description="Share of GPU memory the engine may take."
    )
    prefix_caching: bool | None = Field(default=None, description="Keep prompts' KV for the next request. Unset: yes.")
    tool_call_parser: ParserName | None = Field(
        default=None,
        description="The model's notation of tool calls, by the engine's name for it; none. Unset: by the model.",
    )
    reasoning_parser: ParserName | None = Field(
        default=None, description="The same for what it thinks before it answers. Unset: by the model."
    )
    stream_interval: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None,
        description="Tokens an event of a stream carries. Unset: 1, and 8 where a lane promises nothing of streams.",
    )
    performance_mode: Performance | None = Field(
        default=None, description="What kernels and graphs are chosen for. Unset: by what the lane promises."
    )
    long_prefill_tokens: Count | None = Field(
        default=None,
        description="Tokens of one prompt in a step, so that short ones pass long ones. Unset: as many as a step holds.",
    )
    max_queued_requests: Count | None = Field(
        default=None,
        description="The bound of the engine's own queue, as its flag counts. Unset: none, for the gateway queues.",
    )
    expert_parallel: bool | None = Field(
        default=None,
        description="Whole experts on each GPU, in place of slices. Unset: for mixtures of experts over 8 GPUs and more.",
    )
    speculation: SpeculationShape | None = Field(default=None, description="Guessing ahead. Unset: none.")
    extra_args: Annotated[list[str], AfterValidator(_arguments_are_safe)] = Field(
        default_factory=list, description="Given to the engine as they are."
    )
    env: Annotated[dict[str, str], AfterValidator(_env_is_safe)] = Field(
        default_factory=dict, description="Environment of the engine; secrets as references."
    )

    hub_cache: Annotated[str, Field(pattern=r"^([~.]{0,2}/[^:]*)?$", max_length=_PATH_MAX)] = Field(
        default="",
        description="Directory that all replicas keep weights from the hub in (HF_HUB_CACHE): each is fetched once. Unset: "
        "the engine's own, in its user's home.",
    )
    image: Annotated[str, Field(pattern=IMAGE_FORM, max_length=_PATH_MAX)] = Field(
        default="", description="The container image of rendered files. Unset: the engine's publisher's."
    )
    volumes: Annotated[list[Volume], Field(max_length=_VOLUMES_MAX)] = Field(
        default_factory=list,
        description="What rendered files mount: SOURCE:TARGET or SOURCE:TARGET:ro; a source is a path of the machine "
        "or a volume's name.",
    )

    @model_validator(mode="after")
    def _step_holds_a_batch(self) -> LaunchShape:
        seqs, tokens = self.max_num_seqs, self.max_num_batched_tokens
        if seqs is not None and tokens is not None and seqs > tokens:
            raise ValueError(
                f"max_num_seqs ({seqs}) is above max_num_batched_tokens ({tokens}): not every sequence of a full batch could get its token in a step"
            )
        return self
