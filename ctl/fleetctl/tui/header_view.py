"""The two lines above the panels: the whole fleet at a glance, and what stands in its way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.conditions import ConditionType, fleet_condition
from fleetctl.model.desired import WHOLE_FLEET
from fleetctl.model.node import NoticeKind
from fleetctl.model.profile import Mode
from fleetctl.model.rollout import RolloutPhase
from fleetctl.units import format_count, format_duration, format_usd
from fleetctl.views.conditions import CONDITION_TONES
from fleetctl.views.replicas import countdown
from fleetctl.views.rollouts import rollout_tone
from fleetctl.views.table import Cell, Layout, Span, Tone, cut
from fleetctl.views.workflows import workflow_text

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from fleetctl.model.replica import Replica
    from fleetctl.model.status import FleetStatus
    from fleetctl.views.canvas import Canvas, Glyphs


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Whether what is shown is current. `age_s` None: nobody knows how old it is."""

    is_live: bool
    age_s: float | None = None
    is_paused: bool = False
    is_gone: bool = False  # the fleet was taken down
    reason: str = ""  # why it is not current; empty: nothing is heard


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderItem:
    """A piece of the first line; where there is no room the highest `rank` goes first."""

    spans: tuple[Span, ...]
    rank: int

    def __len__(self) -> int:
        return sum(len(text) for text, _ in self.spans)


