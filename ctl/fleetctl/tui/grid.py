"""A panel of rows with a cursor that holds on to its row, whatever comes, goes or changes around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from fleetctl.tui.tones import TONE_CLASSES, tone_styles
from fleetctl.views.lines import TableLines, table_lines
from fleetctl.views.table import Row, Table, Tone, cell, line, titles

if TYPE_CHECKING:
    from rich.style import Style
    from textual import events

    from fleetctl.views.canvas import Glyphs

_EDGE = 1  # the column left of the first cell holds the mark


class Grid(ScrollView, can_focus=True):
    """Draws a Table, its heading pinned. It draws the visible rows only, so that a large fleet costs no more."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*TONE_CLASSES, "grid--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="grid.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="grid.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="grid.page-up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="grid.page-down"),
        Binding("home,g", "edge(-1)", "First row", show=False, id="grid.first"),
        Binding("end,G", "edge(1)", "Last row", show=False, id="grid.last"),
    ]

    def __init__(
        self, panel: str, *, title: str, marks: Glyphs, has_marks: bool = False, follows_tail: bool = False
    ) -> None:
        super().__init__(id=panel)
        self.border_title = title
        self._title = title
        self._marks = marks
        self._has_marks = has_marks
        self._follows_tail = follows_tail  # the cursor stays on the newest row until it is moved off it
        self._table = Table()
        self._laid: TableLines | None = None  # the table's lines at the width of now; None: not known yet
        self._given: tuple[Table, str, str, str, frozenset[str]] | None = None  # what the last `show` was given
        self._empty = self._more = ""
        self.pattern = ""
        self.marked: set[str] = set()
        self.cursor_key = ""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows shown, the filter applied."""
        return self._table.rows

    def show(self, table: Table, *, empty: str, more: str = "") -> None:
        """Replace what is shown; the cursor and the scroll position stay with their row. `more`: what the title says is left out."""
        given = (table, empty, more, self.pattern, frozenset(self.marked))
        if given == self._given:
            return  # a still fleet costs nothing to look at
        before, was_at, was_line = len(self.rows), self._cursor_at(), self._cursor_line()
        was_last = before == 0 or was_at == before - 1
        self._table, self._empty, self._more = table.matching(self.pattern), empty, more
        self.marked &= {row.key for row in table.rows}
        keys = [row.key for row in self.rows]
        if keys and self._follows_tail and was_last:
            self.cursor_key = keys[-1]
        elif keys and self.cursor_key not in keys:
            self.cursor_key = keys[min(max(0, was_at), len(keys) - 1)]
        self._lay_out()
        moved = self._cursor_line() - was_line
        if self._follows_tail and was_last:
            self._reveal()
        elif before and moved and self.scroll_offset.y:
            self.scroll_to(y=self.scroll_offset.y + moved, animate=False)
        self._given = (table, empty, more, self.pattern, frozenset(self.marked))
        self._entitle()
        self.refresh()

    def filter(self, pattern: str) -> None:
        """Set the pattern; the next `show` applies it."""
        self.pattern = pattern

    def toggle_mark(self) -> None:
        """Mark or unmark the cursor's row, and go on to the next."""
        if self._has_marks and self.cursor_key:
            self.marked ^= {self.cursor_key}
            self.action_move(1)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._put(self._cursor_at() + rows)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what is visible."""
        self._put(self._cursor_at() + pages * max(1, self.size.height - 2))

    def action_edge(self, side: int) -> None:
        """Move the cursor to the first or last row."""
        self._put(0 if side < 0 else len(self.rows) - 1)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row under the mouse."""
        offset = event.get_content_offset(self)
        at = offset.y - 1 + int(self.scroll_offset.y) if offset is not None and offset.y > 0 else -1
        if self._laid is not None and 0 <= at < len(self._laid.lines):
            self._put(self._laid.lines[at].row)

    def on_resize(self) -> None:
        """Lay the lines out anew, and keep the cursor's row in sight."""
        self._lay_out()
        if self._follows_tail:
            self._reveal()

    def render_line(self, y: int) -> Strip:
        """Draw one visible line: the heading, a row, or nothing."""
        width = self.scrollable_content_region.width
        styles = tone_styles(self)
        laid = self._laid
        if laid is None or laid.width != width - _EDGE:  # a scrollbar has come or gone
            laid = self._laid = table_lines(self._table, width - _EDGE, ellipsis=self._marks.ellipsis)
        at = y - 1 + int(self.scroll_offset.y)
        base = self.rich_style
        if y == 0:
            heading = line(self._table, titles(self._table), laid.placed, ellipsis=self._marks.ellipsis)
            return self._strip(((" " * _EDGE, Tone.PLAIN), *(heading if self.rows else ())), styles, base, width)
        if not 0 <= at < len(laid.lines):
            note = cell(self._empty, Tone.DIM) if y == 1 and not self.rows else cell("")
            return self._strip(((" " * _EDGE, Tone.PLAIN), *note.spans), styles, base, width)
        row = self.rows[laid.lines[at].row]
        if row.key == self.cursor_key and self.has_focus:
            base += self.get_component_rich_style("grid--cursor")
        mark = self._marks.mark if row.key in self.marked else " "
        return self._strip(((mark, Tone.STRONG), *laid.drawn(at)), styles, base, width)

    def _strip(self, spans: tuple[tuple[str, Tone], ...], styles: dict[Tone, Style], base: Style, width: int) -> Strip:
        segments = [Segment(text, base + styles[tone]) for text, tone in spans if text]
        return Strip(segments).adjust_cell_length(width, base)

    def _lay_out(self) -> None:
        """Have the lines as wide as there is room."""
        width = self.scrollable_content_region.width - _EDGE
        self._laid = table_lines(self._table, width, ellipsis=self._marks.ellipsis)
        self.virtual_size = Size(self.size.width, len(self._laid.lines) + 1)

    def _cursor_line(self) -> int:
        return self._laid.first_of(self._cursor_at()) if self._laid is not None else 0

    def _cursor_at(self) -> int:
        return next((i for i, row in enumerate(self.rows) if row.key == self.cursor_key), 0)

    def _put(self, at: int) -> None:
        if not self.rows:
            return
        self.cursor_key = self.rows[min(max(0, at), len(self.rows) - 1)].key
        self._reveal()
        self.refresh()

    def _reveal(self) -> None:
        """Scroll so that the cursor's row is in sight, below the pinned heading."""
        visible = max(1, self.size.height - 1)
        top, at = int(self.scroll_offset.y), self._cursor_line()
        last = self._laid.last_of(self._cursor_at()) if self._laid is not None else at
        if at < top:
            self.scroll_to(y=at, animate=False)
        elif last >= top + visible:
            self.scroll_to(y=min(at, last - visible + 1), animate=False)

    def _entitle(self) -> None:
        extras = [f"/{self.pattern}"] if self.pattern else []
        extras += [f"{len(self.marked)} marked"] if self.marked else []
        extras += [self._more] if self._more else []
        self.border_title = "  ".join([self._title, *extras])
