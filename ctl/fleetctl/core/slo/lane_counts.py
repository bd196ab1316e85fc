"""A lane's counts as one gateway sends them, so that those of several can be merged: sketches and sums, no percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.sketch import QuantileSketch, SketchCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

_SUMS = (
    "offered", "dispatched", "finished", "good", "looped", "preempted", "prefixes_lost", "prefix_tokens_lost",
    "prompt_tokens", "output_tokens", "finished_output_tokens", "together",
)  # fmt: skip
_SKETCHES = ("ttft", "itl", "paced_itl", "paced_gap", "e2e", "queue_wait", "unit")
_STREAMS = ("answers", "stalled_answers", "stalls", "chunks", "tokens")


class WindowCounts(msgspec.Struct, frozen=True):
    """What a LaneStats has counted, by the names that it has there."""

    seconds: float
    sums: dict[str, int]
    streams: dict[str, int]
    breached: dict[str, int]
    shed: dict[str, int]
    sketches: dict[str, SketchCounts]


def window_counts(seconds: float, stats: LaneStats) -> WindowCounts:
    """Return what stats over a window have counted."""
    return WindowCounts(
        seconds=seconds,
        sums={name: getattr(stats, name) for name in _SUMS},
        streams={name: getattr(stats.streams, name) for name in _STREAMS},
        breached=dict(stats.breached),
        shed=dict(stats.shed),
        sketches={name: found.counts() for name in _SKETCHES if (found := getattr(stats, name)).count},
    )


def merged_stats(counts: Iterable[WindowCounts]) -> LaneStats:
    """Return the stats that would have been made from all at once."""
    whole = LaneStats()
    for each in counts:
        part = LaneStats()
        for name in _SUMS:
            setattr(part, name, each.sums.get(name, 0))
        for name in _STREAMS:
            setattr(part.streams, name, each.streams.get(name, 0))
        part.breached.update(each.breached)
        part.shed.update(each.shed)
        for name, sketch in each.sketches.items():
            if name in _SKETCHES:
                setattr(part, name, QuantileSketch.of(sketch))
        whole.merge(part)
    return whole
