"""The Replicas panel as a table: what each replica is, carries, and why it is so."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.tui.cells import Cell, Column, Layout, Row, Span, Table, Tone, cell
from fleetctl.units import format_duration, format_usd

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.replica import Replica
    from fleetctl.model.status import FleetStatus, ReplicaStatus
    from fleetctl.tui.glyphs import Canvas, Glyphs

_GONE_SHOWN = timedelta(minutes=2)  # long enough to see it go; `ls` and `why` know it for an hour
_KV_FULL = 0.9  # preemptions come soon after

_COLUMNS = (
    Column(title="ID"),
    Column(title="LANE", since=Layout.NORMAL),
    Column(title="GPU", since=Layout.NORMAL),
    Column(title="MARKET"),
    Column(title="AGE", is_right=True),
    Column(title="STATE"),
    Column(title="KV%", is_right=True),
    Column(title="RUN", is_right=True, since=Layout.NORMAL),
    Column(title="WAIT", is_right=True, since=Layout.NORMAL),
    Column(title="IN-FLIGHT", is_right=True),
    Column(title="$/h", is_right=True, since=Layout.WIDE),
    Column(title="REASON", is_flexible=True),
)

_STATE_TONES = {
    ReplicaState.PENDING: Tone.WARN,
    ReplicaState.BOOTING: Tone.WARN,
    ReplicaState.WARMING: Tone.WARN,
    ReplicaState.READY: Tone.GOOD,
    ReplicaState.DRAINING: Tone.WARN,
    ReplicaState.STOPPING: Tone.WARN,
    ReplicaState.GONE: Tone.DIM,
    ReplicaState.FAILED: Tone.BAD,
}


def replicas_table(status: FleetStatus, canvas: Canvas, *, now: datetime, is_stale: bool) -> Table:
    """Return the replicas by lane and number, so that no state change moves a row."""
    order = {lane.name: number for number, lane in enumerate(status.lanes)}
    shown = sorted(
        (r for r in status.replicas if is_shown(r.record, now=now)),
        key=lambda r: (order.get(r.record.lane, len(order)), r.record.lane, number_of(r.record.id)),
    )
    rows = tuple(_row(replica, now=now, marks=canvas.marks, is_stale=is_stale) for replica in shown)
    return Table(columns=_COLUMNS, rows=rows).within(canvas.layout)


def is_shown(record: Replica, *, now: datetime) -> bool:
    """Whether it is live, failed, or left just now."""
    return record.state is not ReplicaState.GONE or now - record.changed_at < _GONE_SHOWN


def number_of(replica_id: str) -> tuple[int, str]:
    """Return what sorts short-2 before short-10."""
    found = re.search(r"(\d+)$", replica_id)
    return (int(found[1]) if found else 0, replica_id)


def countdown(seconds: float) -> str:
    """Return minutes and seconds left, "01:37"; never less than nothing."""
    whole = max(0, int(seconds))
    return f"{whole // 60:02d}:{whole % 60:02d}"


def _row(replica: ReplicaStatus, *, now: datetime, marks: Glyphs, is_stale: bool) -> Row:
    record, engine = replica.record, replica.engine
    unknown = cell(marks.none, Tone.DIM)
    has_figures = engine.validity is Validity.OK and not is_stale
    tone = Tone.PLAIN if record.state.is_live else Tone.DIM
    return Row(
        key=record.id,
        cells=(
            cell(record.id, tone),
            cell(record.lane, tone),
            cell(record.gpu, tone),
            cell(record.market.value, tone),
            cell(_age(record, now=now), tone),
            _state(record, marks, is_stale=is_stale),
            cell(f"{engine.kv_usage * 100:.0f}", _kv_tone(engine.kv_usage)) if has_figures else unknown,
            _count(engine.running) if has_figures else unknown,
            _count(engine.waiting) if has_figures else unknown,
            unknown if is_stale else _count(replica.in_flight),
            cell(format_usd(record.price_usd_per_hour), tone),
            _reason(record, now=now),
        ),
    )


def _age(record: Replica, *, now: datetime) -> str:
    return format_duration(max(0, int((now - record.created_at).total_seconds())))


def _state(record: Replica, marks: Glyphs, *, is_stale: bool) -> Cell:
    tone = Tone.DIM if is_stale else _STATE_TONES[record.state]
    dot = marks.dot if record.state is ReplicaState.READY else marks.ring
    # A healthy word needs no colour beside its dot.
    word = Tone.PLAIN if tone is Tone.GOOD else tone
    return Cell(spans=((f"{dot} ", tone), (record.state.value, word)))


def _kv_tone(usage: float) -> Tone:
    return Tone.WARN if usage >= _KV_FULL else Tone.PLAIN


def _count(value: int) -> Cell:
    return cell(str(value), Tone.PLAIN if value else Tone.DIM)


def _reason(record: Replica, *, now: datetime) -> Cell:
    spans: list[Span] = []
    if record.notice_deadline is not None and record.state.is_live:
        left_s = (record.notice_deadline - now).total_seconds()
        spans.append((f"taken in {countdown(left_s)} ", Tone.WARN))
    if record.drain_requested and record.state is ReplicaState.READY:
        spans.append(("drain asked for ", Tone.WARN))
    if record.fault:
        spans.append((record.fault, Tone.BAD))
    elif record.reason:
        spans.append((record.reason, Tone.DIM))
    return Cell(spans=tuple(spans))
