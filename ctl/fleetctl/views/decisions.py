"""The columns of the journal: what was done, or would have been, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.views.figures import format_inputs
from fleetctl.views.table import Align, Cell, Column, Layout, Span, Table, Tone, cell, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

_KIND_TONES = {
    EntryKind.ERROR: Tone.BAD,
    EntryKind.BREACH: Tone.WARN,
    EntryKind.STREAM: Tone.WARN,
    EntryKind.EVICTION: Tone.WARN,
    EntryKind.NOTICE: Tone.WARN,
    EntryKind.OPERATOR: Tone.STRONG,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """A journal entry, and its time as the reader's clock tells it."""

    entry: JournalEntry
    time: str


def decisions_table(
    entries: Iterable[JournalEntry], columns: Sequence[Column[DecisionRow]], *, time: Callable[[datetime], str]
) -> Table:
    """Return the entries as they come; `time` writes an instant for the reader."""
    rows = (DecisionRow(entry=entry, time=time(entry.at)) for entry in entries)
    return fill(columns, rows, key=lambda row: str(row.entry.seq))


def action_cell(entry: JournalEntry) -> Cell:
    """Return "launch", "would launch" in shadow mode, "create failed"."""
    spans: list[Span] = [("would ", Tone.DIM)] if entry.shadow else []
    spans.append((entry.action, _KIND_TONES.get(entry.kind, Tone.PLAIN) if entry.ok else Tone.BAD))
    if not entry.ok:
        spans.append((" failed", Tone.BAD))
    return Cell(spans=tuple(spans))


TIME = Column[DecisionRow](key="time", title="TIME", cell=lambda row: cell(row.time, Tone.DIM))
SUBJECT = Column[DecisionRow](key="subject", title="SUBJECT", cell=lambda row: cell(row.entry.subject.name))
ACTION = Column[DecisionRow](key="action", title="ACTION", cell=lambda row: action_cell(row.entry))
KIND = Column[DecisionRow](key="kind", title="KIND", cell=lambda row: cell(row.entry.kind.value), since=Layout.WIDE)
SEQ = Column[DecisionRow](
    key="seq", title="SEQ", cell=lambda row: cell(str(row.entry.seq)), align=Align.RIGHT, since=Layout.WIDE
)
WHY = Column[DecisionRow](
    key="why", title="WHY", is_flexible=True,
    cell=lambda row: cell(row.entry.reason, Tone.DIM if row.entry.shadow else Tone.PLAIN),
)  # fmt: skip
INPUTS = Column[DecisionRow](
    key="inputs", title="INPUTS", cell=lambda row: cell(format_inputs(row.entry.inputs)), since=Layout.WIDE
)

# What each face shows, in order.
DECISIONS_LIVE: tuple[Column[DecisionRow], ...] = (TIME, SUBJECT, ACTION, WHY)
EVENTS: tuple[Column[DecisionRow], ...] = (TIME, SUBJECT, ACTION, KIND, SEQ, replace(WHY, title="REASON"), INPUTS)
