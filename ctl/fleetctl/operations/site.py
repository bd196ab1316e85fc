"""What every operation works on. All of it may be fakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fleetctl.clock import BlockingClock
from fleetctl.model.audit import Actor
from fleetctl.plugins import installed_providers
from fleetctl.ports.engine import Engine
from fleetctl.ports.host import Host
from fleetctl.ports.provider import Provider
from fleetctl.ports.store import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where fleets are recorded, where their processes run, what they are built from, and the time.

    `providers` and `engines` return a plugin by its name and raise NotFoundError listing those installed;
    `provider_names` returns whom `providers` would return.
    """

    store: StateStore
    host: Host
    providers: Callable[[str], Provider]
    engines: Callable[[str], Engine]
    clock: BlockingClock
    provider_names: Callable[[], tuple[str, ...]] = installed_providers
    actor: Actor = field(default_factory=Actor)  # who gives the commands
    is_readonly: bool = False  # nothing may be changed
    tell: Callable[[str], None] = lambda _: None  # tells whoever gave the command what it waits for
