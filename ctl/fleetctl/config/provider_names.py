"""Providers in a profile: open names, checked against what is installed, and settings against what each declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl import plugins
from fleetctl.config.faults import ProfileFault
from fleetctl.core.provider_settings import setting_faults
from fleetctl.errors import FleetctlError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath
    from fleetctl.model.provider_setting import ProviderSetting

_KEY: KeyPath = ("provider",)


def provider_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield what of the provider is not there, and what it does not take; what is no text is the shape's to refuse."""
    given = tree.get("provider")
    name = given.get("kind") if isinstance(given, dict) else given
    if not isinstance(name, str) or not name:
        return
    path = (*_KEY, "kind") if isinstance(given, dict) else _KEY
    known = plugins.installed_providers()
    if name not in known:
        message = f"{name!r} is not an installed provider{suggest(name, known)}; installed: {', '.join(known)}"
        yield ProfileFault(path=path, message=message)
    elif isinstance(given, dict):
        yield from _setting_faults(name, path, {str(key): value for key, value in given.items() if key != "kind"})


def declared_settings() -> dict[str, tuple[ProviderSetting, ...]]:
    """Return what each installed provider takes; one that does not load, which is refused where it is named, is left out."""
    found = {}
    for name in plugins.installed_providers():
        try:
            found[name] = _declared(name)
        except FleetctlError:
            continue
    return found


def _setting_faults(name: str, path: KeyPath, given: dict[str, object]) -> Iterator[ProfileFault]:
    try:
        declared = _declared(name)
    except FleetctlError as error:
        yield ProfileFault(path=path, message=error.message)
        return
    for key, fault in setting_faults(name, declared, given):
        yield ProfileFault(path=(*_KEY, key), message=fault)


def _declared(name: str) -> tuple[ProviderSetting, ...]:
    capability = plugins.load_provider(name).capabilities.settings
    return capability.declared if capability is not None else ()
