"""A table as the lines that it takes: its rows, and below a row what is to be read whole and had no room in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.views.table import EMPTY, Cell, Fit, Table, Tone, cut, fit, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.views.table import Row, Span

_BELOW_MAX = 2  # lines below a row: a screen of 24 has others to show


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """One line: a row of the table, or a part of what stands below it."""

    row: int  # its place among the table's rows
    below: Cell | None = None  # None: the row itself


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLines:
    """A table's lines at one width; each is drawn when it is to be seen."""

    table: Table
    width: int
    placed: Fit
    lines: tuple[TableLine, ...]
    ellipsis: str

    def drawn(self, at: int) -> tuple[Span, ...]:
        """Return the spans of a line."""
        found = self.lines[at]
        if found.below is not None:
            return ((" " * _indent(self.placed), Tone.PLAIN), *found.below.spans)
        cells = self.table.rows[found.row].cells
        has_more = at + 1 < len(self.lines) and self.lines[at + 1].below is not None
        shown = [EMPTY if has_more and each.is_whole else each for each in cells]
        return line(self.table, shown, self.placed, ellipsis=self.ellipsis)

    def first_of(self, row: int) -> int:
        """Return the line of a row; 0 where it has none."""
        return next((at for at, each in enumerate(self.lines) if each.row == row), 0)

    def last_of(self, row: int) -> int:
        """Return the last line that is a row's or stands below it."""
        return max((at for at, each in enumerate(self.lines) if each.row == row), default=0)


def table_lines(table: Table, width: int, *, ellipsis: str) -> TableLines:
    """Return the lines of a table without its heading, each as wide as this at most."""
    placed = fit(table, width)
    width_below = width - _indent(placed)
    lines: list[TableLine] = []
    for number, row in enumerate(table.rows):
        lines.append(TableLine(row=number))
        cramped = _cramped(row, placed)
        if cramped is not None and width_below > 0:
            lines += [TableLine(row=number, below=each) for each in _wrapped(cramped, width_below, ellipsis=ellipsis)]
    return TableLines(table=table, width=width, placed=placed, lines=tuple(lines), ellipsis=ellipsis)


def _indent(placed: Fit) -> int:
    """Return where lines below a row begin: under its second column, so that the first is read down at a glance."""
    return placed.widths[0] + placed.gap if len(placed.widths) > 1 else 0


def _cramped(row: Row, placed: Fit) -> Cell | None:
    pairs = zip(row.cells, placed.widths, strict=True)
    return next((each for each, width in pairs if each.is_whole and len(each) > width), None)


def _wrapped(content: Cell, width: int, *, ellipsis: str) -> Iterator[Cell]:
    text, at = content.text, 0
    for number in range(_BELOW_MAX):
        at += len(text[at:]) - len(text[at:].lstrip())
        if len(text) - at <= width or number == _BELOW_MAX - 1:
            break
        space = text.rfind(" ", at, at + width + 1)
        end = space if space > at else at + width
        yield _part(content, at, end)
        at = end
    rest = _part(content, at, len(text))
    if len(rest) > width:
        space = rest.text.rfind(" ", 0, width)
        rest = cut(rest, (space if space > 0 else width - len(ellipsis)) + len(ellipsis), ellipsis=ellipsis)
    if len(rest):
        yield rest


def _part(content: Cell, start: int, end: int) -> Cell:
    spans: list[Span] = []
    at = 0
    for text, tone in (*content.spans, *content.tail):
        if kept := text[max(0, start - at) : max(0, end - at)]:
            spans.append((kept, tone))
        at += len(text)
    return Cell(spans=tuple(spans))
