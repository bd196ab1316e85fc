"""What planning and load need to know of a whole trace: its rate and its lengths."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from fleetctl.config.trace_columns import read_columns
from fleetctl.errors import ConfigError
from fleetctl.model.profile import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What planning needs of a trace."""

    requests: int
    duration_s: float
    peak_rps: float  # in the busiest 60 s
    prompt_tokens: Distribution
    output_tokens: Distribution


def summarize(path: Path) -> TraceSummary:
    """Return rate and length percentiles of a whole trace. Raises ConfigError, also for an empty one."""
    found = read_columns(path)
    times = found.arrival_s
    if not times:
        raise ConfigError(f"{path}: holds no requests")
    return TraceSummary(
        requests=len(times),
        duration_s=times[-1] - times[0],
        peak_rps=found.peak_rps,
        prompt_tokens=_percentiles(found.prompt_tokens),
        output_tokens=_percentiles(found.output_tokens),
    )


def _percentiles(values: Iterable[int]) -> Distribution:
    counts = Counter(values)
    lengths = sorted(counts)
    until = list(accumulate(counts[length] for length in lengths))

    def at(fraction: float) -> float:
        # Zero-token rows exist in real traces (aborted requests); a lognormal has no zero.
        rank = max(1, math.ceil(fraction * until[-1]))
        return float(max(1, lengths[bisect_left(until, rank)]))

    return Distribution(p50=at(0.5), p99=at(0.99))
