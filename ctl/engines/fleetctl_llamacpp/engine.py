"""llama.cpp behind the Engine port."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.engine_kit import warming
from fleetctl.engine_kit.last_words import last_words
from fleetctl.engine_kit.start_faults import start_fault
from fleetctl.ports.engine import LaunchCommand
from fleetctl_llamacpp import diagnosis, signals
from fleetctl_llamacpp.capabilities import CAPABILITIES
from fleetctl_llamacpp.container import IMAGE
from fleetctl_llamacpp.launch import ENVIRONMENT, arguments, command

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class LlamaCppEngine:
    """Runs models on llama.cpp. Its program is FLEETCTL_LLAMACPP, or `llama-server` on the PATH; a Python runs xllamacpp's."""

    name = "llamacpp"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = signals.PREFIX
    program_env = "FLEETCTL_LLAMACPP"
    api_key_env = "LLAMA_API_KEY"  # never --api-key: everybody on the machine can read arguments
    capabilities = CAPABILITIES
    container = IMAGE
    version = None  # no route says one that can be compared: builds of distributions call themselves "b0-unknown"

    def __init__(self, program: str = "") -> None:
        self.program = program or os.environ.get(self.program_env, "") or "llama-server"

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

    def queue_limit(self, settings: LaunchSettings) -> None:
        """Return None: what finds no slot is deferred, however much that is."""
        del settings

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page."""
        return signals.read(exposition)

    def diagnose(self, log_tail: str) -> EngineFault | None:
        """Return what the end of its log says went wrong."""
        return last_words(log_tail, diagnosis.WORDS, echoes=diagnosis.ECHOES)

    def diagnose_start(self, log_tail: str, ended: tuple[NodeProcess, ...]) -> EngineFault | None:
        """Return why one that still runs will never be ready; None: it may be."""
        return start_fault(log_tail, ended, diagnosis.FAILURES, patterns=diagnosis.WORDS, echoes=diagnosis.ECHOES)

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)

    def emulation(self, lane: LaneSpec) -> None:
        """Return None: it is what it is."""
        del lane
