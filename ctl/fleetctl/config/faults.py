"""Faults of a profile: collected, placed on their line, and reported all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFault:
    """One thing that is wrong. `line` 0 means "look it up from the path"."""

    path: KeyPath
    message: str
    line: int = 0


def spell_path(path: KeyPath) -> str:
    """Return lanes.short.spill_to[0], as people write it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        word = part if part.isprintable() and part.strip() == part != "" else repr(part)
        text += f".{word}" if text else word
    return text


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of the path, or of the nearest enclosing key that has one."""
    for end in range(len(path), -1, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 1


def raise_faults(faults: Iterable[ProfileFault], *, source: str, lines: Mapping[KeyPath, int]) -> None:
    """Raise one ConfigError that lists every fault once, in the order of the file; return if there is none."""
    placed = {(fault.line or line_of(fault.path, lines), spell_path(fault.path), fault.message) for fault in faults}
    if not placed:
        return
    described = [f"{source}:{line}: {path + ': ' if path else ''}{message}" for line, path, message in sorted(placed)]
    count = "1 fault" if len(described) == 1 else f"{len(described)} faults"
    raise ConfigError(
        "\n".join(described),
        hint=f"{count} in {source}; `fleetctl schema` prints what a profile may say, for your editor",
    )
