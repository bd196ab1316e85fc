"""The emulator: a process that looks like one of the real engines from outside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fleetctl.engines import reading, warming
from fleetctl.engines.arguments import Options, command_line
from fleetctl.engines.sglang import SglangEngine
from fleetctl.engines.tgi import TgiEngine
from fleetctl.engines.vllm import VllmEngine
from fleetctl.ports.engine import LaunchCommand
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import Engine


class EmulatedEngine:
    """Runs the emulator with this Python; it wears a flavour, and its metrics are read as that flavour's."""

    name = "emulator"
    health_path = "/health"
    metrics_path = "/metrics"
    api_key_env = ""

    def __init__(self) -> None:
        self._by_prefix: dict[str, Engine] = {"vllm:": VllmEngine(), "tgi_": TgiEngine(), "sglang:": SglangEngine()}

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python -m fleetctl.emulator ...` with the lane's settings, listening on host:port."""
        argv = command_line(
            (sys.executable, "-m", "fleetctl.emulator"),
            _settings(plan, lane_plan) | _behaviour(lane) | {"--host": host, "--port": port},
            lane_plan.launch.extra_args,
        )
        return LaunchCommand(argv=argv, env=dict(lane_plan.launch.env))

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page as the flavour whose series are on it; INVALID if nobody's are."""
        page = parse(exposition)
        for prefix, engine in self._by_prefix.items():
            if page.mentions(prefix):
                return engine.signals(exposition)
        return reading.INVALID

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)


def _settings(plan: Plan, lane_plan: LanePlan) -> Options:
    settings = lane_plan.launch
    return {
        # The emulator times a model by its shape, so it wants the name the shape is known by, not a directory.
        "--model": plan.model_card.id if plan.model_card else settings.model,
        "--served-model-name": settings.served_name,
        "--gpu": lane_plan.gpu,
        "--tensor-parallel": settings.tensor_parallel,
        "--quantization": settings.quantization.value,
        "--kv-cache-dtype": settings.kv_cache.value if settings.kv_cache else None,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--max-model-len": settings.max_model_len,
        "--gpu-memory-utilization": settings.gpu_memory_utilization,
        "--max-queued-requests": settings.max_queued_requests,
        "--shutdown-timeout-s": settings.shutdown_timeout_s,
    }


def _behaviour(lane: LaneSpec) -> Options:
    return {
        "--flavour": lane.emulator.flavour.value,
        "--seed": lane.emulator.seed,
        "--startup-s": lane.emulator.startup_s,
        "--speed": lane.emulator.speed,
    }
