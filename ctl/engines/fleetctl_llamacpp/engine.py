"""llama.cpp behind the Engine port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit.program import EngineProgram
from fleetctl.ports.engine import LaunchCommand
from fleetctl_llamacpp.capabilities import CAPABILITIES
from fleetctl_llamacpp.container import IMAGE
from fleetctl_llamacpp.diagnosis import MESSAGES
from fleetctl_llamacpp.launch import ENVIRONMENT, arguments, command
from fleetctl_llamacpp.signals import PREFIX, RUNNING, WAITING, read

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec


class LlamaCppEngine(EngineProgram):
    """Runs models on llama.cpp. Its program is FLEETCTL_LLAMACPP, or `llama-server` on the PATH; a Python runs xllamacpp's."""

    name = "llamacpp"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = PREFIX
    request_gauges: tuple[str, ...] = (RUNNING, WAITING)
    program_env = "FLEETCTL_LLAMACPP"
    default_program = "llama-server"
    api_key_env = "LLAMA_API_KEY"  # never --api-key: everybody on the machine can read arguments
    capabilities = CAPABILITIES
    container = IMAGE
    messages = MESSAGES
    signals = staticmethod(read)
    version = None  # no route says one that can be compared: builds of distributions call themselves "b0-unknown"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `llama-server ...` with the lane's settings, listening on host:port."""
        del plan
        settings = lane_plan.launch
        program = lane.engine_executable or self.program
        return LaunchCommand(
            argv=(*command(program), *arguments(settings, host=host, port=port)),
            env=ENVIRONMENT | settings.env,
            host_words=len(command(program)) - 1,
        )
