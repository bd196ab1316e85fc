"""Where a fleet's controller and gateway run, as its profile says, and as it is remembered until nothing is left there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.model.provider_setting import ProviderChoice, SettingValue, setting_text
from fleetctl.model.tls import TlsSpec

LOCAL_HOST = "local"  # the machine that `up` runs on


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChoice:
    """A host by its name, and the settings it is given."""

    name: str = LOCAL_HOST
    settings: Mapping[str, SettingValue] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether it is the machine that commands run on."""
        return self.name == LOCAL_HOST

    def __str__(self) -> str:
        """Return it as people read it: "node (instance_type t3.small)"."""
        given = ", ".join(f"{name} {setting_text(value)}" for name, value in sorted(self.settings.items()))
        return f"{self.name} ({given})" if given else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """Which host a fleet has, and whose nodes; it outlives the fleet until its host has cleaned up."""

    choice: HostChoice
    provider: ProviderChoice
    port: int  # of the gateway
    address: str  # that the gateway listens on
    gateways: int = 1  # that share the fleet's limits
    tls: TlsSpec | None = None  # None: clients are served in clear
