"""Which of a lane's figures are shown: the leading promise, and percentiles over a window that holds requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.slo import LatencyTarget, Metric, Quantiles, Validity
from fleetctl.model.stream import StreamFigures
from fleetctl.model.verdict import Compliance

if TYPE_CHECKING:
    from fleetctl.model.status import LaneStatus

WINDOW_S = 60.0  # the window figures are shown over
_WIDER_WINDOW_S = 300.0  # where a minute holds no request
_HEADLINES = (Metric.TTFT, Metric.COMPLETION, Metric.E2E, Metric.ITL, Metric.QUEUE_WAIT, Metric.STREAM_GAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A lane's missed or leading promise beside what was measured; `measured_s` None means no samples."""

    target: LatencyTarget
    measured_s: float | None
    validity: Validity
    is_missed: bool = False


def lane_headline(lane: LaneStatus) -> Headline | None:
    """Return the target missed by most, else the leading one with its measure over the last minute (else five)."""
    missed = next((f for f in lane.verdict.having(Compliance.MISSED) if f.target), None)
    if missed is not None and missed.target is not None:
        return Headline(target=missed.target, measured_s=missed.measured, validity=Validity.OK, is_missed=True)
    for metric in _HEADLINES:
        target = lane.slo.strictest(metric)
        if target is not None:
            found = lane_quantiles(lane, metric)
            measured_s = found.at_s(target.percentile) if found.count else None
            return Headline(target=target, measured_s=measured_s, validity=found.validity)
    return None


def is_missed(lane: LaneStatus, metric: Metric) -> bool:
    """Whether a promise on this metric is surely missed."""
    return any(f.target and f.target.metric is metric for f in lane.verdict.having(Compliance.MISSED))


def lane_streams(lane: LaneStatus) -> StreamFigures:
    """Return how evenly the lane's answers streamed over the last minute, or five where none did in that."""
    found = StreamFigures()
    if lane.traffic is not None:
        for seconds in (WINDOW_S, _WIDER_WINDOW_S):
            found = lane.traffic.window(seconds).streams
            if found.answers or found.gap.count:
                break
    return found


def lane_quantiles(lane: LaneStatus, metric: Metric) -> Quantiles:
    """Return the lane's figures for a metric over the last minute, or five where the minute is empty."""
    if lane.traffic is None:
        return Quantiles()
    for seconds in (WINDOW_S, _WIDER_WINDOW_S):
        window = lane.traffic.window(seconds)
        found = {
            Metric.TTFT: window.ttft,
            Metric.ITL: window.itl,
            Metric.E2E: window.e2e,
            Metric.COMPLETION: window.e2e,
            Metric.QUEUE_WAIT: window.queue_wait,
            Metric.STREAM_GAP: window.streams.gap,
        }.get(metric, Quantiles())
        if found.count:
            return found
    return Quantiles()
