"""What the provider is given: the inventory's file, and how long engines live that nobody asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.model.provider_setting import ProviderSetting, SettingKind
from fleetctl.paths import config_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.provider_setting import SettingValue

INVENTORY = "FLEETCTL_SSH_INVENTORY"
# ssh finds its agent and its own files by these.
VARIABLES = frozenset({INVENTORY, "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"})
_EXPIRES_MINUTES = 30
SETTINGS = (
    ProviderSetting(
        name="inventory",
        description="The YAML file of its machines, an absolute path. Unset: FLEETCTL_SSH_INVENTORY, else "
        "ssh-inventory.yaml beside the configuration. Machines in it may come and go.",
        pattern=r"(/|~/)\S.*",
        form="an absolute path, such as ~/machines.yaml",
        variable=INVENTORY,
        is_place=True,
    ),
    ProviderSetting(
        name="expires_minutes",
        description="How long an engine runs on that no controller has asked for. Unset: 30.",
        kind=SettingKind.COUNT,
        count_min=1,
        count_max=7 * 24 * 60,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """Where the inventory is, and after what time without a controller an engine ends by itself."""

    inventory: str
    expires_s: float = _EXPIRES_MINUTES * 60.0

    @classmethod
    def of_environment(cls) -> SshSettings:
        """Read FLEETCTL_SSH_INVENTORY."""
        return cls(inventory=os.environ.get(INVENTORY) or str(config_dir() / "ssh-inventory.yaml"))

    def changed_by(self, given: Mapping[str, SettingValue]) -> SshSettings:
        """Return these with a profile's in their place."""
        found = replace(self, inventory=str(given.get("inventory", self.inventory)))
        minutes = given.get("expires_minutes")
        return replace(found, expires_s=60.0 * int(minutes)) if isinstance(minutes, int) else found
