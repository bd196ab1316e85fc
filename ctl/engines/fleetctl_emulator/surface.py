"""What a real engine's surface is made of, for the emulator to play it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from fleetctl import plugins
from fleetctl.ports.engine import EngineCapabilities

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.dialect import Dialect
    from fleetctl_emulator.engine_metrics import EngineMetrics
    from fleetctl_emulator.instance import EmulatedInstance
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.scheduler import Scheduler
    from fleetctl_emulator.service import EmulatorService


class Surface(Protocol):
    """How one engine looks: found by the entry point group `fleetctl.emulated` under its name, made without arguments."""

    def dialect(self, options: EmulatorOptions, instance: EmulatedInstance) -> Dialect:
        """Return how the engine words its refusals, and when its queue is full."""
        ...

    def metrics(
        self, scheduler: Scheduler, options: EmulatorOptions, instance: EmulatedInstance, *, started_s: float
    ) -> EngineMetrics:
        """Return the engine's counters and its /metrics page."""
        ...

    def routes(self, service: EmulatorService, options: EmulatorOptions) -> list[web.RouteDef]:
        """Return the engine's HTTP routes but /metrics."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEngine:
    """A real engine to play: how it looks, and what its own package says that it can do."""

    name: str
    surface: Surface
    capabilities: EngineCapabilities
    version: str  # the newest known; empty: its package names no image


def load_played(name: str) -> PlayedEngine:
    """Return the engine to play. Raises NotFoundError listing what is installed."""
    surface = cast("Surface", plugins.load(plugins.EMULATED, name))
    engine = plugins.load_engine(name)
    version = engine.container.version if engine.container else ""
    return PlayedEngine(name=name, surface=surface, capabilities=engine.capabilities, version=version)
