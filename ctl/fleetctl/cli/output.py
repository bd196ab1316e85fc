"""What goes to stdout: aligned tables for people, the same values as JSON, YAML or names for programs."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE: the reader went away, as with `fleetctl events | head`


class Format(StrEnum):
    """The values of -o."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table's column. `wide` ones only show with -o wide; numbers stand right."""

    title: str
    right: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled table, or free lines."""

    title: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    text: tuple[str, ...] = ()
    only: Format | None = None  # TABLE or WIDE: shown in that one of the two alone


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One answer in every format: the value itself, its names, and its sections for people."""

    value: object
    names: tuple[str, ...] = ()
    sections: tuple[Section, ...] = field(default_factory=tuple)


def table(columns: str, rows: Iterable[Iterable[str]], *, title: str = "") -> Section:
    """Return a table. `columns` are titles; a ">" before one aligns right, a "+" keeps it for -o wide."""
    parsed = tuple(
        Column(title=word.lstrip(">+").replace("_", " "), right=">" in word, wide="+" in word)
        for word in columns.split()
    )
    return Section(title=title, columns=parsed, rows=tuple(tuple(row) for row in rows))


def lines(*text: str, title: str = "", only: Format | None = None) -> Section:
    """Return free lines."""
    return Section(title=title, text=text, only=only)


def emit(view: View, output: Format) -> None:
    """Print a view to stdout."""
    write(text_of(view, output, coloured=has_colour(sys.stdout.isatty())))


def write(text: str) -> None:
    """Print `text`, which ends its own lines. A reader that left ends the command quietly."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        raise typer.Exit(EXIT_PIPE_CLOSED) from None


def abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain about a reader that left."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)


def text_of(view: View, output: Format, *, coloured: bool = False) -> str:
    """Return a view as text, with its last newline."""
    match output:
        case Format.JSON:
            import msgspec

            from fleetctl.codec import encode

            return msgspec.json.format(encode(view.value), indent=2).decode() + "\n"
        case Format.YAML:
            import yaml

            from fleetctl.codec import to_plain

            return yaml.safe_dump(to_plain(view.value), sort_keys=False, allow_unicode=True)
        case Format.NAME:
            return "".join(f"{name}\n" for name in view.names)
        case Format.TABLE | Format.WIDE:
            return _people(view, wide=output is Format.WIDE, coloured=coloured)


def has_colour(is_tty: bool) -> bool:
    """Say whether to colour: only on a terminal that can, and never against NO_COLOR (https://no-color.org)."""
    return is_tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _people(view: View, *, wide: bool, coloured: bool) -> str:
    hidden = Format.TABLE if wide else Format.WIDE
    shown = [section for section in view.sections if section.only is not hidden]
    blocks = ["".join(f"{line}\n" for line in _section(section, wide=wide)) for section in shown]
    text = "\n".join(block for block in blocks if block)
    return paint(text) if coloured else text


def _section(section: Section, *, wide: bool) -> Iterator[str]:
    if section.title:
        yield section.title
    yield from section.text
    if section.columns:
        yield from _aligned(section, wide=wide)


def _aligned(section: Section, *, wide: bool) -> Iterator[str]:
    shown = [i for i, column in enumerate(section.columns) if wide or not column.wide]
    grid = [[section.columns[i].title for i in shown], *([row[i] or "-" for i in shown] for row in section.rows)]
    widths = [max(len(row[at]) for row in grid) for at in range(len(shown))]
    for row in grid:
        cells = [
            cell.rjust(width) if section.columns[i].right else cell.ljust(width)
            for i, cell, width in zip(shown, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()


_GREEN, _YELLOW, _RED, _DIM = "32", "33", "31", "2"
_WORDS = {
    **dict.fromkeys(("UP", "READY", "ready", "OK", "ok", "kept", "yes"), _GREEN),
    **dict.fromkeys(
        ("STARTING", "STOPPING", "DEGRADED", "STALE", "booting", "warming", "pending", "draining", "stopping", "warn",
         "few", "stale"), _YELLOW),
    **dict.fromkeys(("DOWN", "FAILED", "failed", "fail", "MISSED", "missed", "BREACH"), _RED),
    **dict.fromkeys(("gone",), _DIM),
}  # fmt: skip
# A status word is coloured where it stands alone in its cell: after two spaces or at a line's start.
_CELL = re.compile(r"(?:(?<=^)|(?<=  ))(" + "|".join(map(re.escape, _WORDS)) + r")(?=  |$)", re.MULTILINE)


def paint(text: str) -> str:
    """Return the text with the fixed status words coloured."""
    return _CELL.sub(lambda match: f"\x1b[{_WORDS[match[1]]}m{match[1]}\x1b[0m", text)
