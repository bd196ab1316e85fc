"""What goes to stdout: aligned tables for people, the same values as JSON, YAML or names for programs."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

import typer

from fleetctl.errors import FleetctlError
from fleetctl.printable import is_printable, printable, printable_json
from fleetctl.views.canvas import PLAIN, Canvas
from fleetctl.views.table import NOTHING, Cell, Fit, Layout, Table, Tone, cell, cut, line, titles

if TYPE_CHECKING:
    from collections.abc import Iterator

_GAP = 2  # blanks between columns
_WRAPPED_MIN = 20  # columns, below which a text is cut and not wrapped
WIDE = Canvas(width=240, marks=PLAIN)  # for all columns; -o table leaves the wide ones out
API_VERSION = "fleetctl/v1"  # of what -o json and -o yaml print
EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE: the reader went away, as with `fleetctl events | head`


class Format(StrEnum):
    """The values of -o."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSection:
    """A titled table, or free lines."""

    title: str = ""
    table: Table | None = None
    text: tuple[Cell, ...] = ()
    only: Format | None = None  # TABLE or WIDE: shown in that one of the two alone


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One answer in every format: the value itself, its names, and its sections for people."""

    value: object
    names: tuple[str, ...] = ()
    sections: tuple[OutputSection, ...] = field(default_factory=tuple)


def section(table: Table, *, title: str = "") -> OutputSection:
    """Return a table as a section; its columns since Layout.WIDE are kept for -o wide."""
    return OutputSection(title=title, table=table)


def lines(*text: str | Cell, title: str = "", only: Format | None = None) -> OutputSection:
    """Return free lines."""
    return OutputSection(
        title=title, text=tuple(cell(line) if isinstance(line, str) else line for line in text), only=only
    )


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
    except OSError as exc:
        abandon_stdout()
        raise FleetctlError(f"stdout cannot be written: {exc.strerror}") from None


def abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain about a reader that left."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """The terminal's abilities."""

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

            return printable_json(msgspec.json.format(encode(versioned(view.value)), indent=2).decode()) + "\n"
        case Format.YAML:
            import yaml

            plain = versioned(view.value)
            text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
            return text if is_printable(text) else yaml.safe_dump(plain, sort_keys=False, allow_unicode=False)
        case Format.NAME:
            return "".join(f"{printable(name)}\n" for name in view.names)
        case Format.TABLE:
            return _people(view, face, hidden=Format.WIDE)
        case Format.WIDE:
            return _people(view, Face(coloured=face.coloured), hidden=Format.TABLE)


def versioned(value: object) -> object:
    """Return a value as programs get it: a plain object, or each of a list of them, led by the version of its shape.

    Keys may be added under one version; none is renamed, removed or given another meaning.
    """
    from fleetctl.codec import to_plain

    plain = to_plain(value)
    if isinstance(plain, dict):
        return {"apiVersion": API_VERSION, **plain}
    return [versioned(each) for each in plain] if isinstance(plain, list | tuple) else plain


def json_line(view: View) -> str:
    """Return a view's value as JSON on one line."""
    from fleetctl.codec import encode

    return printable_json(encode(versioned(view.value)).decode()) + "\n"


def has_colour(*, is_tty: bool) -> bool:
    """Say whether to colour: only on a terminal that can, and never against NO_COLOR (https://no-color.org)."""
    return is_tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def _people(view: View, face: Face, *, hidden: Format) -> str:
    shown = [section for section in view.sections if section.only is not hidden]
    wide = hidden is Format.TABLE
    blocks = ["".join(f"{line}\n" for line in _section(section, face, wide=wide)) for section in shown]
    return "\n".join(block for block in blocks if block)


def _section(section: OutputSection, face: Face, *, wide: bool) -> Iterator[str]:
    if section.title:
        yield printable(section.title)
    for text in section.text:
        yield from _paragraph(text, face)
    if section.table is not None and section.table.columns:
        table = section.table.within(Layout.WIDE if wide else Layout.NORMAL)
        header, *rows = _aligned(table)
        yield _painted(header, Face(columns=face.columns))
        for shown, row in zip(rows, table.rows, strict=True):
            yield from _row(shown, row.cells[-1], face)


def _row(shown: Cell, last: Cell, face: Face) -> Iterator[str]:
    """Yield a row; what of a last cell that is to be read whole has no room goes on below it, in its own column."""
    width = len(shown.text.rstrip())
    start = width - len(last.text.rstrip())
    if not last.is_whole or face.columns is None or width <= face.columns or face.columns - start < _WRAPPED_MIN:
        yield _painted(shown, face)
        return
    import textwrap

    first, *below = textwrap.wrap(last.text, face.columns - start, break_on_hyphens=False)
    yield _painted(cut(shown, start + len(first), ellipsis=""), face)
    yield from (" " * start + text for text in below)


def _paragraph(shown: Cell, face: Face) -> Iterator[str]:
    """Wrap a line that is too long for the terminal; a wrapped one is plain."""
    if face.columns is None or len(shown) <= face.columns:
        yield _painted(shown, face)
        return
    import textwrap

    text = shown.text
    margin = " " * (len(text) - len(text.lstrip()))
    yield from textwrap.wrap(text, face.columns, subsequent_indent=margin, break_on_hyphens=False)


def _aligned(shown: Table) -> Iterator[Cell]:
    """Yield the heading and the rows, each as one cell."""
    grid = [
        titles(shown),
        *(tuple(found if found.text else cell(NOTHING) for found in row.cells) for row in shown.rows),
    ]
    widths = tuple(max(len(row[at]) for row in grid) for at in range(len(shown.columns)))
    for row in grid:
        yield Cell(spans=line(shown, row, Fit(widths=widths, gap=_GAP), ellipsis="…"))


_SGR = {Tone.GOOD: "32", Tone.WARN: "33", Tone.BAD: "31"}  # the others are for screens that draw more than words


def _painted(shown: Cell, face: Face) -> str:
    """Return a line cut to the terminal, without trailing blanks, in colour where there is any."""
    width = len(shown.text.rstrip())
    fits = face.columns is None or width <= face.columns
    kept = shown if fits else cut(shown, face.columns or width, ellipsis="…")
    if not face.coloured:
        return kept.text.rstrip()
    parts = (f"\x1b[{_SGR[tone]}m{text}\x1b[0m" if tone in _SGR and text.strip() else text for text, tone in kept.spans)
    return "".join(parts).rstrip()
