"""vLLM behind the Engine port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit.program import EngineProgram
from fleetctl.ports.engine import LaunchCommand, VersionSource
from fleetctl_vllm.capabilities import CAPABILITIES
from fleetctl_vllm.container import IMAGE
from fleetctl_vllm.diagnosis import MESSAGES
from fleetctl_vllm.launch import ENVIRONMENT, arguments, member_arguments
from fleetctl_vllm.signals import PREFIX, RUNNING, WAITING, read

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class VllmEngine(EngineProgram):
    """Runs models on vLLM. Its executable is FLEETCTL_VLLM, or `vllm` on the PATH."""

    name = "vllm"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = PREFIX
    request_gauges: tuple[str, ...] = (RUNNING, WAITING)
    program_env = "FLEETCTL_VLLM"
    default_program = "vllm"
    api_key_env = "VLLM_API_KEY"  # never --api-key: everybody on the machine can read arguments
    capabilities = CAPABILITIES
    container = IMAGE
    messages = MESSAGES
    signals = staticmethod(read)
    version = VersionSource(path="/version", distribution="vllm")

    def queue_limit(self, settings: LaunchSettings) -> int | None:
        """Return --max-num-queued-reqs, the running ones included; None: unset, for the gateway queues."""
        return settings.max_queued_requests

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `vllm serve ...` with the lane's settings, listening on host:port."""
        settings, program = lane_plan.launch, lane.engine_executable or self.program
        return LaunchCommand(
            argv=arguments(program, plan, settings, host=host, port=port),
            env=ENVIRONMENT | settings.env,
            member_argv=member_arguments(program, plan, settings) if settings.pipeline_parallel > 1 else (),
        )
