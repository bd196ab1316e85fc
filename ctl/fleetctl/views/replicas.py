"""The columns of replicas: what each is, carries, and why it is so."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.disruption import notice_text
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.model.status import ReplicaStatus
from fleetctl.model.stream import StreamFigures
from fleetctl.units import format_usd
from fleetctl.views.boot import start_text
from fleetctl.views.canvas import Canvas
from fleetctl.views.conditions import STATE_TONES
from fleetctl.views.figures import CPU, count_cell, format_age, unknown_cell
from fleetctl.views.streams import NO_STREAMS, gap_cell, stalled_cell, unit_cell
from fleetctl.views.table import Align, Cell, Column, Layout, Span, Table, Tone, cell, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.replica import Replica
    from fleetctl.model.status import FleetStatus

_GONE_SHOWN = timedelta(minutes=2)  # long enough to see it go; `ls` and `why` know it for an hour
_ENDED_SHOWN_MAX = 5  # a lane whose engine cannot start leaves one each time it is tried
_UNKNOWN = "unknown"
_KV_FULL = 0.9  # preemptions come soon after


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """A replica, and how it is looked at. Stale figures are not shown; records are."""

    replica: ReplicaStatus
    canvas: Canvas
    now: datetime
    is_stale: bool
    streams: StreamFigures = NO_STREAMS  # of its own lane's requests

    @property
    def record(self) -> Replica:
        """The replica's record."""
        return self.replica.record

    @property
    def tone(self) -> Tone:
        """The tone of what is on record: one that ended is of no interest."""
        return Tone.PLAIN if self.record.state.is_live else Tone.DIM


def replicas_table(
    status: FleetStatus,
    canvas: Canvas,
    columns: Sequence[Column[ReplicaRow]],
    *,
    now: datetime,
    is_stale: bool,
    with_gone: bool = False,
) -> Table:
    """Return the replicas by lane and number, so that no state change moves a row; those that ended below them, the latest first.

    `with_gone`: all on record, else those that `ended_shown` has.
    """
    order = {lane.name: number for number, lane in enumerate(status.lanes)}
    living = sorted(
        (r for r in status.replicas if r.record.state.is_live),
        key=lambda r: (order.get(r.record.lane, len(order)), r.record.lane, number_of(r.record.id)),
    )
    ended = _ended(status) if with_gone else ended_shown(status, now=now)
    shown = (*living, *ended)
    streams = {} if is_stale else {x.name: x.traffic.replica_streams for x in status.lanes if x.traffic is not None}
    rows = (
        ReplicaRow(
            replica=replica,
            canvas=canvas,
            now=now,
            is_stale=is_stale,
            streams=streams.get(replica.record.lane, {}).get(replica.record.id, NO_STREAMS),
        )
        for replica in shown
    )
    return fill(columns, rows, key=lambda row: row.record.id).within(canvas.layout)


def ended_shown(status: FleetStatus, *, now: datetime) -> tuple[ReplicaStatus, ...]:
    """Return the few that failed, or left just now, the latest first."""
    return _recent(status, now=now)[:_ENDED_SHOWN_MAX]


def ended_beyond(status: FleetStatus, *, now: datetime) -> int:
    """Return how many more have failed, or left just now, than `ended_shown` has."""
    return max(0, len(_recent(status, now=now)) - _ENDED_SHOWN_MAX)


def _recent(status: FleetStatus, *, now: datetime) -> tuple[ReplicaStatus, ...]:
    return tuple(
        r for r in _ended(status) if r.record.state is not ReplicaState.GONE or now - r.record.changed_at < _GONE_SHOWN
    )


def _ended(status: FleetStatus) -> tuple[ReplicaStatus, ...]:
    ended = sorted((r for r in status.replicas if not r.record.state.is_live), key=lambda r: number_of(r.record.id))
    return tuple(sorted(ended, key=lambda r: r.record.changed_at, reverse=True))


def number_of(replica_id: str) -> tuple[int, str]:
    """Return what sorts r2 before r10."""
    found = re.search(r"(\d+)$", replica_id)
    return (int(found[1]) if found else 0, replica_id)


