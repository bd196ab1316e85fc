"""Pages that need nothing else: no script, no network; whatever stands in them is escaped."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fleetctl.views.table import NOTHING, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleetctl.views.table import Cell, Table

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
svg { width: 100%; margin: .5rem 0; } .title { font-weight: 600; font-size: 13px; } .tick { font-size: 11px; fill: #555; }
.grid { stroke: #e3e3e3; } .bad { color: #b00020; } .warn { color: #9a5b00; } .dim { color: #767676; }
"""
_MARKED = frozenset((Tone.BAD, Tone.WARN, Tone.DIM))


def web_page(title: str, parts: Iterable[str]) -> Iterator[str]:
    """Yield the page's lines, these parts in its body below the title; they are HTML already."""
    shown = html.escape(title)
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{shown}</title>'
    yield f"<style>{STYLE}</style></head><body><h1>{shown}</h1>"
    yield from parts
    yield "</body></html>"


def paragraph(text: str, tone: Tone = Tone.PLAIN) -> str:
    """Return a paragraph."""
    return f"<p{_class(tone)}>{html.escape(text)}</p>"


def listed(texts: Iterable[str]) -> str:
    """Return a list of points; nothing without any."""
    points = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return f"<ul>{points}</ul>" if points else ""


def html_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{html.escape(each)}</th>" for each in columns)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def toned_table(table: Table) -> str:
    """Return a table of cells, in the tones that mark something."""
    head = "".join(f"<th>{html.escape(column.title)}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(_cell(each) for each in row.cells)}</tr>" for row in table.rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(cell: Cell) -> str:
    tone = cell.spans[0][1] if cell.spans else Tone.PLAIN
    return f"<td{_class(tone)}>{html.escape(cell.text or NOTHING)}</td>"


def _class(tone: Tone) -> str:
    return f' class="{tone.value}"' if tone in _MARKED else ""
