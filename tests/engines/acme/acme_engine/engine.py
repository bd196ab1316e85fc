"""Acme behind fleetctl's Engine port."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from acme_engine import signals
from acme_engine.capabilities import CAPABILITIES
from acme_engine.container import IMAGE
from acme_engine.launch import arguments
from fleetctl.engine_kit.last_words import last_words
from fleetctl.ports.engine import LaunchCommand

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec


class AcmeEngine:
    """Runs models on Acme, with this Python."""

    name = "acme"
    health_path = "/live"
    metrics_path = "/stats"
    metrics_prefix = signals.PREFIX
    request_gauges: tuple[str, ...] = (signals.RUNNING, signals.WAITING)
    program = ""
    program_env = ""
    api_key_env = ""
    capabilities = CAPABILITIES
    container = IMAGE
    version = None

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python -m acme_server ...` with the lane's settings, listening on host:port."""
        del plan, lane
        argv = arguments(sys.executable, lane_plan.launch, host=host, port=port)
        return LaunchCommand(argv=argv, env=dict(lane_plan.launch.env))

    def queue_limit(self, settings: LaunchSettings) -> None:
        """Return None: it takes whatever comes."""
        del settings

    def signals(self, exposition: str) -> EngineSignals:
        """Read a page of /stats."""
        return signals.read(exposition)

    def diagnose(self, log_tail: str) -> EngineFault | None:
        """Return what the end of its log says went wrong."""
        return last_words(log_tail, ())

    def diagnose_start(self, log_tail: str, ended: tuple[NodeProcess, ...]) -> None:
        """Return None: it ends when it cannot start."""
        del log_tail, ended

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return a short chat: Acme has no other route."""
        body = {"model": served_name, "messages": [{"role": "user", "content": "warm up"}], "max_tokens": 4}
        return "/v1/chat/completions", json.dumps(body).encode()

    def emulation(self, lane: LaneSpec) -> None:
        """Return None: it is what it is."""
        del lane
