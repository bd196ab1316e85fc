"""Text Generation Inference: `text-generation-launcher`, flags and series of 3.3.7."""

from __future__ import annotations

import math
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

_AT_LOAD = {Precision.FP8: "fp8", Precision.INT8: "eetq", Precision.INT4: "bitsandbytes-nf4"}
_CONCURRENT_REQUESTS_DEFAULT = 128  # the launcher's own


class TgiEngine:
    """Runs models on TGI. Its executable is FLEETCTL_TGI, or `text-generation-launcher` on the PATH."""

    name = "tgi"
    health_path = "/health"
    metrics_path = "/metrics"
    api_key_env = "API_KEY"  # the launcher reads it as --api-key, which everybody on the machine could read

    def __init__(self, executable: str = "") -> None:
        self._executable = executable or os.environ.get("FLEETCTL_TGI", "") or "text-generation-launcher"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `text-generation-launcher ...` with the lane's settings, listening on host:port."""
        del lane
        settings = lane_plan.launch
        argv = command_line(
            (self._executable,),
            _options(plan, settings) | _sockets(host, port),
            settings.extra_args,
            same={"-p": "--port", "--max-input-length": "--max-input-tokens"},
        )
        # Prefix caching has no flag: the launcher decides by the model unless this says otherwise.
        env = {} if settings.prefix_caching else {"PREFIX_CACHING": "0"}
        return LaunchCommand(argv=argv, env=env | settings.env)

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page. TGI shows a series only once it was touched, so a page is INVALID until the first request.

        KV usage is the running batch's token budget over the cache's: TGI reserves a request's whole budget up front,
        and so never preempts.
        """
        page = parse(exposition)
        used = page.total("tgi_batch_current_max_tokens")
        there = page.total("tgi_batch_max_total_tokens")
        return reading.signals(
            running=page.total("tgi_batch_current_size"),
            waiting=page.total("tgi_queue_size"),
            kv_usage=used / there if used is not None and there else None,
            preemptions=0.0,
            prompt_tokens=page.total("tgi_request_input_length_sum"),
            output_tokens=page.total("tgi_request_generated_tokens_sum"),
        )

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)


def _options(plan: Plan, settings: LaunchSettings) -> Options:
    quantize = weights.load_time_method(plan, settings, _AT_LOAD, engine="TGI")
    return {
        "--model-id": settings.model,
        "--num-shard": settings.tensor_parallel,
        "--dtype": weights.sixteen_bit_dtype(settings.quantization),  # refused beside --quantize
        "--quantize": quantize,
        "--kv-cache-dtype": _kv_cache(settings),
        # The prompt must leave room for one token of output.
        "--max-input-tokens": settings.max_model_len - 1,
        "--max-total-tokens": settings.max_model_len,
        "--max-batch-prefill-tokens": settings.max_num_batched_tokens,
        "--max-batch-size": settings.max_num_seqs,
        "--max-concurrent-requests": admitted_requests(settings),
        "--cuda-memory-fraction": settings.gpu_memory_utilization,
        "--graceful-termination-timeout": math.ceil(settings.shutdown_timeout_s),
        "--usage-stats": "off",
    }


def _kv_cache(settings: LaunchSettings) -> str | None:
    match settings.kv_cache:
        case None | Precision.BF16 | Precision.FP16:
            return None  # TGI's default is the weights' dtype
        case Precision.FP8:
            return "fp8_e4m3fn"
        case Precision.INT8 | Precision.INT4:
            raise ConfigError(
                f"TGI has no {settings.kv_cache} KV cache", hint="set model.kv_cache to fp8, or leave it out"
            )


def admitted_requests(settings: LaunchSettings) -> int:
    """Return how many requests TGI takes at once, running and queued: over it TGI answers 429."""
    if settings.max_queued_requests is not None:
        return settings.max_num_seqs + settings.max_queued_requests
    return max(_CONCURRENT_REQUESTS_DEFAULT, 2 * settings.max_num_seqs)


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
