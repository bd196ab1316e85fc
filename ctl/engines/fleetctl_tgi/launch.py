"""The TGI launcher's command line and environment."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.model.serving import Speculation, SpeculationMethod

if TYPE_CHECKING:
    from fleetctl.model.plan import LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec

# TGI's default is the weights' own dtype, and 16 bits have no other name.
KV_CACHE_DTYPES = {Precision.BF16: None, Precision.FP16: None, Precision.FP8: "fp8_e4m3fn"}
LOAD_TIME_METHODS = {Precision.FP8: "fp8", Precision.INT8: "eetq", Precision.INT4: "bitsandbytes-nf4"}
# Whose prompts are not cut into chunks: a picture's tokens belong together.
_SEES = re.compile(r"vision|llava|idefics|paligemma|mllama|smolvlm|[-_]vl(?![a-z])")
_CONCURRENT_REQUESTS_DEFAULT = 128  # the launcher's own


def arguments(executable: str, plan: Plan, settings: LaunchSettings, *, host: str, port: int) -> tuple[str, ...]:
    """Return `text-generation-launcher ...` with these settings, listening on host:port."""
    return command_line(
        (executable,),
        _options(plan, settings) | _sockets(host, port),
        settings.extra_args,
        same={"-p": "--port", "--max-input-length": "--max-input-tokens"},
    )


def environment(settings: LaunchSettings) -> dict[str, str]:
    """Return what has no flag: the launcher decides on prefix caching by the model unless this says otherwise."""
    return {} if settings.prefix_caching else {"PREFIX_CACHING": "0"}


def concurrent_requests_max(settings: LaunchSettings) -> int:
    """Return how many requests TGI takes at once, running and queued: over it TGI answers 429."""
    return settings.max_queued_requests or max(_CONCURRENT_REQUESTS_DEFAULT, 2 * settings.max_num_seqs)


def check_prefill(lane: LaneSpec, settings: LaunchSettings) -> None:
    """Refuse a prefill batch smaller than the longest prompt where TGI does not read prompts in chunks: it would not start.

    It does by itself, but for models that see, and not with PREFILL_CHUNKING=0. Raises ConfigError.
    """
    longest, batch = settings.max_model_len - 1, settings.max_num_batched_tokens
    is_off = settings.env.get("PREFILL_CHUNKING", "1").lower() not in {"1", "true"}
    if batch >= longest or not (is_off or _SEES.search(settings.model.lower())):
        return
    why = "PREFILL_CHUNKING is off" if is_off else f"{settings.model} sees pictures"
    raise ConfigError(
        f"lane {lane.name}: tgi reads a prompt whole where {why}, and its prefill batch of {batch} tokens is below the longest "
        f"prompt of {longest}",
        hint=f"pin launch.max_num_batched_tokens to {longest} or more, or launch.max_model_len to {batch + 1} or less",
        key=("lanes", lane.name, "launch", "max_num_batched_tokens"),
    )


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    quantize = weights.load_time_method(plan, settings, LOAD_TIME_METHODS, engine="TGI")
    return {
        "--model-id": settings.model,
        "--num-shard": settings.tensor_parallel,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),  # refused beside --quantize
        "--quantize": quantize,
        "--kv-cache-dtype": weights.kv_cache_dtype(settings, KV_CACHE_DTYPES, engine="TGI"),
        # The prompt must leave room for one token of output.
        "--max-input-tokens": settings.max_model_len - 1,
        "--max-total-tokens": settings.max_model_len,
        "--max-batch-prefill-tokens": settings.max_num_batched_tokens,
        "--max-batch-size": settings.max_num_seqs,
        "--speculate": _speculate(settings.speculation),
        "--max-concurrent-requests": concurrent_requests_max(settings),
        "--cuda-memory-fraction": settings.gpu_memory_utilization,
        "--graceful-termination-timeout": math.ceil(settings.shutdown_timeout_s),
        "--usage-stats": "off",
    }


def _sockets(host: str, port: int) -> Options:
    """Return every listener's place: the launcher's fixed defaults would collide between two replicas of one machine."""
    return {
        "--hostname": host,
        "--port": port,
        "--prometheus-port": _beside(port, 10_000),
        "--master-port": _beside(port, 20_000),
        "--shard-uds-path": f"/tmp/fleetctl-tgi-{port}",  # noqa: S108  # the launcher's own default is there too
    }


def _beside(port: int, distance: int) -> int:
    return 1024 + (port - 1024 + distance) % (65536 - 1024)


def _speculate(guess: Speculation | None) -> int | None:
    """Return how many tokens are guessed: by n-grams, unless the checkpoint has a head of its own."""
    return guess.tokens if guess is not None and guess.method is SpeculationMethod.NGRAM else None
