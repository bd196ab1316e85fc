"""vLLM: `vllm serve`, flags and series of 0.29 to 0.33."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from fleetctl.engines import reading, warming, weights
from fleetctl.engines.arguments import Options, command_line
from fleetctl.model.catalogue import Precision
from fleetctl.ports.engine import LaunchCommand
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec

_KV_CACHE = {
    Precision.BF16: "bfloat16",
    Precision.FP16: "float16",
    Precision.FP8: "fp8",
    Precision.INT8: "int8_per_token_head",
    Precision.INT4: "int4_per_token_head",
}
_AT_LOAD = {Precision.FP8: "fp8", Precision.INT8: "int8_per_channel_weight_only"}
_SAME = {
    "-tp": "--tensor-parallel-size",
    "-q": "--quantization",
    "--kv-cache-memory": "--kv-cache-memory-bytes",
    "--no-enable-prefix-caching": "--enable-prefix-caching",
    "--no-enable-chunked-prefill": "--enable-chunked-prefill",
}
# vLLM reports usage to its makers unless told not to.
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class VllmEngine:
    """Runs models on vLLM. Its executable is FLEETCTL_VLLM, or `vllm` on the PATH."""

    name = "vllm"
    health_path = "/health"
    metrics_path = "/metrics"
    api_key_env = "VLLM_API_KEY"  # never --api-key: everybody on the machine can read arguments

    def __init__(self, executable: str = "") -> None:
        self._executable = executable or os.environ.get("FLEETCTL_VLLM", "") or "vllm"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `vllm serve ...` with the lane's settings, listening on host:port."""
        del lane
        settings = lane_plan.launch
        argv = command_line(
            (self._executable, "serve", settings.model),
            _options(plan, settings) | {"--host": host, "--port": port},
            settings.extra_args,
            same=_SAME,
        )
        return LaunchCommand(argv=argv, env=_QUIET | settings.env)

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page; figures of several engine cores (data parallel) are added, the fullest KV cache counts."""
        page = parse(exposition)
        return reading.signals(
            running=page.total("vllm:num_requests_running"),
            waiting=page.total("vllm:num_requests_waiting"),
            kv_usage=page.highest("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            preemptions=page.total("vllm:num_preemptions_total", "vllm:num_preemptions"),
            prompt_tokens=page.total("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
            output_tokens=page.total("vllm:generation_tokens_total", "vllm:generation_tokens"),
        )

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    caching = "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching"
    return {
        "--served-model-name": settings.served_name,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),
        "--quantization": weights.load_time_method(plan, settings, _AT_LOAD, engine="vLLM"),
        "--kv-cache-dtype": _KV_CACHE[settings.kv_cache] if settings.kv_cache else None,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-model-len": settings.max_model_len,
        # vLLM refuses a step that could not hold one token of every sequence.
        "--max-num-batched-tokens": max(settings.max_num_batched_tokens, settings.max_num_seqs),
        "--gpu-memory-utilization": settings.gpu_memory_utilization,
        "--enable-chunked-prefill": True,
        caching: True,
        "--scheduling-policy": "priority" if settings.priority_scheduling else "fcfs",
        "--max-num-queued-reqs": admitted_requests(settings),
        "--shutdown-timeout": math.ceil(settings.shutdown_timeout_s),
    }


def admitted_requests(settings: LaunchSettings) -> int | None:
    """Return how many requests vLLM takes at once: it counts the running among the queued. None: no limit."""
    queued = settings.max_queued_requests
    return None if queued is None else queued + settings.max_num_seqs
