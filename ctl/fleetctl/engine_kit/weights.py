"""Precisions: whether an engine must quantize the weights while it loads them, and how it names its KV cache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping

    from fleetctl.model.plan import LaunchSettings, Plan
    from fleetctl.ports.engine import EngineCapabilities

_SIXTEEN_BIT = frozenset({Precision.BF16, Precision.FP16})

# What the names of quantized checkpoints say by custom ("...-AWQ-INT4", "...-quantized.w8a8", "...-FP8-dynamic").
_SAYS = {
    Precision.FP8: r"fp8|w8a8",
    Precision.INT8: r"int8|w8a8|w8a16|8bit",
    Precision.INT4: r"int4|w4a16|w4a8|4bit|awq|gptq",
}


def check_precisions(plan: Plan, launch: LaunchSettings, capabilities: EngineCapabilities, *, engine: str) -> None:
    """Raise ConfigError where an engine has no KV cache of this format, or cannot make these weights while loading."""
    _check_kv_cache(launch, capabilities.kv_cache_precisions, engine)
    _check_weights(plan, launch, capabilities.load_time_precisions, engine)


def load_time_method(
    plan: Plan, launch: LaunchSettings, methods: Mapping[Precision, str], *, engine: str
) -> str | None:
    """Return the engine's name for quantizing at load, or None where the checkpoint is in this precision already.

    Engines read a quantized checkpoint's method from its own config, and some refuse one that is also named on the
    command line. Raises ConfigError where the engine cannot make these weights out of a 16-bit checkpoint.
    """
    _check_weights(plan, launch, methods, engine)
    return methods[launch.quantization] if _is_quantized_by_engine(plan, launch) else None


def sixteen_bit_dtype(quantization: Precision) -> str | None:
    """Return the dtype flag's value for 16-bit weights, None for the rest."""
    return {Precision.BF16: "bfloat16", Precision.FP16: "float16"}.get(quantization)


def kv_cache_dtype(launch: LaunchSettings, names: Mapping[Precision, str | None], *, engine: str) -> str | None:
    """Return the engine's name for the KV cache's format; None leaves it to the engine. Raises ConfigError for others."""
    _check_kv_cache(launch, names, engine)
    return None if launch.kv_cache is None else names[launch.kv_cache]


def _check_weights(plan: Plan, launch: LaunchSettings, made: Container[Precision], engine: str) -> None:
    if _is_quantized_by_engine(plan, launch) and launch.quantization not in made:
        raise ConfigError(
            f"{engine} cannot quantize {launch.model!r} to {launch.quantization} while loading it",
            hint="name a checkpoint that is quantized already, or give the engine's own flag in launch.extra_args",
        )


def _check_kv_cache(launch: LaunchSettings, known: Collection[Precision], engine: str) -> None:
    if launch.kv_cache is not None and launch.kv_cache not in known:
        raise ConfigError(
            f"{engine} has no {launch.kv_cache} KV cache",
            hint=f"set model.kv_cache to {' or '.join(sorted(known))}, or leave it out",
        )


def _is_quantized_by_engine(plan: Plan, launch: LaunchSettings) -> bool:
    return launch.quantization not in _SIXTEEN_BIT and not _is_quantized_already(plan, launch)


def _is_quantized_already(plan: Plan, launch: LaunchSettings) -> bool:
    card = plan.model_card
    if card is not None and card.native_precision is launch.quantization:
        return True
    name = launch.model.rstrip("/").rsplit("/", 1)[-1]
    if re.search(rf"(?<![a-z0-9])(?:{_SAYS[launch.quantization]})(?![0-9])", name.lower()):
        return True
    return any(word.split("=", 1)[0] in ("--quantization", "-q", "--quantize") for word in launch.extra_args)
