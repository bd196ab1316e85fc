"""A Site of fakes: nothing is started, written to disk or waited for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleetctl.errors import NotFoundError
from fleetctl.operations.site import Site
from fleetctl.operations.stored_status import stored_status
from fleetctl.plugins import load_engine, load_provider
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.host import CONTROLLER_PID, FakeHost
from fleetctl.testing.provider import FakeProvider

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.provider import Provider


@dataclass(slots=True)
class FakeSite:
    """The fakes of one Site, to script them, and the Site itself."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(samples.EPOCH))
    store: SqliteStore = field(init=False)
    host: FakeHost = field(init=False)
    provider: FakeProvider = field(init=False)
    site: Site = field(init=False)

    def __post_init__(self) -> None:
        self.store = SqliteStore(None, clock=self.clock)
        self.host = FakeHost(clock=self.clock, on_start=self.start_controller)
        self.provider = FakeProvider(self.clock)
        self.site = Site(
            store=self.store,
            host=self.host,
            providers=self._provider,
            engines=_engine,
            clock=self.clock,
            provider_names=lambda: (self.provider.name,),
        )

    def start_controller(self, fleet: str) -> None:
        """Have a controller answer as a real one does: from the store, with itself alive."""
        self.host.controllers[fleet] = lambda: self.live_status(fleet)

    def live_status(self, fleet: str) -> FleetStatus:
        desired = self.store.fleet(fleet)
        assert desired is not None
        return replace(stored_status(self.site, desired), controller_alive=True, controller_pid=CONTROLLER_PID)

    def ready_status(self, fleet: str) -> FleetStatus:
        """Return what the controller of a fleet says once everything is as its record wants it."""
        seen = self.live_status(fleet)
        lanes = tuple(replace(lane, ready=lane.wanted) for lane in seen.lanes)
        return replace(seen, lanes=lanes, gateway_alive=True, gateway_generation=seen.generation)

    def _provider(self, name: str) -> Provider:
        if name != self.provider.name:
            raise NotFoundError(f"no provider named {name!r} is installed")
        return self.provider


def plugins_site() -> Site:
    """Return a Site of fakes with the installed providers and engines: what planning and rendering need."""
    return replace(FakeSite().site, providers=load_provider, engines=load_engine)


def _engine(name: str) -> Engine:
    del name
    return FakeEngine()
