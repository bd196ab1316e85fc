"""SGLang's command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import weights
from fleetctl.engine_kit.arguments import Options, command_line
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from fleetctl.model.plan import LaunchSettings, Plan

KV_CACHE_DTYPES = {Precision.FP8: "fp8_e4m3", Precision.BF16: "bfloat16"}
LOAD_TIME_METHODS = {Precision.FP8: "fp8"}
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
        _options(plan, settings) | {"--mem-fraction-static": static, "--host": host, "--port": port},
        settings.extra_args,
        same=_SAME,
    )


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    return {
        "--model-path": settings.model,
        "--served-model-name": settings.served_name,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),
        "--quantization": weights.load_time_method(plan, settings, LOAD_TIME_METHODS, engine="SGLang"),
        "--kv-cache-dtype": weights.kv_cache_dtype(settings, KV_CACHE_DTYPES, engine="SGLang"),
        "--max-running-requests": settings.max_num_seqs,
        "--context-length": settings.max_model_len,
        "--chunked-prefill-size": settings.max_num_batched_tokens,
        "--disable-radix-cache": not settings.prefix_caching,
        # Running requests are preempted for others only where those are ten or more above them: tiers are one apart.
        "--enable-priority-scheduling": settings.priority_scheduling,
        "--enable-metrics": True,  # without it there is no /metrics at all
        "--enable-cache-report": True,  # else nobody learns how much of a prompt was cached
    }
