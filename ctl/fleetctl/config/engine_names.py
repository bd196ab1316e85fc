"""Engines in a profile: open names, checked against what is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl import plugins
from fleetctl.config.faults import ProfileFault
from fleetctl.config.fields import INSTALLED_ENGINE, PLAYED_ENGINE
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNames:
    """The engines that a profile may name."""

    installed: tuple[str, ...]
    emulated: tuple[str, ...]  # those that the emulator can play


def installed_engines() -> EngineNames:
    """Return the engines of this installation, by their entry points; none of them is loaded."""
    names = plugins.installed(plugins.ENGINES)
    played = plugins.installed(plugins.EMULATED)
    return EngineNames(installed=names, emulated=tuple(name for name in played if name in names))


def engine_faults(tree: dict[str, Any], names: EngineNames) -> Iterator[ProfileFault]:
    """Yield a fault for every engine in the raw tree that is not there; what is no text is the shape's to refuse."""
    for path, named in _named(tree):
        if not isinstance(named, str):
            continue
        is_played = path[-1] == "flavour"
        known = names.emulated if is_played else names.installed
        if named not in known:
            what = PLAYED_ENGINE if is_played else INSTALLED_ENGINE
            message = f"{named!r} is not {what}{suggest(named, known)}; installed: {', '.join(known)}"
            yield ProfileFault(path=path, message=message)


def _named(tree: dict[str, Any]) -> Iterator[tuple[KeyPath, object]]:
    """Yield every place of a profile that names an engine, with what stands there."""
    lanes = tree.get("lanes")
    sections: list[tuple[KeyPath, object]] = [((), tree)]
    sections += [(("lanes", str(name)), lane) for name, lane in (lanes if isinstance(lanes, dict) else {}).items()]
    for path, section in sections:
        if not isinstance(section, dict):
            continue
        engine = section.get("engine")
        if isinstance(engine, dict):
            yield (*path, "engine", "kind"), engine.get("kind")
        elif "engine" in section:
            yield (*path, "engine"), engine
        emulator = section.get("emulator")
        if isinstance(emulator, dict) and "flavour" in emulator:
            yield (*path, "emulator", "flavour"), emulator["flavour"]
