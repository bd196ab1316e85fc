"""SGLang's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.model.catalogue import Precision
from fleetctl.model.serving import Speculation, SpeculationMethod

if TYPE_CHECKING:
    from fleetctl.model.plan import LaunchSettings, Plan

KV_CACHE_DTYPES = {Precision.FP8: "fp8_e4m3", Precision.BF16: "bfloat16"}
LOAD_TIME_METHODS = {Precision.FP8: "fp8"}
# By the notations of engine_kit/dialects; held to SGLang's own parser (tests/engines/test_sglang_parser.py).
TOOL_CALL_PARSERS = {
    "llama3": "llama3", "llama4": "pythonic", "qwen3-coder": "qwen3_coder", "hermes": "qwen", "mistral": "mistral",
    "gpt-oss": "gpt-oss", "deepseek-v3.1": "deepseekv31", "deepseek-v3": "deepseekv3", "kimi-k2": "kimi_k2", "glm-4.5": "glm45",
}  # fmt: skip
REASONING_PARSERS = {
    "qwen3": "qwen3", "deepseek-r1": "deepseek-r1", "gpt-oss": "gpt-oss", "mistral": "mistral", "kimi-k2": "kimi_k2",
    "glm-4.5": "glm45",
}  # fmt: skip
_ALGORITHMS = {SpeculationMethod.NGRAM: "NGRAM", SpeculationMethod.EAGLE: "EAGLE", SpeculationMethod.EAGLE3: "EAGLE3"}
_SAME = {
    "--model": "--model-path",
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
}
# --mem-fraction-static is weights and KV pool only, where the plan's fraction covers activations too. SGLang's own
# default leaves a tenth for those.
_MEM_FRACTION_STATIC_MAX = 0.9


def arguments(  # what an engine's command is made of
    interpreter: str, plan: Plan, settings: LaunchSettings, *, is_share_pinned: bool, host: str, port: int
) -> tuple[str, ...]:
    """Return `python3 -m sglang.launch_server ...` with these settings, listening on host:port.

    A share of memory that the profile pins is given as it is.
    """
    share = settings.gpu_memory_utilization
    static = share if is_share_pinned else min(share, _MEM_FRACTION_STATIC_MAX)
    return command_line(
        (interpreter, "-m", "sglang.launch_server"),
        _options(plan, settings, static) | {"--host": host, "--port": port},
        settings.extra_args,
        same=_SAME,
    )


def _options(plan: Plan, settings: LaunchSettings, static: float) -> Options:
    return {
        "--model-path": settings.model,
        "--served-model-name": settings.served_name,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--pipeline-parallel-size": settings.pipeline_parallel_local if settings.pipeline_parallel_local > 1 else None,
        "--data-parallel-size": settings.data_parallel if settings.data_parallel > 1 else None,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),
        "--quantization": weights.load_time_method(plan, settings, LOAD_TIME_METHODS, engine="SGLang"),
        "--kv-cache-dtype": weights.kv_cache_dtype(settings, KV_CACHE_DTYPES, engine="SGLang"),
        "--max-running-requests": settings.max_num_seqs,
        "--context-length": settings.max_model_len,
        "--chunked-prefill-size": settings.max_num_batched_tokens,
        "--mem-fraction-static": static,
        "--disable-radix-cache": not settings.prefix_caching,
        "--tool-call-parser": TOOL_CALL_PARSERS.get(settings.tool_call_parser, settings.tool_call_parser) or None,
        "--reasoning-parser": REASONING_PARSERS.get(settings.reasoning_parser, settings.reasoning_parser) or None,
        "--stream-interval": settings.stream_interval if settings.stream_interval > 1 else None,
        "--max-queued-requests": settings.max_queued_requests,
        "--ep-size": settings.tensor_parallel if settings.expert_parallel else None,
        **_speculation(settings.speculation),
        # Running requests are preempted for others only where those are ten or more above them: tiers are one apart.
        "--enable-priority-scheduling": settings.priority_scheduling,
        "--enable-metrics": True,  # without it there is no /metrics at all
        "--enable-cache-report": True,  # else nobody learns how much of a prompt was cached
    }


def _speculation(guess: Speculation | None) -> Options:
    if guess is None or guess.method is SpeculationMethod.NONE:
        return {}
    options: Options = {
        "--speculative-algorithm": _ALGORITHMS[guess.method],
        "--speculative-num-draft-tokens": guess.tokens,
    }
    if guess.method is SpeculationMethod.NGRAM:
        return options
    # One guess after another, without a tree of them: as many steps of the head as tokens, the first of which is given.
    chain: Options = {"--speculative-num-steps": max(1, guess.tokens - 1), "--speculative-eagle-topk": 1}
    return options | chain | {"--speculative-draft-model-path": guess.model}
