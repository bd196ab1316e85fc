"""What every operation works on. All of it may be fakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetctl.clock import BlockingClock
from fleetctl.model.audit import Actor
from fleetctl.plugins import configured, installed_providers
from fleetctl.ports.engine import Engine
from fleetctl.ports.host import Host
from fleetctl.ports.provider import Provider
from fleetctl.ports.store import StateStore

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile
    from fleetctl.model.provider_setting import ProviderChoice


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

    def provider(self, choice: ProviderChoice) -> Provider:
        """Return a provider by its name, at work by these settings. Raises NotFoundError, ConfigError."""
        return configured(self.providers(choice.name), choice.settings)

    def provider_of(self, profile: Profile) -> Provider:
        """Return the provider of a profile, at work by its settings. Raises NotFoundError, ConfigError."""
        return self.provider(profile.provider_choice)
