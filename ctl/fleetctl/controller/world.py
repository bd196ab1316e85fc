"""What a controller works with: the store, the provider, and clients of engines and gateway. All may be fakes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from fleetctl.clock import Clock
from fleetctl.controller.several_gateways import SeveralGateways
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.model.profile import Profile
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.paths import FleetPaths
from fleetctl.ports.engine import Engine
from fleetctl.ports.policy import Policy
from fleetctl.ports.provider import Provider
from fleetctl.ports.runtime import GatewayHost

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import GatewaySnapshot, RoutingTable, SignalFeed
    from fleetctl.model.slo_feed import SloFeed


class EngineClient(Protocol):
    """Speaks HTTP to replicas. Every call has its own deadline and raises UnavailableError when it is not met."""

    async def is_healthy(self, host: str, port: int, path: str) -> bool:
        """Return whether the health route answers 200."""
        ...

    async def get(self, host: str, port: int, path: str) -> str:
        """Return what a GET of a path answers with 200: the metrics page, its version."""
        ...

    async def complete(self, host: str, port: int, path: str, body: bytes) -> None:
        """Send a completion and read it whole; anything but a 200 with a body raises UnavailableError."""
        ...


class GatewayClient(Protocol):
    """Speaks to the gateway's admin socket. Calls raise UnavailableError when it does not answer."""

    async def snapshot(self) -> GatewaySnapshot:
        """Return the gateway's figures."""
        ...

    async def put_table(self, table: RoutingTable) -> int:
        """Hand over a table; return the version at work after it."""
        ...

    async def put_signals(self, feed: SignalFeed) -> None:
        """Hand over what engines said of themselves."""
        ...

    async def put_slo(self, feed: SloFeed) -> None:
        """Hand over the readings of budgets and alerts, for the metrics page."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the controller's own head."""

    fleet: str
    paths: FleetPaths
    store: WriteBehindStore
    provider: Provider
    choice: ProviderChoice | None = None  # the profile's that the provider is at work by; None: whatever it says
    provider_of: Callable[[Profile], Provider] | None = None
    engine_of: Callable[[str], Engine]
    policy_of: Callable[[str], Policy]  # by the name in the profile
    engines: EngineClient
    gateway: GatewayClient
    gateway_host: GatewayHost
    gateways: SeveralGateways | None = None  # that `gateway` asks; None: it is one alone
    clock: Clock
    pid: int
    place: str = ""  # what this process is called where its host keeps it; empty: its pid tells it
    variable: Callable[[str], str] = lambda name: os.environ.get(name, "")  # what it held where `up` ran
    epoch: int = 0  # of the lease the store is bound to
    made_progress: Callable[[], None] = lambda: None  # leaves a sign of life between two parts of long work

    def has_moved(self, desired: Desired) -> bool:
        """Whether a fleet's profile has other settings for its provider than the one it is kept by."""
        return self.choice is not None and self.choice != desired.profile.provider_choice

    def following(self, desired: Desired | None) -> World:
        """Return this world with the provider of a fleet's profile as it is now."""
        if desired is None or self.provider_of is None or not self.has_moved(desired):
            return self
        profile = desired.profile
        return replace(self, provider=self.provider_of(profile), choice=profile.provider_choice)
