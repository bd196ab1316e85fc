"""vLLM's command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl import codec
from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.model.catalogue import Precision
from fleetctl.model.node import LEADER_HOST, NODE_RANK
from fleetctl.model.serving import PerformanceMode, Speculation, SpeculationMethod

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
# By the notations of engine_kit/dialects; held to vLLM's own registries (tests/engines/test_vllm_parser.py).
TOOL_CALL_PARSERS = {
    "llama3": "llama3_json", "llama4": "llama4_pythonic", "qwen3-coder": "qwen3_coder", "hermes": "hermes", "mistral": "mistral",
    "gpt-oss": "openai", "deepseek-v3.1": "deepseek_v31", "deepseek-v3": "deepseek_v3", "kimi-k2": "kimi_k2", "glm-4.5": "glm45",
}  # fmt: skip
REASONING_PARSERS = {
    "qwen3": "qwen3", "deepseek-r1": "deepseek_r1", "gpt-oss": "openai_gptoss", "mistral": "mistral", "kimi-k2": "kimi_k2",
    "glm-4.5": "glm45",
}  # fmt: skip
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
    "--no-enable-auto-tool-choice": "--enable-auto-tool-choice",
    "--no-enable-expert-parallel": "--enable-expert-parallel",
    "-ep": "--enable-expert-parallel",
    "-sc": "--speculative-config",
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
        "--nnodes": settings.pipeline_parallel,
        "--node-rank": rank,
        "--master-addr": LEADER_HOST,
    }


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    stages = settings.pipeline_parallel * settings.pipeline_parallel_local
    caching = "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching"
    return {
        "--served-model-name": settings.served_name,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--pipeline-parallel-size": stages if stages > 1 else None,
        "--data-parallel-size": settings.data_parallel if settings.data_parallel > 1 else None,
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
        "--enable-auto-tool-choice": bool(settings.tool_call_parser),
        "--tool-call-parser": TOOL_CALL_PARSERS.get(settings.tool_call_parser, settings.tool_call_parser) or None,
        "--reasoning-parser": REASONING_PARSERS.get(settings.reasoning_parser, settings.reasoning_parser) or None,
        "--stream-interval": settings.stream_interval if settings.stream_interval > 1 else None,
        "--performance-mode": _performance_mode(settings),
        "--long-prefill-token-threshold": settings.long_prefill_tokens,
        "--max-num-queued-reqs": settings.max_queued_requests,
        "--enable-expert-parallel": settings.expert_parallel,
        "--speculative-config": _speculative_config(settings.speculation),
        "--enable-prompt-tokens-details": True,  # else nobody learns how much of a prompt was cached
        "--enable-lora": bool(settings.adapters),
        "--lora-modules": tuple(f"{name}={where}" for name, where in settings.adapters.items()),
        "--max-lora-rank": settings.adapter_rank or None,
        "--max-loras": settings.adapter_slots or None,
        "--shutdown-timeout": math.ceil(settings.shutdown_timeout_s),
    }


def _performance_mode(settings: LaunchSettings) -> str | None:
    """Return the mode's name; balanced is vLLM's own default, and older ones have no such flag."""
    return settings.performance_mode if settings.performance_mode is not PerformanceMode.BALANCED else None


def _speculative_config(guess: Speculation | None) -> str | None:
    if guess is None or guess.method is SpeculationMethod.NONE:
        return None
    config: dict[str, str | int] = {"method": guess.method.value, "num_speculative_tokens": guess.tokens}
    if guess.method is SpeculationMethod.NGRAM:
        # As long as what is guessed: shorter matches of two tokens are tried after longer ones.
        return codec.encode(config | {"prompt_lookup_max": max(2, guess.tokens), "prompt_lookup_min": 2}).decode()
    return codec.encode(config | {"model": guess.model}).decode()
