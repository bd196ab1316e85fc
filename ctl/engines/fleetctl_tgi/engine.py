"""TGI behind the Engine port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit.program import EngineProgram
from fleetctl.ports.engine import LaunchCommand, VersionSource
from fleetctl_tgi.capabilities import CAPABILITIES
from fleetctl_tgi.container import IMAGE
from fleetctl_tgi.diagnosis import MESSAGES
from fleetctl_tgi.launch import arguments, check_prefill, concurrent_requests_max, environment
from fleetctl_tgi.signals import PREFIX, RUNNING, WAITING, read

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class TgiEngine(EngineProgram):
    """Runs models on TGI. Its executable is FLEETCTL_TGI, or `text-generation-launcher` on the PATH."""

    name = "tgi"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = PREFIX
    request_gauges: tuple[str, ...] = (RUNNING, WAITING)
    program_env = "FLEETCTL_TGI"
    default_program = "text-generation-launcher"
    api_key_env = "API_KEY"  # the launcher reads it as --api-key, which everybody on the machine could read
    capabilities = CAPABILITIES
    container = IMAGE
    messages = MESSAGES
    signals = staticmethod(read)
    version = VersionSource(path="/info")

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `text-generation-launcher ...` with the lane's settings, listening on host:port.

        Raises ConfigError for a prefill batch that could not hold the longest prompt, where prompts are not read in chunks.
        """
        check_prefill(lane, lane_plan.launch)
        argv = arguments(lane.engine_executable or self.program, plan, lane_plan.launch, host=host, port=port)
        return LaunchCommand(argv=argv, env=environment(lane_plan.launch) | lane_plan.launch.env)

    def queue_limit(self, settings: LaunchSettings) -> int | None:
        """Return --max-concurrent-requests, the running ones included."""
        return concurrent_requests_max(settings)