def engine_text(record: Replica) -> str:
    """Return what a replica's engine is: "vllm 0.32.0"; only its name until it has said which version it is."""
    return f"{record.engine} {record.reported_version}".rstrip()


def node_text(record: Replica) -> str:
    """Return where a replica is: "i-1 on machine m-1, zone a, GPUs 0 and 1, with members m-2, m-3"; empty: not known."""
    parts = [f"{record.node_id} on machine {record.machine_id}" if record.machine_id else record.node_id]
    if record.zone:
        parts.append(f"zone {record.zone}")
    if record.gpu_indices:
        parts.append(f"GPU{'s' * (len(record.gpu_indices) > 1)} {', '.join(map(str, record.gpu_indices))}")
    if record.cpus:
        parts.append(f"CPU{'s' * (len(record.cpus) > 1)} {_ranges(record.cpus)}")
    if record.members:
        parts.append(f"with members {', '.join(record.members)}")
    return ", ".join(parts) if record.node_id else ""


def countdown(seconds: float) -> str:
    """Return minutes and seconds left, "01:37"; never less than nothing."""
    whole = max(0, int(seconds))
    return f"{whole // 60:02d}:{whole % 60:02d}"


def _price(row: ReplicaRow) -> str:
    return format_usd(row.record.price_usd_per_hour) if row.record.is_price_known else _UNKNOWN


def _recorded(text: Callable[[ReplicaRow], str]) -> Callable[[ReplicaRow], Cell]:
    return lambda row: cell(text(row), row.tone)


def _engine(draw: Callable[[EngineSignals], Cell]) -> Callable[[ReplicaRow], Cell]:
    """Return what draws an engine's figure, if it is current."""

    def drawn(row: ReplicaRow) -> Cell:
        engine = row.replica.engine
        return draw(engine) if engine.validity is Validity.OK and not row.is_stale else unknown_cell()

    return drawn


def _state(row: ReplicaRow) -> Cell:
    state, marks = row.record.state, row.canvas.marks
    tone = Tone.DIM if row.is_stale else STATE_TONES[state]
    dot = marks.dot if state is ReplicaState.READY else marks.ring
    if not dot:
        return cell(state.value, tone)
    # A healthy word needs no colour beside its dot.
    return Cell(spans=((f"{dot} ", tone), (state.value, Tone.PLAIN if tone is Tone.GOOD else tone)))


def _kv(engine: EngineSignals) -> Cell:
    if engine.kv_usage is None:
        return unknown_cell()
    return cell(f"{engine.kv_usage * 100:.0f}", Tone.WARN if engine.kv_usage >= _KV_FULL else Tone.PLAIN)


def _boot_text(replica: ReplicaStatus, now: datetime) -> str:
    """Return how far a start has come and what it waits for: "image 40 % for 10s, ImagePullBackOff"; empty: nothing said."""
    text, waits = start_text(replica, now), replica.pending_reason
    is_repeated = not waits or (replica.boot is not None and waits == replica.boot.phase)
    return text if is_repeated else f"{text}, {waits}" if text else waits


def _reason(row: ReplicaRow) -> Cell:
    record = row.record
    spans: list[Span] = []
    if record.notice_deadline is not None and record.state.is_live:
        left_s = (record.notice_deadline - row.now).total_seconds()
        spans.append((f"taken in {countdown(left_s)} ", Tone.WARN))
    elif record.notice is not None and record.state.is_live:
        spans.append((f"{notice_text(record.notice, row.now)}; ", Tone.WARN))
    if record.drain_requested and record.state is ReplicaState.READY:
        spans.append(("drain asked for ", Tone.WARN))
    if record.state.is_live and (waits := _boot_text(row.replica, row.now)) and not row.is_stale:
        spans.append((f"{waits} ", Tone.WARN if row.replica.boot_concern else Tone.PLAIN))
    if record.fault:
        spans.append((record.fault, Tone.BAD))
    elif record.reason:
        spans.append((record.reason, Tone.DIM))
    # Of one that serves the reason is how it came to; of every other it is what one looks for.
    is_whole = record.state is not ReplicaState.READY or any(tone in (Tone.WARN, Tone.BAD) for _, tone in spans)
    return Cell(spans=tuple(spans), is_whole=is_whole)


