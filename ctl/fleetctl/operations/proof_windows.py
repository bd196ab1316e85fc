"""Which windows of a long trace a proof replays: those that are the hardest for each of its lanes."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING

from fleetctl.core.plan import lanes_of
from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.plan import TracedRequests
    from fleetctl.model.profile import LaneSpec, Profile

_CLUMP_S, _CLUMP_S_MIN = 2.0, 0.25
_LEAD = 0.25  # of what is measured is before a clump: what it does to the requests after it is to be seen


def window_starts(
    profile: Profile, rows: TracedRequests, *, speed: float, measured_s: float, warm_s: float, count: int
) -> list[float]:
    """Return where at most so many windows begin, in the trace's own time and in order; no two measure the same requests.

    Lane by lane the most tokens that come together within the TTFT that is promised, which make tails, and the most within
    what a window measures, which make queues. `speed` is the replay's; `measured_s` of a window come after `warm_s`.
    """
    first = rows.arrival_s[0]
    latest = rows.arrival_s[-1] - (warm_s + measured_s) * speed
    lanes = [each for each in zip(profile.lanes, _places(profile, rows), strict=True) if each[1]]
    found = deque(
        _starts(rows, places, length_s=length_s, measured_s=measured_s, warm_s=warm_s, speed=speed)
        for is_clump in (True, False)
        for lane, places in lanes
        for length_s in (min(measured_s, _clump_s(lane)) if is_clump else measured_s,)
    )
    chosen: list[float] = []
    while found and len(chosen) < count:
        for each in found[0]:
            start = min(each, latest)
            # What comes before a fleet is full is no window's.
            if start >= first and all(abs(start - other) >= measured_s * speed for other in chosen):
                chosen.append(start)
                found.rotate(-1)
                break
        else:
            found.popleft()
    return sorted(chosen)


def _places(profile: Profile, rows: TracedRequests) -> list[list[int]]:
    """Return the places of each lane's requests."""
    if len(profile.lanes) == 1:
        return [list(range(len(rows)))]
    found: dict[str, list[int]] = {lane.name: [] for lane in profile.lanes}
    for place, lane in enumerate(lanes_of(profile, rows)):
        if lane:
            found[lane].append(place)
    return list(found.values())


def _clump_s(lane: LaneSpec) -> float:
    promised = lane.slo.strictest(Metric.TTFT)
    return max(_CLUMP_S_MIN, promised.limit_s) if promised is not None else _CLUMP_S


def _starts(
    rows: TracedRequests, places: list[int], *, length_s: float, measured_s: float, warm_s: float, speed: float
) -> Iterator[float]:
    """Yield where windows begin in which a lane's tokens of `length_s` are measured, those with the most first."""
    step_s = length_s * speed / 2
    lead_s = (warm_s + min(_LEAD * measured_s, measured_s - length_s)) * speed
    times, prompts, cached, outputs = rows.arrival_s, rows.prompt_tokens, rows.cached_tokens, rows.output_tokens
    tokens: dict[int, int] = defaultdict(int)
    for place in places:
        tokens[math.floor(times[place] / step_s)] += prompts[place] - cached[place] + outputs[place]
    heap = [(-tokens[step] - tokens.get(step + 1, 0), step) for step in list(tokens)]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[1] * step_s - lead_s
