"""The journal, and explanations from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli import cells
from fleetctl.cli.output import View, lines, table
from fleetctl.core.conditions import lane_condition
from fleetctl.model.subject import FLEET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from fleetctl.cli.output import Section
    from fleetctl.model.decision import JournalEntry
    from fleetctl.operations.fleets import Explanation

_COLUMNS = "TIME SUBJECT ACTION +KIND +>SEQ REASON +INPUTS"


def events_view(entries: Sequence[JournalEntry], *, now: datetime) -> View:
    """Return `events`: a line an entry, oldest first."""
    return View(value=list(entries), names=tuple(str(e.seq) for e in entries), sections=(_entries(entries, now),))


def why_view(found: Explanation, *, now: datetime) -> View:
    """Return `why`: the state, the plan's grounds, and the decisions with their inputs."""
    sections = [lines(*_state(found, now))]
    if found.plan is not None:
        plan = found.plan
        grounds = (
            f"Planned  {plan.replicas} x {plan.gpu} (TP {plan.tensor_parallel}), bound by {plan.constraint}",
            *(f"         {reason}" for reason in plan.reasons),
        )
        sections.append(lines(*grounds))
    told = [line for entry in found.entries for line in _told(entry, now)]
    sections.append(lines(*(told or ["no decision on it yet"]), title="Decisions, newest last" if told else ""))
    return View(value=found, names=tuple(str(e.seq) for e in found.entries), sections=tuple(sections))


def plain_line(entry: JournalEntry, *, now: datetime) -> str:
    """Return one entry as `events --follow` prints it; columns are as wide as usual names are."""
    return f"{cells.clock_time(entry.at, now):<8}  {entry.subject.name:<10}  {_action(entry):<12}  {entry.reason}"


def _entries(entries: Sequence[JournalEntry], now: datetime) -> Section:
    rows = (
        (cells.clock_time(e.at, now), e.subject.name, _action(e), e.kind, str(e.seq), e.reason, cells.inputs(e.inputs))
        for e in entries
    )
    return table(_COLUMNS, rows)


def _state(found: Explanation, now: datetime) -> Iterator[str]:
    if found.replica is not None:
        record = found.replica.record
        yield f"{record.id}: {record.state} for {cells.age(record.changed_at, now)}, {record.market}, {record.gpu}"
    elif found.lane is not None:
        lane = found.lane
        condition = lane_condition(lane)
        yield f"{lane.name}: {condition.type}, {lane.ready} of {lane.wanted} replicas ready ({lane.spot} on spot)"
        if condition.message:
            yield f"         {condition.message}"
    else:
        yield f"{found.fleet if found.subject == FLEET else found.subject}:"
    if found.now:
        yield f"Now      {found.now}"


def _told(entry: JournalEntry, now: datetime) -> Iterator[str]:
    yield f"{cells.clock_time(entry.at, now)}  {entry.subject}: {_action(entry)}"
    yield f"          because {entry.reason}"
    if entry.inputs:
        yield f"          given {cells.inputs(entry.inputs)}"


def _action(entry: JournalEntry) -> str:
    marks = (" (shadow)" if entry.shadow else "") + ("" if entry.ok else " FAILED")
    return entry.action + marks
