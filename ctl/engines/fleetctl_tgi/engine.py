"""TGI behind the Engine port."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.engine_kit import warming
from fleetctl.engine_kit.last_words import last_words
from fleetctl.engine_kit.start_faults import start_fault
from fleetctl.ports.engine import LaunchCommand, VersionSource
from fleetctl_tgi import diagnosis, signals
from fleetctl_tgi.capabilities import CAPABILITIES
from fleetctl_tgi.container import IMAGE
from fleetctl_tgi.launch import arguments, concurrent_requests_max, environment

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class TgiEngine:
    """Runs models on TGI. Its executable is FLEETCTL_TGI, or `text-generation-launcher` on the PATH."""

    name = "tgi"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = signals.PREFIX
    program_env = "FLEETCTL_TGI"
    api_key_env = "API_KEY"  # the launcher reads it as --api-key, which everybody on the machine could read
    capabilities = CAPABILITIES
    container = IMAGE
    version = VersionSource(path="/info")

    def __init__(self, executable: str = "") -> None:
        self.program = executable or os.environ.get(self.program_env, "") or "text-generation-launcher"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `text-generation-launcher ...` with the lane's settings, listening on host:port."""
        argv = arguments(lane.engine_executable or self.program, plan, lane_plan.launch, host=host, port=port)
        return LaunchCommand(argv=argv, env=environment(lane_plan.launch) | lane_plan.launch.env)

    def queue_limit(self, settings: LaunchSettings) -> int | None:
        """Return --max-concurrent-requests, the running ones included."""
        return concurrent_requests_max(settings)

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
