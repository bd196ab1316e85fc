"""Tables as values: cells with a tone, columns that know how to fill a cell and from which width on they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fleetctl.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

R = TypeVar("R")
NOTHING = "-"


class Tone(StrEnum):
    """What a colour says. Most of a screen is PLAIN: colour marks what differs."""

    PLAIN = "plain"
    FAINT = "faint"  # shapes behind the figures
    DIM = "dim"  # not to be relied on, or not of interest
    STRONG = "strong"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class Align(StrEnum):
    """Where a column's cells stand."""

    LEFT = "left"
    RIGHT = "right"
    DIVIDER = "divider"  # so that their dividers, as the slash of 212ms/300ms, stand one under another


class Layout(IntEnum):
    """How much there is room for."""

    COMPACT = 0
    NORMAL = 1
    WIDE = 2


def layout_of(width: int) -> Layout:
    """Return the layout for a terminal so many columns wide."""
    if width < 100:
        return Layout.COMPACT
    return Layout.WIDE if width >= 160 else Layout.NORMAL


Span = tuple[str, Tone]


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text in one or more tones; whoever wrote it, it can be shown as it stands."""

    spans: tuple[Span, ...]
    divider: int = 0  # characters before what Align.DIVIDER aligns
    tail: tuple[Span, ...] = ()  # a bar, say: stands behind the texts of the whole column
    is_whole: bool = False  # on a screen: what has no room in its row stands on lines below it

    def __post_init__(self) -> None:
        if not all(text.isprintable() for text, _ in self.spans):
            object.__setattr__(self, "spans", tuple((printable(text), tone) for text, tone in self.spans))

    @property
    def text(self) -> str:
        """The bare text."""
        return "".join(text for text, _ in (*self.spans, *self.tail))

    def __len__(self) -> int:
        return sum(len(text) for text, _ in (*self.spans, *self.tail))


def cell(text: str, tone: Tone = Tone.PLAIN) -> Cell:
    """Return a cell in one tone."""
    return Cell(spans=((text, tone),))


EMPTY = cell("")


# Without slots: Column[LaneRow](...) notes its type on the instance, which a frozen class with slots cannot refuse cleanly.
@dataclass(frozen=True, kw_only=True)
class Column(Generic[R]):
    """A column over rows of one type; `is_flexible` takes the width that is left, and is cut when there is none."""

    key: str
    title: str
    cell: Callable[[R], Cell]
    align: Align = Align.LEFT
    since: Layout = Layout.COMPACT
    until: Layout = Layout.WIDE
    is_flexible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row; its key is what a cursor or a mark holds on to."""

    key: str
    cells: tuple[Cell, ...]

    @property
    def text(self) -> str:
        """What a filter is matched against."""
        return " ".join(cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns and rows of one panel."""

    columns: tuple[Column[Any], ...] = ()
    rows: tuple[Row, ...] = ()

    def within(self, layout: Layout) -> Table:
        """Return the table without the columns there is no room for."""
        shown = [i for i, column in enumerate(self.columns) if column.since <= layout <= column.until]
        return Table(
            columns=tuple(self.columns[i] for i in shown),
            rows=tuple(Row(key=row.key, cells=tuple(row.cells[i] for i in shown)) for row in self.rows),
        )

    def matching(self, pattern: str) -> Table:
        """Return the rows that hold the pattern, case aside; a leading ! turns it round."""
        wanted = pattern.removeprefix("!").casefold()
        if not wanted:
            return self
        keeps_hits = not pattern.startswith("!")
        kept = tuple(row for row in self.rows if (wanted in row.text.casefold()) is keeps_hits)
        return Table(columns=self.columns, rows=kept)


def fill(columns: Sequence[Column[R]], rows: Iterable[R], *, key: Callable[[R], str]) -> Table:
    """Return a table of these rows, each column's cells aligned."""
    shown = tuple(rows)
    filled = [_aligned(column, [column.cell(row) for row in shown]) for column in columns]
    keyed = (Row(key=key(row), cells=tuple(cells[number] for cells in filled)) for number, row in enumerate(shown))
    return Table(columns=tuple(columns), rows=tuple(keyed))


def text_table(titles: str, rows: Iterable[Sequence[str | Cell]]) -> Table:
    """Return a table of rows that are written already: "LANE >RPS +OFFERING", ">" aligns right, "+" is for wide ones."""
    columns = [_text_column(at, word) for at, word in enumerate(titles.split())]
    return fill(columns, rows, key=lambda row: _as_cell(row[0]).text)


def _text_column(at: int, word: str) -> Column[Sequence[str | Cell]]:
    title = word.lstrip(">+").replace("_", " ")
    return Column(
        key=title,
        title=title,
        cell=lambda row: _as_cell(row[at]),
        align=Align.RIGHT if ">" in word else Align.LEFT,
        since=Layout.WIDE if "+" in word else Layout.COMPACT,
    )


def _as_cell(written: str | Cell) -> Cell:
    return cell(written) if isinstance(written, str) else written


def _aligned(column: Column[R], cells: list[Cell]) -> list[Cell]:
    if column.align is not Align.DIVIDER:
        return cells
    left = max((cell.divider for cell in cells), default=0)
    right = max((_width(cell) - cell.divider for cell in cells), default=0)
    return [_around_divider(cell, left=left, right=right) for cell in cells]


def _around_divider(cell: Cell, *, left: int, right: int) -> Cell:
    (first, tone), *others = cell.spans
    spans = [(" " * (left - cell.divider) + first, tone), *others]
    last, tone = spans[-1]
    spans[-1] = (last + " " * (right - (_width(cell) - cell.divider)), tone)
    return Cell(spans=(*spans, *cell.tail))


def _width(cell: Cell) -> int:
    return sum(len(text) for text, _ in cell.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Where the columns of a table stand."""

    widths: tuple[int, ...]
    gap: int


def fit(table: Table, width: int) -> Fit:
    """Return column widths for a line this wide: natural ones, two blanks apart if they fit, else one."""
    natural = [
        max([len(column.title), *(len(row.cells[i]) for row in table.rows)]) for i, column in enumerate(table.columns)
    ]
    fixed = sum(size for size, column in zip(natural, table.columns, strict=True) if not column.is_flexible)
    least = fixed + sum(len(column.title) for column in table.columns if column.is_flexible)
    gaps = max(0, len(natural) - 1)
    gap = 2 if least + 2 * gaps <= width else 1
    left = max(0, width - fixed - gap * gaps)
    widths = [left if column.is_flexible else size for size, column in zip(natural, table.columns, strict=True)]
    return Fit(widths=tuple(widths), gap=gap)


def line(table: Table, cells: Sequence[Cell], placed: Fit, *, ellipsis: str) -> tuple[Span, ...]:
    """Return one line's spans, padded and cut to the fit."""
    spans: list[Span] = []
    for number, (column, content, width) in enumerate(zip(table.columns, cells, placed.widths, strict=True)):
        if number:
            spans.append((" " * placed.gap, Tone.PLAIN))
        spans.extend(_placed(cut(content, width, ellipsis=ellipsis), width, is_right=column.align is Align.RIGHT))
    return tuple(spans)


def titles(table: Table) -> tuple[Cell, ...]:
    """Return the heading row's cells."""
    return tuple(cell(column.title, Tone.DIM) for column in table.columns)


def cut(content: Cell, width: int, *, ellipsis: str) -> Cell:
    """Return the cell no wider than this, ending in an ellipsis where something was lost."""
    if len(content) <= width:
        return content
    left = max(0, width - len(ellipsis))
    kept: list[Span] = []
    for text, tone in content.spans:
        if left > 0:
            kept.append((text[:left], tone))
        left -= len(text)
    return Cell(spans=(*kept, (ellipsis[:width], Tone.DIM)))


def _placed(content: Cell, width: int, *, is_right: bool) -> tuple[Span, ...]:
    padding = (" " * (width - len(content)), Tone.PLAIN)
    return (padding, *content.spans) if is_right else (*content.spans, padding)
