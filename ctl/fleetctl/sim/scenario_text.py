"""Disturbances as people write them: `kill@5m,lane=short`, or a file with one a line."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import ConfigError
from fleetctl.sim.scenario import Disturbance, DisturbanceKind
from fleetctl.spelling import suggest
from fleetctl.units import parse_duration_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

SYNTAX = "KIND@TIME[,lane=NAME][,count=N][,factor=X][,for=DURATION][,market=spot]"
_KINDS = tuple(kind.value for kind in DisturbanceKind)
_KEYS = ("lane", "count", "factor", "for", "market")


def read_disturbances(path: Path, *, lanes: Iterable[str]) -> tuple[Disturbance, ...]:
    """Return the disturbances of a file: one a line, `#` begins a comment. Raises ConfigError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    lanes = tuple(lanes)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        written = line.partition("#")[0].strip()
        if written:
            found.append(parse_disturbance(written, lanes=lanes, where=f"{path}:{number}: "))
    return tuple(found)


def parse_disturbance(text: str, *, lanes: Iterable[str], where: str = "") -> Disturbance:
    """Return one disturbance. Raises ConfigError saying what is wrong with it."""
    head, *parts = text.split(",")
    kind, at, when = head.strip().partition("@")
    if not at or kind not in _KINDS:
        what = "no disturbance" if where else "no file and no disturbance"
        message = f"{where}{text!r} is {what}{suggest(kind, _KINDS)}"
        raise ConfigError(message, hint=f"write {SYNTAX}; KIND is one of {', '.join(_KINDS)}")
    found = Disturbance(kind=DisturbanceKind(kind), at_s=_taken(when, parse_duration_s, where))
    for part in parts:
        key, _, value = part.strip().partition("=")
        found = _with(found, key.strip(), value.strip(), where)
    names = tuple(lanes)
    if found.lane and found.lane not in names:
        raise ConfigError(f"{where}no lane {found.lane!r}{suggest(found.lane, names)}; there are {', '.join(names)}")
    return found


def _with(found: Disturbance, key: str, value: str, where: str) -> Disturbance:
    match key:
        case "lane":
            return replace(found, lane=value)
        case "count":
            return replace(found, count=_taken(value, _count, where))
        case "factor":
            return replace(found, factor=_taken(value, _factor, where))
        case "for":
            return replace(found, for_s=_taken(value, parse_duration_s, where))
        case "market" if value == "spot":
            return replace(found, spot_only=True)
        case _:
            raise ConfigError(f"{where}{key}={value} is not known{suggest(key, _KEYS)}", hint=f"write {SYNTAX}")


def _taken(text: str, parse: Callable[[str], T], where: str) -> T:
    try:
        return parse(text)
    except (ConfigError, ValueError) as error:
        message = error.message if isinstance(error, ConfigError) else f"{text!r} is no number above zero"
        raise ConfigError(f"{where}{message}", hint=f"write {SYNTAX}") from error


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _factor(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise ValueError(text)
    return value
