"""One frame of plain text: what `fleetctl top --once` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.printable import printable
from fleetctl.tui.header_view import Freshness, header_lines
from fleetctl.views.canvas import Canvas, glyphs
from fleetctl.views.decisions import DECISIONS_LIVE, decisions_table
from fleetctl.views.lanes import LANES_LIVE, lanes_table
from fleetctl.views.lines import table_lines
from fleetctl.views.replicas import REPLICAS_LIVE, ended_beyond, replicas_table
from fleetctl.views.table import Cell, Table, cut, line, titles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import tzinfo

    from fleetctl.model.status import FleetStatus
    from fleetctl.views.table import Span

_DECISIONS_SHOWN = 10


def once(status: FleetStatus, *, width: int, is_ascii: bool = False, zone: tzinfo | None = None) -> str:
    """Return the fleet as text no wider than `width`, without colour; `zone` None is this machine's own."""
    canvas = Canvas(width=width, marks=glyphs(is_ascii=is_ascii), zone=zone)
    is_stale = not status.controller_alive
    head = header_lines(status, canvas, now=status.at, freshness=Freshness(is_live=not is_stale))
    panels = (
        lanes_table(status, canvas, LANES_LIVE, is_stale=is_stale),
        replicas_table(status, canvas, REPLICAS_LIVE, now=status.at, is_stale=is_stale),
        _newest(decisions_table(status.decisions, DECISIONS_LIVE, time=canvas.clock_time)),
    )
    blocks = ["\n".join(map(_plain, head)), *("\n".join(_block(panel, canvas)) for panel in panels if panel.rows)]
    if more := ended_beyond(status, now=status.at):
        blocks.append(f"{more} more replicas have ended: fleetctl events {status.fleet}"[:width])
    text = "\n\n".join(blocks) + "\n"
    return text.encode("ascii", "replace").decode() if is_ascii else text


def _newest(table: Table) -> Table:
    return Table(columns=table.columns, rows=table.rows[-_DECISIONS_SHOWN:])


def _block(table: Table, canvas: Canvas) -> Iterator[str]:
    laid = table_lines(table, canvas.width, ellipsis=canvas.marks.ellipsis)
    heading = line(table, titles(table), laid.placed, ellipsis=canvas.marks.ellipsis)
    for spans in (heading, *map(laid.drawn, range(len(laid.lines)))):
        yield _plain(cut(Cell(spans=spans), canvas.width, ellipsis=canvas.marks.ellipsis).spans)


def _plain(spans: Iterable[Span]) -> str:
    return printable("".join(text for text, _ in spans)).rstrip()
