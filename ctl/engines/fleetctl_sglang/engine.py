"""SGLang behind the Engine port."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.engine_kit import warming
from fleetctl.engine_kit.last_words import last_words
from fleetctl.engine_kit.start_faults import start_fault
from fleetctl.ports.engine import LaunchCommand, VersionSource
from fleetctl_sglang import diagnosis, signals
from fleetctl_sglang.capabilities import CAPABILITIES
from fleetctl_sglang.container import IMAGE
from fleetctl_sglang.launch import arguments

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class SglangEngine:
    """Runs models on SGLang. Its interpreter is FLEETCTL_SGLANG_PYTHON, or `python3` on the PATH."""

    name = "sglang"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = signals.PREFIX
    program_env = "FLEETCTL_SGLANG_PYTHON"
    api_key_env = ""  # SGLang takes a key only as an argument, which everybody on the machine can read; so it gets none
    capabilities = CAPABILITIES
    container = IMAGE
    version = VersionSource(path="/server_info", distribution="sglang")

    def __init__(self, interpreter: str = "") -> None:
        self.program = interpreter or os.environ.get(self.program_env, "") or "python3"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python3 -m sglang.launch_server ...` with the lane's settings, listening on host:port."""
        argv = arguments(lane.engine_executable or self.program, plan, lane_plan.launch, host=host, port=port)
        return LaunchCommand(argv=argv, env=dict(lane_plan.launch.env))

    def queue_limit(self, settings: LaunchSettings) -> None:
        """Return None: the gateway queues, so --max-queued-requests stays unset."""
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