def header_lines(
    status: FleetStatus, canvas: Canvas, *, now: datetime, freshness: Freshness, is_readonly: bool = False
) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return the first line, as much of it as there is room for, and the second."""
    parts = [
        _name(status, freshness, canvas.marks),
        _counts(status, freshness, canvas.layout),
        _cost(status, canvas.layout),
        *_cost_per_tokens(status),
        *_workflows(status),
        *_gateways(status, freshness),
        *_mode(status, is_readonly=is_readonly),
        *_frozen(status, now=now),
        *_rollout(status),
        *_notices(status, canvas.layout, now=now),
        _clock(status, freshness, now=now, zone=canvas.zone),
    ]
    return _joined(parts, canvas), _second(status, freshness, canvas)


def _name(status: FleetStatus, freshness: Freshness, marks: Glyphs) -> HeaderItem:
    is_known = freshness.is_live or freshness.is_paused
    condition = fleet_condition(status).type if is_known else _unheard(freshness)
    tone = CONDITION_TONES[condition]
    return HeaderItem(
        spans=((status.fleet, Tone.STRONG), (" ", Tone.PLAIN), (f"{marks.dot} ", tone), (condition.value, tone)), rank=0
    )


def _unheard(freshness: Freshness) -> ConditionType:
    return ConditionType.DOWN if freshness.is_gone else ConditionType.STALE


def _counts(status: FleetStatus, freshness: Freshness, layout: Layout) -> HeaderItem:
    ready, wanted = sum(lane.ready for lane in status.lanes), sum(lane.wanted for lane in status.lanes)
    lanes = "" if layout is Layout.COMPACT else f"{len(status.lanes)} lane{'s' if len(status.lanes) != 1 else ''} "
    if not freshness.is_live and not freshness.is_paused:
        return HeaderItem(spans=((f"{lanes}{ready}/{wanted} were ready", Tone.DIM),), rank=1)
    tone = Tone.WARN if ready < wanted else Tone.PLAIN
    return HeaderItem(spans=((lanes, Tone.PLAIN), (f"{ready}/{wanted} ready", tone)), rank=1)


def _cost(status: FleetStatus, layout: Layout) -> HeaderItem:
    cap = status.max_cost_usd_per_hour
    cost = status.cost_usd_per_hour
    tone = Tone.WARN if cap is not None and cost > cap else Tone.PLAIN
    spans: tuple[Span, ...] = ((f"{format_usd(cost)}/h", tone),)
    if cap is not None and layout is not Layout.COMPACT:
        spans = (*spans, (f" of {format_usd(cap)}", Tone.DIM))
    return HeaderItem(spans=spans, rank=2)


def _cost_per_tokens(status: FleetStatus) -> list[HeaderItem]:
    if status.cost_usd_per_1m_tokens is None:
        return []
    return [HeaderItem(spans=((f"{format_usd(status.cost_usd_per_1m_tokens)}/1M tok", Tone.PLAIN),), rank=4)]


def _workflows(status: FleetStatus) -> list[HeaderItem]:
    """Return each kind of workflow with a promise: the share of good ones, and their tail beside it."""
    found = (
        [workflow_text(kind) for kind in status.workflows.kinds if kind.kind] if status.workflows is not None else []
    )
    return [HeaderItem(spans=(span,), rank=3) for span in found if span is not None]


def _gateways(status: FleetStatus, freshness: Freshness) -> list[HeaderItem]:
    """Return how many of several gateways answer, of those that are to serve; of one alone the condition speaks."""
    serving = [each for each in status.gateways if not each.is_leaving]
    if len(status.gateways) < 2 or not (freshness.is_live or freshness.is_paused):
        return []
    answering = sum(each.answers for each in serving)
    if answering < len(serving):
        return [HeaderItem(spans=((f"{answering}/{len(serving)} gateways", Tone.WARN),), rank=1)]
    return [HeaderItem(spans=((format_count(len(serving), "gateway"), Tone.DIM),), rank=4)]


def _mode(status: FleetStatus, *, is_readonly: bool) -> list[HeaderItem]:
    parts = [HeaderItem(spans=((status.mode.value, Tone.WARN if status.mode is Mode.SHADOW else Tone.DIM),), rank=5)]
    if is_readonly:
        parts.append(HeaderItem(spans=(("read-only", Tone.DIM),), rank=6))
    return parts


def _rollout(status: FleetStatus) -> list[HeaderItem]:
    """Return from which revision to which a fleet is rolled out, and how far, until that is over."""
    rollout = status.rollout
    if rollout is None or rollout.phase is RolloutPhase.COMPLETE:
        return []
    text = f"rollout {rollout.stable} -> {rollout.revision} {rollout.phase}"
    return [HeaderItem(spans=((text, rollout_tone(rollout)),), rank=1)]


def _frozen(status: FleetStatus, *, now: datetime) -> list[HeaderItem]:
    """Return that the fleet, or how many of its lanes, are frozen, and for how long yet."""
    freezes = status.overrides.freezes
    if not freezes:
        return []
    what = "FROZEN" if WHOLE_FLEET in freezes else f"{format_count(len(freezes), 'lane')} FROZEN"
    ends = [terms.until for terms in freezes.values()]
    known = [end for end in ends if end is not None]
    left = f" {countdown((max(known) - now).total_seconds())}" if len(known) == len(ends) else ""
    return [HeaderItem(spans=((f"{what}{left}", Tone.WARN),), rank=1)]


def _notices(status: FleetStatus, layout: Layout, *, now: datetime) -> list[HeaderItem]:
    warned = [
        r.record for r in status.replicas if r.record.state.is_live and (r.record.notice_deadline or r.record.notice)
    ]
    if not warned:
        return []
    kinds = Counter(_notice_kind(record) for record in warned)
    by_kind = [f"{kinds[kind]} {kind}" for kind in NoticeKind if kind in kinds]
    total = f"{len(warned)} notice{'s' if len(warned) > 1 else ''}"
    many = total if layout is Layout.COMPACT else " + ".join(by_kind)
    deadlines = [record.notice_deadline for record in warned if record.notice_deadline is not None]
    left = f" {countdown((min(deadlines) - now).total_seconds())}" if deadlines else ""
    return [HeaderItem(spans=((f"! {many}{left}", Tone.WARN),), rank=1)]


def _notice_kind(record: Replica) -> NoticeKind:
    # Only an interruption sets a deadline without a notice beside it: records from before notices had kinds.
    return record.notice.kind if record.notice is not None else NoticeKind.INTERRUPTION


def _clock(status: FleetStatus, freshness: Freshness, *, now: datetime, zone: tzinfo | None) -> HeaderItem:
    clock = status.at.astimezone(zone).strftime("%H:%M:%S")
    if freshness.is_paused:
        return HeaderItem(spans=((clock, Tone.PLAIN), (" PAUSED", Tone.WARN)), rank=0)
    if freshness.is_live:
        return HeaderItem(spans=((clock, Tone.PLAIN), (" live", Tone.GOOD)), rank=0)
    age_s = freshness.age_s
    if age_s is None and status.controller_seen_at is not None:
        age_s = max(0.0, (now - status.controller_seen_at).total_seconds())
    age = f" {format_duration(int(age_s))}" if age_s is not None else ""
    if freshness.is_gone:
        return HeaderItem(spans=((f"gone{age}", Tone.DIM),), rank=0)
    return HeaderItem(spans=((f"STALE{age}", Tone.BAD),), rank=0)


def _joined(parts: list[HeaderItem], canvas: Canvas) -> tuple[Span, ...]:
    separator: Span = (f" {canvas.marks.separator} ", Tone.DIM)
    kept = list(parts)
    while len(kept) > 1 and sum(len(part) for part in kept) + len(separator[0]) * (len(kept) - 1) > canvas.width:
        worst = max(kept, key=lambda part: part.rank)
        if worst.rank == 0:
            break
        kept.remove(worst)
    spans: list[Span] = []
    for part in kept:
        if spans:
            spans.append(separator)
        spans.extend(part.spans)
    return cut(Cell(spans=tuple(spans)), canvas.width, ellipsis=canvas.marks.ellipsis).spans


def _second(status: FleetStatus, freshness: Freshness, canvas: Canvas) -> tuple[Span, ...]:
    """Return what stands in the way, or, when nothing does, what is served where."""
    condition = fleet_condition(status)
    reason = condition.message or status.reason
    if not freshness.is_live and not freshness.is_paused and condition.type is not ConditionType.STALE:
        reason = freshness.reason or "nothing heard from the controller; its last figures are not shown"
    if reason:
        is_bad = condition.type in (ConditionType.BREACH, ConditionType.STALE) and not freshness.is_gone
        tone = Tone.BAD if is_bad else Tone.WARN
        spans: tuple[Span, ...] = ((reason, tone),)
    else:
        address = f"{status.gateway_url}/v1"
        head = f", head {status.head}" if status.head is not None else ""
        spans = (
            (f"{status.model} on {status.provider} {canvas.marks.arrow} ", Tone.DIM),
            (f"{address}{head}", Tone.DIM),
        )
    return cut(Cell(spans=spans), canvas.width, ellipsis=canvas.marks.ellipsis).spans
