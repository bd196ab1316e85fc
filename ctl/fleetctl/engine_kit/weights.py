"""Precisions: whether an engine must quantize the weights while it loads them, and how it names its KV cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping

    from fleetctl.errors import KeyPath
    from fleetctl.model.catalogue import ModelCard
    from fleetctl.model.plan import LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec, ModelSpec
    from fleetctl.ports.engine import EngineCapabilities

_SIXTEEN_BIT = frozenset({Precision.BF16, Precision.FP16})

# What the names of quantized checkpoints say by custom ("...-AWQ-INT4", "...-quantized.w8a8", "...-FP8-dynamic").
_SAYS = {
    Precision.FP8: r"fp8|w8a8",
    Precision.INT8: r"int8|w8a8|w8a16|8bit",
    Precision.INT4: r"int4|w4a16|w4a8|4bit|awq|gptq",
}


def precision_errors(
    lane: LaneSpec, model: ModelSpec, card: ModelCard, capabilities: EngineCapabilities, model_key: KeyPath
) -> Iterator[ConfigError]:
    """Yield why a lane's engine has no KV cache of the model's format, or cannot make its weights while loading."""
    if error := _kv_cache_error(model.kv_cache, capabilities.kv_cache_precisions, lane.engine):
        error.key = (*model_key, "kv_cache")
        yield error
    weights = _Weights(
        name=model.path or model.id, precision=card.loaded_as(model.quantization), extra_args=lane.launch.extra_args
    )
    if error := _weights_error(card, weights, capabilities.load_time_precisions, lane.engine):
        error.key = (*model_key, "quantization")
        yield error


def load_time_method(
    plan: Plan, launch: LaunchSettings, methods: Mapping[Precision, str], *, engine: str
) -> str | None:
    """Return the engine's name for quantizing at load, or None where the checkpoint is in this precision already.

    Engines read a quantized checkpoint's method from its own config, and some refuse one that is also named on the
    command line. Raises ConfigError where the engine cannot make these weights out of a 16-bit checkpoint.
    """
    weights = _Weights(name=launch.model, precision=launch.quantization, extra_args=launch.extra_args)
    card = plan.card_loaded(launch.model)
    if error := _weights_error(card, weights, methods, engine):
        raise error
    return methods[launch.quantization] if _is_made_by_engine(card, weights) else None


def sixteen_bit_dtype(quantization: Precision) -> str | None:
    """Return the dtype flag's value for 16-bit weights, None for the rest."""
    return {Precision.BF16: "bfloat16", Precision.FP16: "float16"}.get(quantization)


def kv_cache_dtype(launch: LaunchSettings, names: Mapping[Precision, str | None], *, engine: str) -> str | None:
    """Return the engine's name for the KV cache's format; None leaves it to the engine. Raises ConfigError for others."""
    if error := _kv_cache_error(launch.kv_cache, names, engine):
        raise error
    return None if launch.kv_cache is None else names[launch.kv_cache]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """What is served, as far as its precision goes."""

    name: str  # a hub id or a directory
    precision: Precision
    extra_args: tuple[str, ...]


def _weights_error(
    card: ModelCard | None, weights: _Weights, made: Container[Precision], engine: str
) -> ConfigError | None:
    if not _is_made_by_engine(card, weights) or weights.precision in made:
        return None
    return ConfigError(
        f"{engine} cannot quantize {weights.name!r} to {weights.precision} while loading it",
        hint="name a checkpoint that is quantized already, or give the engine's own flag in launch.extra_args",
        key=("model", "quantization"),
    )


def _kv_cache_error(kv_cache: Precision | None, known: Collection[Precision], engine: str) -> ConfigError | None:
    if kv_cache is None or kv_cache in known:
        return None
    return ConfigError(
        f"{engine} has no {kv_cache} KV cache",
        hint=f"set model.kv_cache to {' or '.join(sorted(known))}, or leave it out",
        key=("model", "kv_cache"),
    )


def _is_made_by_engine(card: ModelCard | None, weights: _Weights) -> bool:
    return weights.precision not in _SIXTEEN_BIT and not _is_quantized_already(card, weights)


def _is_quantized_already(card: ModelCard | None, weights: _Weights) -> bool:
    if card is not None and card.native_precision is weights.precision:
        return True
    name = weights.name.rstrip("/").rsplit("/", 1)[-1]
    if re.search(rf"(?<![a-z0-9])(?:{_SAYS[weights.precision]})(?![0-9])", name.lower()):
        return True
    return any(word.split("=", 1)[0] in ("--quantization", "-q", "--quantize") for word in weights.extra_args)
