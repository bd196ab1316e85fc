"""Reaches providers, engines, hosts and policies by entry point: a third party's package works as a built-in does."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TYPE_CHECKING, Any, cast

from fleetctl.core.provider_settings import setting_faults
from fleetctl.environment import ON_HOST
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.host_choice import LOCAL_HOST
from fleetctl.ports.host import HostWithin, RemoteHost
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl.model.provider_setting import ProviderSetting, SettingValue
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.host import Host
    from fleetctl.ports.objects import OpenObjectStore
    from fleetctl.ports.policy import Policy
    from fleetctl.ports.provider import Provider

POLICIES = "fleetctl.policy"
PROVIDERS = "fleetctl.provider"
ENGINES = "fleetctl.engine"
HOSTS = "fleetctl.host"
ORDERS = "fleetctl.order"  # of the calls of workflows in a queue
OBJECT_STORES = "fleetctl.object_store"  # by the scheme of a shared state's URL
EMULATED = "fleetctl.emulated"  # engines whose surface the emulator can play
DEFAULT_HOST = LOCAL_HOST


def installed(group: str) -> tuple[str, ...]:
    """Return the names in an entry point group, sorted."""
    return tuple(sorted({entry.name for entry in _entries(group)}))


def installed_providers() -> tuple[str, ...]:
    """Return the names of the installed providers, sorted."""
    return installed(PROVIDERS)


def load(group: str, name: str) -> object:
    """Return a new instance of what is registered under a name.

    Raises NotFoundError listing what is installed, ConfigError for a package that does not load.
    """
    return _loaded(group, name, lambda entry: entry.load()())


def load_provider(name: str) -> Provider:
    """Return a new instance of the provider. Raises NotFoundError listing those installed."""
    return cast("Provider", load(PROVIDERS, name))


def configured(provider: Provider, settings: Mapping[str, SettingValue]) -> Provider:
    """Return a provider that works by a profile's settings. Raises ConfigError where it takes no such."""
    capability = provider.capabilities.settings
    declared = capability.declared if capability is not None else ()
    for name, fault in setting_faults(provider.name, declared, settings):
        raise ConfigError(
            f"provider.{name}: {fault}",
            hint="the package of that provider has changed: mend the profile, or install the one it was written for",
            key=("provider", name),
        )
    return capability.configured(settings) if capability is not None and settings else provider


def load_engine(name: str) -> Engine:
    """Return a new instance of the engine's adapter. Raises NotFoundError listing those installed."""
    return cast("Engine", load(ENGINES, name))


def load_host(name: str) -> Host:
    """Return a new instance of the host. Raises NotFoundError listing those installed."""
    return cast("Host", load(HOSTS, name))


def host_within(environ: Mapping[str, str]) -> str:
    """Return the host whose place the process of this environment runs in."""
    return environ.get(ON_HOST, "") or DEFAULT_HOST


def load_host_within(name: str) -> Host:
    """Return the host as it is for what runs in its place. Raises NotFoundError listing those installed."""
    found = load(HOSTS, name)
    return found.within() if isinstance(found, HostWithin) else cast("Host", found)


def host_settings(name: str) -> tuple[ProviderSetting, ...]:
    """Return what a host takes from a profile. Raises NotFoundError listing those installed."""
    host = load_host(name)
    return host.declared if isinstance(host, RemoteHost) else ()


def load_policy(name: str) -> Policy:
    """Return the policy, which is a function. Raises NotFoundError listing those installed."""
    return cast("Policy", _loaded(POLICIES, name, lambda entry: entry.load()))


def load_order(name: str) -> Callable[[Any, float], float]:
    """Return the order of calls, a function as core/workflows/order has it. Raises NotFoundError listing those installed."""
    return cast("Callable[[Any, float], float]", _loaded(ORDERS, name, lambda entry: entry.load()))


def load_object_store(scheme: str) -> OpenObjectStore:
    """Return what opens the objects of a URL's scheme. Raises NotFoundError listing those installed."""
    return cast("OpenObjectStore", _loaded(OBJECT_STORES, scheme, lambda entry: entry.load()))


def _loaded(group: str, name: str, load_entry: Callable[[EntryPoint], object]) -> object:
    entry = _entry(group, name)
    try:
        return load_entry(entry)
    except Exception as exc:  # a third party's package may fail in any way at its import
        kind = group.rsplit(".", 1)[1]
        raise ConfigError(
            f"{kind} {name!r} does not load from {entry.value}: {type(exc).__name__}: {exc}",
            hint="install its package again, or remove it; `fleetctl doctor` lists what loads",
        ) from exc


def _entry(group: str, name: str) -> EntryPoint:
    entry = _named(group, name)
    if entry is None:
        _scan.cache_clear()  # it may have been installed since, while this process runs
        entry = _named(group, name)
    if entry is not None:
        return entry
    found = _entries(group)
    kind, names = group.rsplit(".", 1)[1], sorted({entry.name for entry in found})
    raise NotFoundError(
        f"no {kind} named {name!r} is installed{suggest(name, names)}", hint=f"installed: {', '.join(names)}"
    )


def _named(group: str, name: str) -> EntryPoint | None:
    return next((entry for entry in _entries(group) if entry.name == name), None)


def _entries(group: str) -> EntryPoints:
    return _scan(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _scan(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Return a group's entry points; `path` is the import path they are on. A scan takes 3 to 20 ms."""
    del path
    return entry_points(group=group)
