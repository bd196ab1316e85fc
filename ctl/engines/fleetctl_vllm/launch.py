"""vLLM's command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.model.catalogue import Precision
from fleetctl.model.node import LEADER_HOST, NODE_RANK

if TYPE_CHECKING:
    from fleetctl.model.plan import LaunchSettings, Plan

KV_CACHE_DTYPES = {
    Precision.BF16: "bfloat16",
    Precision.FP16: "float16",
    Precision.FP8: "fp8",
    Precision.INT8: "int8_per_token_head",
    Precision.INT4: "int4_per_token_head",
}
LOAD_TIME_METHODS = {Precision.FP8: "fp8", Precision.INT8: "int8_per_channel_weight_only"}
# vLLM reports usage to its makers unless told not to.
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_SAME = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-q": "--quantization",
    "--kv-cache-memory": "--kv-cache-memory-bytes",
    "--no-enable-prefix-caching": "--enable-prefix-caching",
    "--no-enable-chunked-prefill": "--enable-chunked-prefill",
    "--no-enable-prompt-tokens-details": "--enable-prompt-tokens-details",
}


def arguments(executable: str, plan: Plan, settings: LaunchSettings, *, host: str, port: int) -> tuple[str, ...]:
    """Return `vllm serve ...` with these settings, listening on host:port."""
    return command_line(
        (executable, "serve", settings.model),
        _options(plan, settings) | _group("0", settings) | {"--host": host, "--port": port},
        settings.extra_args,
        same=_SAME,
    )


def member_arguments(executable: str, plan: Plan, settings: LaunchSettings) -> tuple[str, ...]:
    """Return the command of a replica's further machines: workers of the leader, without a server of their own."""
    return command_line(
        (executable, "serve", settings.model),
        _options(plan, settings) | _group(NODE_RANK, settings) | {"--headless": True},
        settings.extra_args,
        same=_SAME,
    )


def _group(rank: str, settings: LaunchSettings) -> Options:
    """Return what makes one engine of several machines: a pipeline stage on each, joined at the leader's address."""
    if settings.pipeline_parallel == 1:
        return {}
    return {
        "--pipeline-parallel-size": settings.pipeline_parallel,
        "--nnodes": settings.pipeline_parallel,
        "--node-rank": rank,
        "--master-addr": LEADER_HOST,
    }


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    caching = "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching"
    return {
        "--served-model-name": settings.served_name,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),
        "--quantization": weights.load_time_method(plan, settings, LOAD_TIME_METHODS, engine="vLLM"),
        "--kv-cache-dtype": weights.kv_cache_dtype(settings, KV_CACHE_DTYPES, engine="vLLM"),
        "--max-num-seqs": settings.max_num_seqs,
        "--max-model-len": settings.max_model_len,
        # vLLM refuses a step that could not hold one token of every sequence.
        "--max-num-batched-tokens": max(settings.max_num_batched_tokens, settings.max_num_seqs),
        "--gpu-memory-utilization": settings.gpu_memory_utilization,
        "--enable-chunked-prefill": True,
        caching: True,
        "--scheduling-policy": "priority" if settings.priority_scheduling else None,
        "--enable-prompt-tokens-details": True,  # else nobody learns how much of a prompt was cached
        "--shutdown-timeout": math.ceil(settings.shutdown_timeout_s),
    }
