"""Faults of a profile: collected, placed on their line, and reported all at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError, KeyPath, joined
from fleetctl.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.errors import FleetctlError

_SCHEMA = "`fleetctl schema` prints what a profile may say, for your editor"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFault:
    """One thing that is wrong. `line` 0 means "look it up from the path"."""

    path: KeyPath
    message: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSource:
    """Where a profile was read: what messages call it, and the line of every key in it."""

    name: str  # "fleets/chat.yaml", "packaged profile chat"
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    tree: Mapping[str, Any] = field(default_factory=dict)  # what it says, as it says it

    def line_of(self, path: KeyPath) -> int:
        """Return the line of the path, or of the nearest enclosing key that has one."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), 1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PlacedFault:
    """One thing that is wrong with a profile, where it stands in its file, and what to do about it."""

    file: str
    line: int
    key: str  # as people write it: "lanes.short.slo.ttft.p99"; empty: the whole file
    reason: str
    hint: str = ""
    exit_code: int = ConfigError.exit_code  # of a command that meets this fault alone

    def __str__(self) -> str:
        """Return it on one line, led by file and line as editors and terminals look for them."""
        return f"{self.file}:{self.line}: {self.key + ': ' if self.key else ''}{self.reason}"


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


def place_faults(faults: Iterable[ProfileFault], source: ProfileSource) -> tuple[PlacedFault, ...]:
    """Return every fault once, in the order of the file."""
    return tuple(
        sorted(
            {
                PlacedFault(
                    file=source.name,
                    line=fault.line or source.line_of(fault.path),
                    key=spell_path(fault.path),
                    reason=printable(fault.message),  # some quote the file: one fault is one line
                )
                for fault in faults
            }
        )
    )


def place_errors(errors: Iterable[FleetctlError], source: ProfileSource) -> tuple[PlacedFault, ...]:
    """Return what errors say of a profile as faults of its file, in the file's order."""
    parts = dict.fromkeys(part for error in errors for part in error.parts)
    return tuple(
        sorted(
            PlacedFault(
                file=source.name,
                line=source.line_of(part.key),
                key=spell_path(part.key),
                reason=part.message,
                hint=part.hint,
                exit_code=part.exit_code,
            )
            for part in parts
        )
    )


def unreadable(source: ProfileSource, faults: Sequence[PlacedFault]) -> ConfigError:
    """Return the error for a profile that cannot be read as one; every fault is on a line of its own."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return ConfigError("\n".join(map(str, faults)), hint=f"{count} in {source.name}; {_SCHEMA}")


def placed(errors: Sequence[FleetctlError], source: ProfileSource | None) -> FleetctlError:
    """Return the errors of one profile as one that says where each stands; as they are where that is not known.

    What is no fault of a key has no place.
    """
    whole = joined(errors)
    if source is None:
        return whole
    if whole.parts == (whole,):
        return _with(whole, _placed_line(whole, source), whole.hint)
    lines = (f"{_placed_line(part, source)}{f'; {part.hint}' if part.hint else ''}" for part in whole.parts)
    return _with(whole, "\n".join(lines), f"{len(whole.parts)} faults in {source.name}")


def _placed_line(error: FleetctlError, source: ProfileSource) -> str:
    return str(place_errors([error], source)[0]) if error.key else error.message


def _with(error: FleetctlError, message: str, hint: str) -> FleetctlError:
    """Return an error of the same kind in other words. Those that carry more than words are no fault of a key."""
    return type(error)(message, hint=hint, key=error.key) if message != error.message else error
