"""SGLang behind the Engine port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit.program import EngineProgram
from fleetctl.ports.engine import LaunchCommand, VersionSource
from fleetctl_sglang.capabilities import CAPABILITIES
from fleetctl_sglang.container import IMAGE
from fleetctl_sglang.diagnosis import MESSAGES
from fleetctl_sglang.launch import arguments
from fleetctl_sglang.signals import PREFIX, RUNNING, WAITING, read

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class SglangEngine(EngineProgram):
    """Runs models on SGLang. Its interpreter is FLEETCTL_SGLANG_PYTHON, or `python3` on the PATH."""

    name = "sglang"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = PREFIX
    request_gauges: tuple[str, ...] = (RUNNING, WAITING)
    program_env = "FLEETCTL_SGLANG_PYTHON"
    default_program = "python3"
    api_key_env = ""  # SGLang takes a key only as an argument, which everybody on the machine can read; so it gets none
    capabilities = CAPABILITIES
    container = IMAGE
    messages = MESSAGES
    signals = staticmethod(read)
    version = VersionSource(path="/server_info", distribution="sglang")

    def queue_limit(self, settings: LaunchSettings) -> int | None:
        """Return --max-queued-requests, the running ones left out; None: unset, for the gateway queues."""
        return settings.max_queued_requests

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python3 -m sglang.launch_server ...` with the lane's settings, listening on host:port."""
        is_share_pinned = lane.launch.gpu_memory_utilization is not None
        argv = arguments(
            lane.engine_executable or self.program,
            plan,
            lane_plan.launch,
            is_share_pinned=is_share_pinned,
            host=host,
            port=port,
        )
        return LaunchCommand(argv=argv, env=dict(lane_plan.launch.env))
