"""vLLM behind the Engine port."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.engine_kit import warming
from fleetctl.engine_kit.last_words import last_words
from fleetctl.engine_kit.start_faults import start_fault
from fleetctl.ports.engine import LaunchCommand, VersionSource
from fleetctl_vllm import diagnosis, signals
from fleetctl_vllm.capabilities import CAPABILITIES
from fleetctl_vllm.container import IMAGE
from fleetctl_vllm.launch import ENVIRONMENT, arguments, member_arguments

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class VllmEngine:
    """Runs models on vLLM. Its executable is FLEETCTL_VLLM, or `vllm` on the PATH."""

    name = "vllm"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = signals.PREFIX
    program_env = "FLEETCTL_VLLM"
    api_key_env = "VLLM_API_KEY"  # never --api-key: everybody on the machine can read arguments
    capabilities = CAPABILITIES
    container = IMAGE
    version = VersionSource(path="/version", distribution="vllm")

    def __init__(self, executable: str = "") -> None:
        self.program = executable or os.environ.get(self.program_env, "") or "vllm"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `vllm serve ...` with the lane's settings, listening on host:port."""
        settings, program = lane_plan.launch, lane.engine_executable or self.program
        return LaunchCommand(
            argv=arguments(program, plan, settings, host=host, port=port),
            env=ENVIRONMENT | settings.env,
            member_argv=member_arguments(program, plan, settings) if settings.pipeline_parallel > 1 else (),
        )

    def queue_limit(self, settings: LaunchSettings) -> None:
        """Return None: the gateway queues, so --max-num-queued-reqs stays unset."""
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
