"""The emulator: a process that looks like one of the real engines from outside."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fleetctl import codec
from fleetctl.engines import reading, tgi, vllm, warming
from fleetctl.engines.arguments import Options, command_line
from fleetctl.engines.sglang import SglangEngine
from fleetctl.model.profile import EngineKind
from fleetctl.ports.engine import LaunchCommand
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import Engine


class EmulatedEngine:
    """Runs the emulator with this Python; it wears a flavour, and its metrics are read as that flavour's."""

    name = "emulator"
    health_path = "/health"
    metrics_path = "/metrics"
    api_key_env = ""

    def __init__(self) -> None:
        self._by_prefix: dict[str, Engine] = {
            "vllm:": vllm.VllmEngine(),
            "tgi_": tgi.TgiEngine(),
            "sglang:": SglangEngine(),
        }

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python -m fleetctl.emulator ...` with the lane's settings, listening on host:port."""
        argv = command_line(
            (sys.executable, "-m", "fleetctl.emulator"),
            _settings(plan, lane_plan) | _behaviour(lane, lane_plan.launch) | {"--host": host, "--port": port},
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
    card, gpu = plan.model_card, lane_plan.gpu_spec or plan.gpu_spec
    return {
        # The emulator times a model by its shape, so it wants the name the shape is known by, not a directory.
        "--model": card.id if card else settings.model,
        # With the very figures of the plan at hand it need not look anything up, nor can it find other ones.
        "--model-card": codec.encode(card).decode() if card else None,
        "--served-model-name": settings.served_name,
        "--gpu": lane_plan.gpu,
        "--gpu-spec": codec.encode(gpu).decode() if gpu else None,
        "--tensor-parallel": settings.tensor_parallel,
        "--quantization": settings.quantization.value,
        "--kv-cache-dtype": settings.kv_cache.value if settings.kv_cache else None,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": max(settings.max_num_batched_tokens, settings.max_num_seqs),
        "--max-model-len": settings.max_model_len,
        "--gpu-memory-utilization": settings.gpu_memory_utilization,
        "--no-prefix-caching": not settings.prefix_caching,
        "--priority-scheduling": settings.priority_scheduling,
        "--shutdown-timeout-s": settings.shutdown_timeout_s,
    }


def _behaviour(lane: LaneSpec, settings: LaunchSettings) -> Options:
    return {
        "--flavour": lane.emulator.flavour.value,
        "--seed": lane.emulator.seed,
        "--startup-s": lane.emulator.startup_s,
        "--speed": lane.emulator.speed,
        "--max-queued-requests": _queue(lane.emulator.flavour, settings),
        "--schedule-low-priority-values-first": (
            settings.priority_scheduling and lane.emulator.flavour is EngineKind.SGLANG
        ),
    }


def _queue(flavour: EngineKind, settings: LaunchSettings) -> int | None:
    """Return the limit as the flavour's own flag counts it."""
    match flavour:
        case EngineKind.TGI:
            return tgi.admitted_requests(settings)
        case EngineKind.SGLANG:
            return settings.max_queued_requests
        case EngineKind.VLLM | EngineKind.EMULATOR:
            return vllm.admitted_requests(settings)
