"""Whether a changed profile would leave a fleet's nodes where nobody looks any more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fleetctl.core.provider_settings import place_moves
from fleetctl.errors import ConfigError
from fleetctl.operations.commands import holds_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.desired import Desired
    from fleetctl.model.profile import Profile
    from fleetctl.model.provider_setting import ProviderSetting, SettingValue
    from fleetctl.operations.site import Site


def provider_move_refusal(site: Site, before: Desired, profile: Profile) -> ConfigError | None:
    """Return why a fleet with nodes cannot go to another provider, or to another place of its own; None: it does neither.

    Raises as `site.provider_of`.
    """
    if not holds_nodes(site, profile.name):
        return None
    old, new, hint = before.profile, profile, f"take the fleet down first: fleetctl down {profile.name}"
    if old.provider != new.provider:
        return ConfigError(
            f"{profile.name} has nodes at provider {old.provider}, which nobody would look after at {new.provider}",
            hint=f"keep provider: {old.provider}; or {hint}",
            key=("provider",),
        )
    capability = site.provider_of(profile).capabilities.settings
    if capability is None:
        return None
    environment = site.host.environment(profile.name)
    set_here = {name: value for name, value in os.environ.items() if value}
    kept = environment.inherited if environment is not None else {}
    if not kept and site.store.is_shared:
        # Another machine brought it up, or it is kept by a pod: files may lie elsewhere there, and this machine's variables
        # are its own matter.
        kept = set_here
    here = {**kept, **set_here}
    declared = capability.declared
    moves = place_moves(
        declared, _in_force(declared, old.provider_settings, kept), _in_force(declared, new.provider_settings, here)
    )
    for setting, was, would_be in moves:
        source = "" if setting.name in new.provider_settings or not setting.variable else f" ({setting.variable})"
        return ConfigError(
            f"{profile.name} has nodes at {setting.name} {was or '(not given)'}, which nobody would look after at "
            f"{would_be or '(not given)'}{source}",
            hint=f"{f'keep {setting.name}: {was}' if was else f'leave {setting.name} out'}; or {hint}",
            key=("provider", setting.name),
        )
    return None


def _in_force(
    declared: tuple[ProviderSetting, ...], given: Mapping[str, SettingValue], environ: Mapping[str, str]
) -> dict[str, SettingValue]:
    """Return the settings with what the environment says of those that are not given."""
    set_there = {each.name: environ[each.variable] for each in declared if environ.get(each.variable)}
    return {**set_there, **given}
