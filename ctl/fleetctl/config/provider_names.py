"""Providers and hosts in a profile: open names, checked against what is installed, and settings against what each declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl import plugins
from fleetctl.config.faults import ProfileFault
from fleetctl.core.provider_settings import setting_faults
from fleetctl.errors import FleetctlError
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.errors import KeyPath
    from fleetctl.model.provider_setting import ProviderSetting

    _Declared = Callable[[str], tuple[ProviderSetting, ...]]


def provider_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield what of the provider is not there, and what it does not take; what is no text is the shape's to refuse."""
    yield from _faults(tree, "provider", plugins.installed_providers(), _declared)


def host_faults(tree: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield the same of the host."""
    yield from _faults(tree, "host", plugins.installed(plugins.HOSTS), plugins.host_settings)


def _faults(tree: dict[str, Any], kind: str, known: tuple[str, ...], declared: _Declared) -> Iterator[ProfileFault]:
    given = tree.get(kind)
    name = given.get("kind") if isinstance(given, dict) else given
    if not isinstance(name, str) or not name:
        return
    path: KeyPath = (kind, "kind") if isinstance(given, dict) else (kind,)
    if name not in known:
        message = f"{name!r} is not an installed {kind}{suggest(name, known)}; installed: {', '.join(known)}"
        yield ProfileFault(path=path, message=message)
    elif isinstance(given, dict):
        settings = {str(key): value for key, value in given.items() if key != "kind"}
        try:
            takes = declared(name)
        except FleetctlError as error:
            yield ProfileFault(path=path, message=error.message)
            return
        for key, fault in setting_faults(name, takes, settings, kind=kind):
            yield ProfileFault(path=(kind, key), message=fault)


def declared_host_settings() -> dict[str, tuple[ProviderSetting, ...]]:
    """Return what each installed host takes; one that does not load, which is refused where it is named, is left out."""
    return _all_declared(plugins.installed(plugins.HOSTS), plugins.host_settings)


def declared_settings() -> dict[str, tuple[ProviderSetting, ...]]:
    """Return what each installed provider takes; one that does not load, which is refused where it is named, is left out."""
    return _all_declared(plugins.installed_providers(), _declared)


def _all_declared(names: tuple[str, ...], declared: _Declared) -> dict[str, tuple[ProviderSetting, ...]]:
    found = {}
    for name in names:
        try:
            found[name] = declared(name)
        except FleetctlError:
            continue
    return found


def _declared(name: str) -> tuple[ProviderSetting, ...]:
    capability = plugins.load_provider(name).capabilities.settings
    return capability.declared if capability is not None else ()
