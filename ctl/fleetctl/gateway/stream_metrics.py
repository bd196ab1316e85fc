"""How evenly answers stream, in the Prometheus text format; docs/slo.md has the rule of each figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.slo.streams import ReplicaStreams, StreamCounts
    from fleetctl.telemetry.page import MetricsPage

_COUNTERS = (
    ("stream_answers_total", "Streamed answers that ended, of which a token left.", "answers"),
    ("stream_stalled_answers_total", "Of these, those with a stall.", "stalled_answers"),
    ("stream_stalls_total", "Gaps between chunks of an answer that were stalls.", "stalls"),
    ("stream_chunks_total", "Chunks of answers that ended whole: what left for a client at once.", "chunks"),
    ("stream_tokens_total", "Tokens of these chunks, as the engine counts them where it does.", "tokens"),
)


def stream_families(
    page: MetricsPage, lanes: Mapping[str, DispatchLane[ActiveRequest]], listed: set[str], now_s: float
) -> None:
    """Write the families by lane and replica; `listed` are the replicas of the table, and no others are named."""
    found = [
        ({"lane": name, "replica": replica_id}, streams)
        for name, lane in lanes.items()
        for replica_id, streams in lane.accounts.streams.items()
        if replica_id in listed
    ]
    for name, text, field in _COUNTERS:
        page.family(name, "counter", text, [(labels, _count(each.total(), field)) for labels, each in found])
    text = "Gap between chunks of an answer, over the last half to one minute."
    page.family("stream_gap_recent_seconds", "gauge", text, [each for pair in found for each in _gaps(*pair, now_s)])
    limits = [({"lane": name}, lane.accounts.stall_limit_s) for name, lane in lanes.items()]
    page.family("stream_stall_limit_seconds", "gauge", "The gap beyond which an answer stalls.", limits)


def _count(counts: StreamCounts, field: str) -> float:
    value: int = getattr(counts, field)
    return float(value)


def _gaps(labels: dict[str, str], streams: ReplicaStreams, now_s: float) -> list[tuple[dict[str, str], float]]:
    gap = streams.figures(now_s).gap
    if not gap.count:
        return []
    return [
        (labels | {"quantile": q}, value) for q, value in (("0.5", gap.p50_s), ("0.95", gap.p95_s), ("0.99", gap.p99_s))
    ]
