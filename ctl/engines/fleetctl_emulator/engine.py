"""The emulator behind the Engine port."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from fleetctl import plugins
from fleetctl.engine_kit import warming
from fleetctl.ports.engine import Emulation, LaunchCommand, VersionSource
from fleetctl_emulator import diagnosis, signals
from fleetctl_emulator.capabilities import CAPABILITIES
from fleetctl_emulator.launch import arguments, member_arguments

if TYPE_CHECKING:
    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, LaunchSettings, Plan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.ports.engine import Engine


class EmulatedEngine:
    """Runs the emulator with this Python. It plays another installed engine, and what that engine knows is asked of it."""

    name = "emulator"
    health_path = "/health"
    metrics_path = "/metrics"
    metrics_prefix = ""  # its series are those of the engine it plays
    request_gauges: tuple[str, ...] = ()
    program = ""
    program_env = ""
    api_key_env = ""
    capabilities = CAPABILITIES
    container = None
    version = VersionSource(path="/emulator/version")

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python -m fleetctl_emulator ...` with the lane's settings, listening on host:port."""
        limit = plugins.load_engine(lane.emulator.flavour).queue_limit(lane_plan.launch)
        emulator = replace(lane.emulator, version=lane.emulator.version or lane.engine_version)
        argv = arguments(
            plan,
            lane_plan,
            emulator,
            queue_limit=limit,
            stream_interval=lane.launch.stream_interval,
            host=host,
            port=port,
        )
        is_group = lane_plan.launch.pipeline_parallel > 1
        return LaunchCommand(
            argv=argv,
            env=dict(lane_plan.launch.env),
            uses_gpus=False,
            member_argv=member_arguments(plan, lane_plan, emulator) if is_group else (),
        )

    def queue_limit(self, settings: LaunchSettings) -> None:
        """Return None: its queue is the one of the engine it plays."""
        del settings

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page as the engine whose series are on it; INVALID if nobody's are."""
        return signals.read(exposition, self._played)

    def diagnose(self, log_tail: str) -> EngineFault | None:
        """Return what the end of its log says went wrong, as the engines it can play read it."""
        return diagnosis.diagnose(log_tail, self._played)

    def diagnose_start(self, log_tail: str, ended: tuple[NodeProcess, ...]) -> EngineFault | None:
        """Return why one that still runs will never be ready; None: it may be."""
        return diagnosis.diagnose_start(log_tail, ended, self._played)

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        return warming.warm_body(served_name=served_name)

    def emulation(self, lane: LaneSpec) -> Emulation:
        """Return the engine that the lane's section `emulator` names, and its speed."""
        return Emulation(engine=lane.emulator.flavour, speed=lane.emulator.speed)

    @cached_property
    def _played(self) -> tuple[Engine, ...]:
        """The engines it can play and that are installed, each looked up once."""
        names = set(plugins.installed(plugins.EMULATED)) & set(plugins.installed(plugins.ENGINES))
        return tuple(plugins.load_engine(name) for name in sorted(names))
