"""Reaches providers and engines by entry point, so that a third party's package works as a built-in does."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from fleetctl.errors import NotFoundError

if TYPE_CHECKING:
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.provider import Provider


def _entry(group: str, name: str) -> EntryPoint:
    found = entry_points(group=group)
    for entry in found:
        if entry.name == name:
            return entry
    kind = group.rsplit(".", 1)[1]
    raise NotFoundError(
        f"no {kind} named {name!r} is installed", hint=f"installed: {', '.join(sorted({e.name for e in found}))}"
    )


def installed(group: str) -> tuple[str, ...]:
    """Return the names in an entry point group ("fleetctl.provider", "fleetctl.engine"), sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load_provider(name: str) -> Provider:
    """Return a new instance of the provider. Raises NotFoundError listing those installed."""
    return cast("Provider", _entry("fleetctl.provider", name).load()())


def load_engine(name: str) -> Engine:
    """Return a new instance of the engine adapter. Raises NotFoundError listing those installed."""
    return cast("Engine", _entry("fleetctl.engine", name).load()())
