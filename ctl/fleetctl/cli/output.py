"""What goes to stdout: aligned tables for people, the same values as JSON, YAML or names for programs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

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
    """Print a view to stdout; on a terminal tables are cut to its width, and -o wide is not."""
    write(text_of(view, output, face=face_of(sys.stdout)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """What the reader's end can show."""

    coloured: bool = False
    columns: int | None = None  # None: no terminal, nothing is cut


def face_of(stream: TextIO) -> Face:
    """Return what a stream's reader can show."""
    if not stream.isatty():
        return Face()
    return Face(coloured=has_colour(is_tty=True), columns=shutil.get_terminal_size().columns)


def text_of(view: View, output: Format, *, face: Face = Face()) -> str:  # frozen
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
        case Format.TABLE:
            return _people(view, face, hidden=Format.WIDE)
        case Format.WIDE:
            return _people(view, Face(coloured=face.coloured), hidden=Format.TABLE)


def has_colour(*, is_tty: bool) -> bool:
    """Say whether to colour: only on a terminal that can, and never against NO_COLOR (https://no-color.org)."""
    return is_tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _people(view: View, face: Face, *, hidden: Format) -> str:
    shown = [section for section in view.sections if section.only is not hidden]
    wide = hidden is Format.TABLE
    blocks = ["".join(f"{line}\n" for line in _section(section, face, wide=wide)) for section in shown]
    return "\n".join(block for block in blocks if block)


def _section(section: Section, face: Face, *, wide: bool) -> Iterator[str]:
    if section.title:
        yield section.title
    for text in section.text:
        yield from (_shown(line, face) for line in _wrapped(text, face.columns))
    if section.columns:
        header, *rows = _aligned(section, wide=wide)
        yield _cut(header, face.columns)
        yield from (_shown(row, face) for row in rows)


def _wrapped(line: str, columns: int | None) -> Iterator[str]:
    if columns is None or len(line) <= columns:
        yield line
        return
    import textwrap

    margin = " " * (len(line) - len(line.lstrip()))
    yield from textwrap.wrap(line, columns, subsequent_indent=margin, break_on_hyphens=False)


def _shown(line: str, face: Face) -> str:
    text = _cut(line, face.columns)
    return paint(text) if face.coloured else text


def _cut(line: str, columns: int | None) -> str:
    return line if columns is None or len(line) <= columns else line[: columns - 1] + "…"


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
