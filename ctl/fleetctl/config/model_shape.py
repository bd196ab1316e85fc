"""A model's YAML, key by key: which weights, and what clients may call them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from fleetctl.config.fields import Number, Share
from fleetctl.config.section import ProfileSection
from fleetctl.model.catalogue import Precision
from fleetctl.model.remote_weights import remote_weights

MODELS_MAX = 64
_NAMES_MAX = 256
_NAME_CHARS_MAX = 200
# What people call models: hub ids, tags, paths of adapters; nothing that a header or a JSON text would have to escape.
MODEL_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@+-")


def _model_name(value: str) -> str:
    if not value or value[0] in "._:/@+-" or not _ALLOWED.issuperset(value) or len(value) > _NAME_CHARS_MAX:
        raise ValueError(
            f"{value[:60]!r} cannot be a model's name; use letters, digits and . _ : / @ + - (a letter or digit first), "
            f"{_NAME_CHARS_MAX} at most"
        )
    return value


ModelName = Annotated[
    str, AfterValidator(_model_name), WithJsonSchema({"type": "string", "pattern": MODEL_NAME_PATTERN})
]


def _weights_path(value: str) -> str:
    found = remote_weights(value)
    return found.source if found is not None else value


# A path of this machine, or s3://BUCKET/PREFIX.
WeightsPath = Annotated[str, AfterValidator(_weights_path)]


class WeightsOfModelShape(ProfileSection):
    """Which weights are served, in which precision, and by which further names."""

    id: Annotated[str, Field(min_length=1)] = Field(
        description="The model's hub id, such as meta-llama/Llama-3.1-8B-Instruct."
    )
    quantization: Number = Field(default=Precision.BF16, description="Number format of the weights.")
    kv_cache: Number | None = Field(
        default=None, description="Number format of the KV cache. Unset: the engine's own choice."
    )
    path: WeightsPath = Field(
        default="",
        description="A local directory with the weights, or a GGUF file for an engine that reads those; relative to this file. "
        "Or s3://BUCKET/PREFIX: instances on AWS fetch the checkpoint from there before their engines start.",
    )
    aliases: Annotated[list[ModelName], Field(max_length=_NAMES_MAX)] = Field(
        default_factory=list, description='Further names that clients may put in "model".'
    )
    adapters: Annotated[dict[ModelName, Annotated[str, Field(min_length=1)]], Field(max_length=_NAMES_MAX)] = Field(
        default_factory=dict,
        description="LoRA adapters served beside it: the name clients use, and a hub id or a local directory (with a "
        "leading ./ or /; relative to this file).",
    )


class ModelShape(WeightsOfModelShape):
    """The fleet's one model."""

    served_name: str = Field(default="", description='What clients put in "model". Unset: the id.')


class NamedModelShape(WeightsOfModelShape):
    """One of several models; its key is what clients put in "model", and what lanes name."""

    share: Share | None = Field(
        default=None,
        description="Its share of the workload's requests. Unset: as much as each other that says none, of what is left.",
    )
    fallback: str = Field(
        default="",
        description="The model that serves its requests while none of its lanes can: without a ready replica, or refusing "
        "for load. Unset: none does.",
    )
