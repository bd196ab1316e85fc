"""Marked blocks in a crontab's text: ours are written, found and removed; every other line stays as it is."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BEGIN = "# BEGIN fleetctl runbook "
_END = "# END fleetctl runbook "
_ADVICE = "# written by `fleetctl runbook install-cron`, and written over by the next; --remove takes it out"
# MAX_COMMAND of Debian's cron; what is longer, cron refuses or cuts.
COMMAND_CHARS_MAX = 998
_ASSIGNMENT = re.compile(r"""^\s*["']?(?P<name>[A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(?P<value>.*?)\s*$""")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabBlock:
    """The lines of one runbook on one fleet."""

    key: str  # "pre-warm on chat"
    lines: tuple[str, ...]

    def text(self) -> str:
        """Return the block with its marks."""
        return "".join(f"{line}\n" for line in (_BEGIN + self.key, _ADVICE, *self.lines, _END + self.key))


def command_line(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a command as a crontab holds it: for any shell of POSIX's, `%` escaped, its environment before it.

    The environment belongs to this command: an assignment on a line of its own would reach every later line.
    Raises ConfigError for what no crontab can hold.
    """
    assignments = [f"{name}={value}" for name, value in environment.items()]
    text = shlex.join([*(["/usr/bin/env", *assignments] if assignments else []), *argv])
    if any(character in text for character in "\n\r\0"):
        raise ConfigError("a crontab's line holds no line break", hint="look at the runbook's path and parameters")
    text = text.replace("%", r"\%")
    if len(text) > COMMAND_CHARS_MAX:
        longest = max(assignments, key=len, default="")
        raise ConfigError(
            f"the command has {len(text)} characters, and cron takes {COMMAND_CHARS_MAX}",
            hint=f"{longest.partition('=')[0]} is the longest of its variables; shorten it, or use --systemd",
        )
    return text


def with_block(crontab: str, block: CrontabBlock) -> str:
    """Return a crontab with a block in the place of the one of the same key, or at its end. Raises ConfigError."""
    found = _span(crontab, block.key)
    if found is None:
        gap = "" if not crontab or crontab.endswith("\n") else "\n"
        return f"{crontab}{gap}{block.text()}"
    return crontab[: found[0]] + block.text() + crontab[found[1] :]


def without_block(crontab: str, key: str) -> str:
    """Return a crontab without a block; the same text if it has none. Raises ConfigError."""
    found = _span(crontab, key)
    return crontab if found is None else crontab[: found[0]] + crontab[found[1] :]


def block_text(crontab: str, key: str) -> str:
    """Return a block as it stands; empty: there is none. Raises ConfigError."""
    found = _span(crontab, key)
    return "" if found is None else crontab[found[0] : found[1]]


def assigned(crontab: str) -> dict[str, str]:
    """Return the variables that a crontab sets for its commands."""
    found = {}
    for line in crontab.splitlines():
        match = None if line.lstrip().startswith("#") else _ASSIGNMENT.match(line)
        if match is not None:
            found[match["name"]] = match["value"].strip("\"'")
    return found


def _span(crontab: str, key: str) -> tuple[int, int] | None:
    """Return where a block begins and ends. Raises ConfigError for marks that somebody has broken."""
    begin = [match.start() for match in re.finditer(rf"(?m)^{re.escape(_BEGIN + key)}$", crontab)]
    end = [match.end() for match in re.finditer(rf"(?m)^{re.escape(_END + key)}$\n?", crontab)]
    if not begin and not end:
        return None
    if len(begin) != 1 or len(end) != 1 or end[0] < begin[0]:
        at = crontab.count("\n", 0, (begin or end)[0]) + 1
        raise ConfigError(
            f"the crontab's marks of {key!r} are broken (line {at}): {len(begin)} begin and {len(end)} end",
            hint="mend or remove these lines with `crontab -e`; nothing was changed",
        )
    return begin[0], end[0]
