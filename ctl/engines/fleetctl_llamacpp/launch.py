"""The command line of llama.cpp's server."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from fleetctl.model.plan import LaunchSettings

KV_CACHE_TYPES = {
    Precision.BF16: "bf16",
    Precision.FP16: "f16",
    Precision.INT8: "q8_0",
    Precision.INT4: "q4_0",
}
LAUNCHER = str(Path(__file__).parent / "launcher")
# By environment and not by flag: builds that do not have these yet ignore them, and would refuse a flag.
ENVIRONMENT = {
    "LLAMA_ARG_FIT": "off",  # the plan has decided on every size; what does not fit is to fail, not to shrink
    "LLAMA_ARG_SSE_PING_INTERVAL": "-1",  # a ping would pass for a sign of life of a stream that stands still
}
_QUANTIZED = frozenset({Precision.INT8, Precision.INT4})
_GPU_LAYERS_ALL = 999  # no model has as many; older builds do not know the word "all"
_PYTHON = re.compile(r"python[0-9.]*")
_SAME = {
    "-m": "--model",
    "-a": "--alias",
    "-c": "--ctx-size",
    "-np": "--parallel",
    "-b": "--batch-size",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "-fa": "--flash-attn",
    "-ngl": "--n-gpu-layers",
    "--gpu-layers": "--n-gpu-layers",
    "-sm": "--split-mode",
    "-kvu": "--no-kv-unified",
    "--kv-unified": "--no-kv-unified",
    "-no-kvu": "--no-kv-unified",
    "--cache-prompt": "--no-cache-prompt",
    "--ui": "--no-webui",
    "--no-ui": "--no-webui",
    "--webui": "--no-webui",
}


def command(program: str) -> tuple[str, ...]:
    """Return how a program is started: itself, or by a Python the launcher of xllamacpp's server."""
    return (program, LAUNCHER) if _PYTHON.fullmatch(PurePath(program).name) else (program,)


def arguments(settings: LaunchSettings, *, host: str, port: int) -> tuple[str, ...]:
    """Return the server's arguments for these settings, listening on host:port.

    Raises ConfigError for a name that the server would take for several.
    """
    return command_line((), _options(settings) | {"--host": host, "--port": port}, settings.extra_args, same=_SAME)


def _options(settings: LaunchSettings) -> Options:
    if "," in settings.served_name:
        raise ConfigError(
            f"llamacpp takes a comma in the name {settings.served_name!r} for the border of two names",
            hint="set model.served_name to one without",
            key=("model", "served_name"),
        )
    kv_cache = weights.kv_cache_dtype(settings, KV_CACHE_TYPES, engine="llamacpp")
    return {
        "--model": settings.model,
        "--alias": settings.served_name,
        # The context is shared out among the slots, once and for all: each request has so much and no more.
        "--ctx-size": settings.max_model_len * settings.max_num_seqs,
        "--parallel": settings.max_num_seqs,
        "--no-kv-unified": True,
        "--batch-size": settings.max_num_batched_tokens,
        "--cache-type-k": kv_cache,
        "--cache-type-v": kv_cache,
        "--flash-attn": "on" if settings.kv_cache in _QUANTIZED else None,  # quantized values have no other kernel
        "--n-gpu-layers": _GPU_LAYERS_ALL,
        # By default the layers are dealt out, and the GPUs work one after another.
        "--split-mode": "row" if settings.tensor_parallel > 1 else None,
        "--no-cache-prompt": not settings.prefix_caching,
        "--metrics": True,  # without it there is no /metrics at all
        "--no-webui": True,
    }
