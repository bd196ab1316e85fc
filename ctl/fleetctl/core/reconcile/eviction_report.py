"""What the journal says of evictions: the first few of a minute one by one, the rest of it as a count by cause."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.evictions.wording import eviction_text, filler_text
from fleetctl.model.eviction import EvictionKind
from fleetctl.model.eviction_report import ReportEviction
from fleetctl.model.reason import ReasonCode
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.eviction import Eviction
    from fleetctl.model.eviction_report import EvictionMemory
    from fleetctl.model.gateway import GatewaySnapshot

# Evictions come in storms: a flood of prompts takes every conversation's cache.
NAMED_MAX = 3
_BOUNDED = timedelta(seconds=60)


def report_evictions(
    lane: str, memory: LaneMemory, gateway: GatewaySnapshot | None, now: datetime
) -> tuple[LaneMemory, tuple[ReportEviction, ...]]:
    """Return what is to be journalled of a lane's evictions, and the memory that it was. No `gateway`: nothing is known.

    The gateway keeps the newest few of all lanes; of a storm that is faster than that only its counters know all.
    """
    if gateway is None:
        return memory, ()
    before = memory.evictions
    if before.gateway_started_at != gateway.started_at and before.seen:
        before = replace(before, seen=0)
    known, reports = _minute_over(lane, before, now)
    fresh = [each for each in gateway.evictions if each.lane == lane and each.seq > known.seen]
    if fresh:
        known, named = _take(lane, known, fresh, now)
        known = replace(known, gateway_started_at=gateway.started_at)
        reports = (*reports, *named)
    return (memory if known == memory.evictions else replace(memory, evictions=known)), reports


def _minute_over(lane: str, known: EvictionMemory, now: datetime) -> tuple[EvictionMemory, tuple[ReportEviction, ...]]:
    if known.minute_at is None or now - known.minute_at < _BOUNDED:
        return known, ()
    reports = (_others(lane, known.unnamed, known.minute_at),) if known.unnamed else ()
    return replace(known, minute_at=None, named=0, unnamed=None), reports


def _take(
    lane: str, known: EvictionMemory, fresh: Iterable[Eviction], now: datetime
) -> tuple[EvictionMemory, list[ReportEviction]]:
    named, unnamed, reports = known.named, Counter(known.unnamed or {}), []
    seen = known.seen
    for each in fresh:
        seen = max(seen, each.seq)
        if named < NAMED_MAX:
            named += 1
            reports.append(_named(lane, each))
        else:
            unnamed[each.cause.value] += 1
    return (
        replace(
            known,
            seen=seen,
            minute_at=known.minute_at or now,
            named=named,
            unnamed=dict(unnamed) or None,
        ),
        reports,
    )


def _named(lane: str, found: Eviction) -> ReportEviction:
    noted: dict[str, float | str] = {"kind": found.kind.value, "cause": found.cause.value, "replica": found.replica}
    if found.kind is EvictionKind.PREEMPTION:
        noted["preempted"] = found.preempted
    else:
        noted |= {
            "conversation": found.conversation,
            "turn": found.turn,
            "request": found.request_id,
            "cached_tokens_before": found.cached_tokens_before,
            "cached_tokens": found.cached_tokens,
        }
    for name, seconds in (("ttft_s_before", found.ttft_s_before), ("ttft_s", found.ttft_s)):
        if seconds is not None:
            noted[name] = round(seconds, 4)
    if found.kv_usage is not None and found.kv_since is not None and found.kv_until is not None:
        noted |= {
            "kv_usage": round(found.kv_usage, 4),
            "kv_since": found.kv_since.isoformat(timespec="seconds"),
            "kv_until": found.kv_until.isoformat(timespec="seconds"),
        }
    if found.fillers:
        noted["filled_by"] = "; ".join(map(filler_text, found.fillers))
    if found.replica_before not in ("", found.replica):
        noted["replica_before"] = found.replica_before
    code = ReasonCode.PREEMPTED if found.kind is EvictionKind.PREEMPTION else ReasonCode.PREFIX_LOST
    return ReportEviction(lane=lane, code=code, reason=eviction_text(found), noted=noted)


def _others(lane: str, unnamed: dict[str, int], since: datetime) -> ReportEviction:
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(unnamed.items()))
    return ReportEviction(
        lane=lane,
        code=ReasonCode.PREFIX_LOST,
        reason=f"{sum(unnamed.values())} more in {format_duration(_BOUNDED.total_seconds())}: {causes}; which: "
        f"fleetctl requests --lane {lane}",
        noted={"count": sum(unnamed.values()), "causes": causes, "since": since.isoformat(timespec="seconds")},
    )