def _gpu(record: Replica) -> str:
    return CPU if OfferingKey.parse(record.offering).is_on_cpu else record.gpu or _UNKNOWN


ID = Column[ReplicaRow](key="id", title="ID", cell=_recorded(lambda row: row.record.id))
LANE = Column[ReplicaRow](key="lane", title="LANE", cell=_recorded(lambda row: row.record.lane))
GPU = Column[ReplicaRow](key="gpu", title="GPU", cell=_recorded(lambda row: _gpu(row.record)), since=Layout.NORMAL)
MARKET = Column[ReplicaRow](key="market", title="MARKET", cell=_recorded(lambda row: row.record.market.value))
AGE = Column[ReplicaRow](
    key="age", title="AGE", cell=_recorded(lambda row: format_age(row.record.created_at, row.now)), align=Align.RIGHT
)
STATE = Column[ReplicaRow](key="state", title="STATE", cell=_state)
KV = Column[ReplicaRow](key="kv", title="KV%", cell=_engine(_kv), align=Align.RIGHT)
RUNNING = Column[ReplicaRow](
    key="running", title="RUN", cell=_engine(lambda engine: count_cell(engine.running)), align=Align.RIGHT,
    since=Layout.NORMAL,
)  # fmt: skip
WAITING = Column[ReplicaRow](
    key="waiting", title="WAIT", cell=_engine(lambda engine: count_cell(engine.waiting)), align=Align.RIGHT,
    since=Layout.NORMAL,
)  # fmt: skip
IN_FLIGHT = Column[ReplicaRow](
    key="in_flight", title="IN-FLIGHT", align=Align.RIGHT,
    cell=lambda row: unknown_cell() if row.is_stale else count_cell(row.replica.in_flight),
)  # fmt: skip
GAP = Column[ReplicaRow](
    key="gap_p99", title="GAP P99", cell=lambda row: gap_cell(row.streams, 2, row.canvas.marks), align=Align.RIGHT,
    since=Layout.WIDE,
)  # fmt: skip
CHUNK = Column[ReplicaRow](
    key="chunk", title="TOK/CHUNK", cell=lambda row: unit_cell(row.streams), align=Align.RIGHT, since=Layout.WIDE
)
STALLED = Column[ReplicaRow](
    key="stalled", title="STALLED", cell=lambda row: stalled_cell(row.streams), align=Align.RIGHT, since=Layout.WIDE
)
PRICE = Column[ReplicaRow](
    key="price", title="$/h", cell=_recorded(_price), align=Align.RIGHT,
    since=Layout.WIDE,
)  # fmt: skip
ENGINE = Column[ReplicaRow](
    key="engine", title="ENGINE", cell=_recorded(lambda row: engine_text(row.record)), since=Layout.WIDE
)
NODE = Column[ReplicaRow](key="node", title="NODE", cell=_recorded(lambda row: row.record.node_id), since=Layout.WIDE)
ADDRESS = Column[ReplicaRow](
    key="address", title="ADDRESS", since=Layout.WIDE,
    cell=_recorded(lambda row: f"{row.record.host}:{row.record.port}" if row.record.has_address else ""),
)  # fmt: skip
REASON = Column[ReplicaRow](key="reason", title="REASON", cell=_reason, is_flexible=True)

# What each face shows, in order.
REPLICAS_LIVE: tuple[Column[ReplicaRow], ...] = (
    ID, LANE, GPU, MARKET, AGE, STATE, KV, RUNNING, WAITING, IN_FLIGHT, GAP, CHUNK, STALLED, PRICE, REASON,
)  # fmt: skip
REPLICAS_STATUS: tuple[Column[ReplicaRow], ...] = (
    replace(ID, title="REPLICA"), LANE, STATE, MARKET, GPU, RUNNING, WAITING, KV, GAP, CHUNK, STALLED, AGE, ENGINE, NODE, ADDRESS, REASON,
)  # fmt: skip


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as "0-3, 8"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found)
