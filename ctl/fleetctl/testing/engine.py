"""An engine adapter without an engine: it implements the port over a page of three plain lines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.codec import encode
from fleetctl.model.catalogue import Precision
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.node import LEADER_HOST, NODE_RANK, NodeProcess
from fleetctl.model.observation import EngineSignals
from fleetctl.model.slo import Validity
from fleetctl.ports.engine import EngineCapabilities, LaunchCommand, PriorityOrder, ShutdownBehaviour, VersionSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec

_SERIES = ("running", "waiting", "kv_usage")


class FakeEngine:
    """Implements Engine. Its metrics page is `running N`, `waiting N`, `kv_usage X`, a line each."""

    name = "fake"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = ""
    request_gauges: tuple[str, ...] = ()
    program = ""
    program_env = ""
    api_key_env = ""
    container = None
    version = VersionSource(path="/version")

    def __init__(
        self,
        argv: tuple[str, ...] = ("/nonexistent/engine",),
        *,
        env: Mapping[str, str] | None = None,
        continues_streams: bool = True,
        multi_node: bool = False,
    ) -> None:
        self.capabilities = EngineCapabilities(
            continues_streams=continues_streams,
            multi_node=multi_node,
            priority_order=PriorityOrder.NONE,
            reserves_output=False,
            shutdown=ShutdownBehaviour(drain_s=None, refuses_new=False, keeps_listening=True),
            kv_cache_precisions=frozenset(Precision),
            load_time_precisions=frozenset(Precision),
        )
        self._argv = argv
        self._env = dict(env or {})

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return the constructor's command with the lane, host and port appended; members are told leader and rank."""
        del plan
        member_argv = (*self._argv, lane.name, LEADER_HOST, NODE_RANK) if lane_plan.node_count > 1 else ()
        return LaunchCommand(
            argv=(*self._argv, lane.name, host, str(port), *lane_plan.launch.extra_args),
            env=dict(self._env),
            member_argv=member_argv,
        )

    def queue_limit(self, settings: LaunchSettings) -> None:
        """Return None: it takes whatever comes."""
        del settings

    def signals(self, exposition: str) -> EngineSignals:
        """Read a page; a missing, negative or non-finite figure makes it INVALID."""
        try:
            figures = {name: float(value) for name, value in (line.split() for line in exposition.splitlines())}
        except ValueError:
            return EngineSignals(validity=Validity.INVALID)
        if any(not (name in figures and math.isfinite(figures[name]) and figures[name] >= 0) for name in _SERIES):
            return EngineSignals(validity=Validity.INVALID)
        return EngineSignals(
            validity=Validity.OK,
            running=int(figures["running"]),
            waiting=int(figures["waiting"]),
            kv_usage=figures["kv_usage"],
            prompt_tokens=figures.get("prompt_tokens", 0.0),
            output_tokens=figures.get("output_tokens", 0.0),
        )

    def diagnose(self, log_tail: str) -> EngineFault | None:
        """Return a last line of `kind: message`; any other is of no known kind."""
        line = log_tail.strip().rpartition("\n")[2]
        kind, _, message = line.partition(": ")
        known = EngineFaultKind(kind) if kind in set(EngineFaultKind) else EngineFaultKind.UNKNOWN
        return EngineFault(kind=known, line=message or line) if line else None

    def diagnose_start(self, log_tail: str, ended: tuple[NodeProcess, ...]) -> EngineFault | None:
        """Return what a process of it that is called `core` ended of, `kind: message`; one that vanished, of no known kind."""
        del log_tail
        found = (self.diagnose(each.exit_reason or "its core has vanished") for each in ended if each.name == "core")
        return next(found, None)

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return a one-token completion."""
        return "/v1/completions", encode({"model": served_name, "prompt": "warm", "max_tokens": 1})

    def emulation(self, lane: LaneSpec) -> None:
        """Return None: it plays no other engine."""
        del lane
