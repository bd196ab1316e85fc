"""The Decisions panel as a table: what was done, or would have been, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.decision import EntryKind
from fleetctl.tui.cells import Cell, Column, Row, Span, Table, Tone, cell

if TYPE_CHECKING:
    from datetime import tzinfo

    from fleetctl.model.decision import JournalEntry
    from fleetctl.model.status import FleetStatus

_COLUMNS = (
    Column(title="TIME"),
    Column(title="SUBJECT"),
    Column(title="ACTION"),
    Column(title="WHY", is_flexible=True),
)
_KIND_TONES = {EntryKind.ERROR: Tone.BAD, EntryKind.NOTICE: Tone.WARN, EntryKind.OPERATOR: Tone.STRONG}


def decisions_table(status: FleetStatus, *, zone: tzinfo | None) -> Table:
    """Return the journal's end, newest last; the clock is the reader's own."""
    return Table(columns=_COLUMNS, rows=tuple(_row(entry, zone=zone) for entry in status.decisions))


def _row(entry: JournalEntry, *, zone: tzinfo | None) -> Row:
    return Row(
        key=str(entry.seq),
        cells=(
            cell(entry.at.astimezone(zone).strftime("%H:%M:%S"), Tone.DIM),
            cell(entry.subject.name),
            _action(entry),
            cell(entry.reason, Tone.DIM if entry.shadow else Tone.PLAIN),
        ),
    )


def _action(entry: JournalEntry) -> Cell:
    spans: list[Span] = [("would ", Tone.DIM)] if entry.shadow else []
    spans.append((entry.action, _KIND_TONES.get(entry.kind, Tone.PLAIN) if entry.ok else Tone.BAD))
    if not entry.ok:
        spans.append((" failed", Tone.BAD))
    return Cell(spans=tuple(spans))
