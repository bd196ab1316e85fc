"""The journal, and explanations from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.codec import to_plain
from fleetctl.core.conditions import lane_condition
from fleetctl.core.disruption import notice_text
from fleetctl.core.lane_figures import lane_streams
from fleetctl.model.subject import FLEET
from fleetctl.printable import printable
from fleetctl.units import format_ready
from fleetctl.views.boot import phases_text
from fleetctl.views.budget import format_budget
from fleetctl.views.bursts import measured_line
from fleetctl.views.decisions import EVENTS, action_cell, decisions_table
from fleetctl.views.figures import format_age, format_clock_time, format_inputs
from fleetctl.views.replicas import node_text
from fleetctl.views.streams import stream_line
from fleetctl.views.tiers import tier_lines
from fleetctl.views.values import lane_value, replica_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from fleetctl.model.journal import JournalEntry
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.status import LaneStatus
    from fleetctl.operations.fleets import Explanation


def events_view(entries: Sequence[JournalEntry], *, now: datetime) -> View:
    """Return `events`: a line an entry, oldest first."""
    return View(
        value=list(entries),
        names=tuple(str(e.seq) for e in entries),
        sections=(section(decisions_table(entries, EVENTS, time=lambda at: format_clock_time(at, now))),),
    )


def why_view(found: Explanation, *, now: datetime) -> View:
    """Return `why`: the state, the plan's grounds, and the decisions with their inputs."""
    sections = [lines(*_state(found, now))]
    if found.plan is not None:
        plan = found.plan
        grounds = (
            f"Planned  {plan.replicas} x {plan.gpu} ({_parallel(plan)}), bound by {plan.constraint}",
            *(f"         {reason}" for reason in plan.reasons),
        )
        sections.append(lines(*grounds))
    decided = [line for entry in found.entries for line in _decision(entry, now)]
    sections.append(lines(*(decided or ["no decision on it yet"]), title="Decisions, newest last" if decided else ""))
    value = {
        **to_plain(found),
        "lane": lane_value(found.lane) if found.lane is not None else None,
        "replica": replica_value(found.replica) if found.replica is not None else None,
    }
    return View(value=value, names=tuple(str(e.seq) for e in found.entries), sections=tuple(sections))


def _parallel(plan: LanePlan) -> str:
    return f"TP {plan.tensor_parallel}" + (f", PP {plan.stages}" if plan.stages > 1 else "")


def plain_line(entry: JournalEntry, *, now: datetime) -> str:
    """Return one entry as `events --follow` prints it; columns are as wide as usual names are."""
    at = format_clock_time(entry.at, now)
    return printable(f"{at:<8}  {entry.subject.name:<10}  {action_cell(entry).text:<12}  {entry.reason}")


def _state(found: Explanation, now: datetime) -> Iterator[str]:
    if found.replica is not None:
        record = found.replica.record
        yield f"{record.id}: {record.state} for {format_age(record.changed_at, now)}, {record.market}, {record.gpu}"
        if where := node_text(record):
            yield f"Node     {where}"
        if phases := phases_text(found.replica, now):
            yield f"Start    {phases}"
        if found.replica.boot_concern:
            yield f"         {found.replica.boot_concern}"
        if found.replica.pending_reason and record.state.is_live:
            yield f"Waits    {found.replica.pending_reason}"
        if record.notice is not None and record.state.is_live:
            yield f"Notice   {notice_text(record.notice, now)}"
    elif found.lane is not None:
        yield from _lane_state(found.lane)
    else:
        yield f"{found.fleet if found.subject == FLEET else found.subject}:"
    if found.now:
        yield f"Now      {found.now}"


def _lane_state(lane: LaneStatus) -> Iterator[str]:
    condition = lane_condition(lane)
    yield f"{lane.name}: {condition.type}, {format_ready(lane.ready, lane.wanted)} ({lane.spot} on spot)"
    if condition.message:
        yield f"         {condition.message}"
    if lane.model:
        yield f"Model    {lane.model}"
    if lane.budget is not None:
        yield f"Budget   {format_budget(lane.budget)}"
    if streams := stream_line(lane_streams(lane)):
        yield f"Streams  {streams}"
    if arrivals := measured_line(lane.arrivals):
        yield f"Arrivals {arrivals}"
    for number, tier in enumerate(tier_lines(lane.traffic)):
        yield f"{'' if number else 'Tiers':<8} {tier}"


def _decision(entry: JournalEntry, now: datetime) -> Iterator[str]:
    yield f"{format_clock_time(entry.at, now)}  {entry.subject}: {action_cell(entry).text}"
    yield f"          because {entry.reason}"
    inputs = {name: value for name, value in entry.inputs.items() if name != "rejected"}
    if inputs:
        yield f"          given {format_inputs(inputs)}"
    if "rejected" in entry.inputs:
        yield f"          not   {entry.inputs['rejected']}"
