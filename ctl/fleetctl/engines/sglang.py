"""SGLang: `python3 -m sglang.launch_server`, flags and series of 0.5.23."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.engines import reading, warming, weights
from fleetctl.engines.arguments import Options, command_line
from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Precision
from fleetctl.ports.engine import LaunchCommand
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec

_AT_LOAD = {Precision.FP8: "fp8"}
_SAME = {
    "--model": "--model-path",
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
}
# --mem-fraction-static is weights and KV pool only, where the plan's fraction covers activations too. SGLang's own
# default leaves a tenth for those.
_MEM_FRACTION_STATIC_MAX = 0.9


class SglangEngine:
    """Runs models on SGLang. Its interpreter is FLEETCTL_SGLANG_PYTHON, or `python3` on the PATH."""

    name = "sglang"
    health_path = "/health"
    metrics_path = "/metrics"
    api_key_env = ""  # SGLang takes a key only as an argument, which everybody on the machine can read; so it gets none

    def __init__(self, interpreter: str = "") -> None:
        self._interpreter = interpreter or os.environ.get("FLEETCTL_SGLANG_PYTHON", "") or "python3"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python3 -m sglang.launch_server ...` with the lane's settings, listening on host:port."""
        del lane
        settings = lane_plan.launch
        argv = command_line(
            (self._interpreter, "-m", "sglang.launch_server"),
            _options(plan, settings) | {"--host": host, "--port": port},
            settings.extra_args,
            same=_SAME,
        )
        return LaunchCommand(argv=argv, env=dict(settings.env))

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page; figures of several schedulers are added, the fullest token pool counts."""
        page = parse(exposition)
        return reading.signals(
            running=page.total("sglang:num_running_reqs"),
            waiting=page.total("sglang:num_queue_reqs"),
            kv_usage=page.highest("sglang:token_usage"),
            preemptions=page.total("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
            prompt_tokens=page.total("sglang:prompt_tokens_total"),
            output_tokens=page.total("sglang:generation_tokens_total"),
        )

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    return {
        "--model-path": settings.model,
        "--served-model-name": settings.served_name,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),
        "--quantization": weights.load_time_method(plan, settings, _AT_LOAD, engine="SGLang"),
        "--kv-cache-dtype": _kv_cache(settings),
        "--max-running-requests": settings.max_num_seqs,
        "--context-length": settings.max_model_len,
        "--chunked-prefill-size": settings.max_num_batched_tokens,
        "--mem-fraction-static": min(settings.gpu_memory_utilization, _MEM_FRACTION_STATIC_MAX),
        "--disable-radix-cache": not settings.prefix_caching,
        "--max-queued-requests": settings.max_queued_requests,
        # SGLang serves the higher priority first; the gateway means vLLM's order, the lower first.
        "--enable-priority-scheduling": settings.priority_scheduling,
        "--schedule-low-priority-values-first": settings.priority_scheduling,
        "--enable-metrics": True,  # without it there is no /metrics at all
    }


def _kv_cache(settings: LaunchSettings) -> str | None:
    match settings.kv_cache:
        case None:
            return None
        case Precision.BF16:
            return "bfloat16"
        case Precision.FP8:
            return "fp8_e4m3"
        case Precision.FP16 | Precision.INT8 | Precision.INT4:
            raise ConfigError(
                f"SGLang has no {settings.kv_cache} KV cache", hint="set model.kv_cache to fp8 or bf16, or leave it out"
            )
