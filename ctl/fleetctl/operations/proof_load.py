"""Which requests a plan is proven with: windows of the profile's trace, the worst among them, or synthetic ones as bursty as is said."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from fleetctl.core.plan.dispersion import UNKNOWN_DISPERSION, is_burst_known
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import Arrival, arrivals
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.plan import TracedRequest
    from fleetctl.model.profile import Profile, WorkloadSpec

_MEASURED_S_MAX = 30.0  # of a window, after its fleet has filled
_MEASURED_S_MIN = 10.0
_WINDOWS_MIN = 4
_SYNTHETIC_S_MAX = 900.0
_SYNTHETIC_S_MIN = 45.0
_PEAK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofLoad:
    """The requests of a proof, one run after another."""

    runs: tuple[tuple[Arrival, ...], ...]  # each in order of time, from 0
    run_s: tuple[float, ...]  # how long each goes on
    warm_s: float  # at the beginning of each, in which its fleet fills
    about: str
    is_traced: bool = False  # they are the worst of what is to be carried, not a sample of it

    @property
    def requests(self) -> int:
        """Return how many requests there are."""
        return sum(map(len, self.runs))


def proof_load(
    profile: Profile, rows: Sequence[TracedRequest] | None, *, requests_max: int, warm_s: float, seed: int = 0
) -> ProofLoad:
    """Return about so many requests at the profile's peak; `warm_s` come before any that counts. Same seed, same load."""
    rng = random.Random(f"proof/{seed}")
    if rows:
        return _traced(profile, rows, requests_max=requests_max, warm_s=warm_s, rng=rng)
    return _synthetic(profile, requests_max=requests_max, warm_s=warm_s, rng=rng)


def _synthetic(profile: Profile, *, requests_max: int, warm_s: float, rng: random.Random) -> ProofLoad:
    workload = known_burst(profile.workload)
    most_s = requests_max / workload.peak_rps
    duration_s = min(_SYNTHETIC_S_MAX, max(_SYNTHETIC_S_MIN, most_s)) + warm_s
    spec = LoadSpec(
        url="", workload=workload, duration_s=duration_s, models=profile.models, lane_models=profile.lane_models
    )
    made = tuple(_uncached(each) for each in arrivals(spec, rng))
    return ProofLoad(
        runs=(made,),
        run_s=(duration_s,),
        warm_s=warm_s,
        about=f"{format_duration(duration_s)} of synthetic arrivals at the peak, {_burst_words(workload)}",
    )


def known_burst(workload: WorkloadSpec) -> WorkloadSpec:
    """Return a workload whose burst is known: one that nobody has said is twice Poisson's."""
    if is_burst_known(workload):
        return workload
    return replace(workload, dispersion_1s=UNKNOWN_DISPERSION, dispersion_10s=UNKNOWN_DISPERSION)


def _burst_words(workload: WorkloadSpec) -> str:
    if workload.dispersion_1s is None and workload.dispersion_10s is None:
        return f"burst_cv {workload.burst_cv or 1.0:g}"
    short = workload.dispersion_1s or 1.0
    return f"with {short:g} times Poisson's variance over 1 s and {workload.dispersion_10s or short:g} over 10 s"


def _uncached(arrival: Arrival) -> Arrival:
    """Return a request with the work of the prompt tokens that are not cached; simulated engines cache no prefixes."""
    if not arrival.prefix_tokens:
        return arrival
    tokens = max(1, arrival.prompt_tokens - arrival.prefix_tokens)
    return replace(arrival, prompt_tokens=tokens, prefix_tokens=0, prefix_group="")


def _traced(
    profile: Profile, rows: Sequence[TracedRequest], *, requests_max: int, warm_s: float, rng: random.Random
) -> ProofLoad:
    """Return the whole trace at the profile's rate, or windows of it: half of them the worst, the rest evenly spread."""
    times = [row.arrival_s for row in rows]
    speed = profile.workload.peak_rps / _peak_rps(times)
    spanned_s = (times[-1] - times[0]) / speed
    at_speed = "" if abs(speed - 1.0) < 0.005 else f" at {speed:.3g} times its speed"  # half a per cent
    measured_s = requests_max / _WINDOWS_MIN / profile.workload.peak_rps
    window_s = warm_s + min(_MEASURED_S_MAX, max(_MEASURED_S_MIN, measured_s))
    if len(rows) <= requests_max * 1.2 or spanned_s <= _WINDOWS_MIN * window_s:
        starts, window_s, about = [times[0]], spanned_s, f"all {len(rows):,} requests of the trace{at_speed}"
        warm_s = min(warm_s, spanned_s / 4)
    else:
        mean = profile.workload.peak_rps * window_s
        count = min(max(_WINDOWS_MIN, round(requests_max / mean)), math.floor(spanned_s / window_s))
        starts = _window_starts(rows, times, window_s * speed, count)
        about = (
            f"{format_count(len(starts), 'window')} of {format_duration(window_s)} of the trace's {len(rows):,} "
            f"requests{at_speed}, the {math.ceil(len(starts) / 2)} with the most tokens among them"
        )
    runs = tuple(
        tuple(
            _arrival(profile, rows[number], (times[number] - start) / speed, rng)
            for number in range(bisect_left(times, start), bisect_left(times, start + window_s * speed + 1e-9))
        )
        for start in starts
    )
    return ProofLoad(runs=runs, run_s=(window_s,) * len(runs), warm_s=warm_s, about=about, is_traced=True)


def _window_starts(rows: Sequence[TracedRequest], times: Sequence[float], length_s: float, count: int) -> list[float]:
    """Return where windows of the trace begin, in its own time and in order; none overlaps another."""
    tokens = [0, *accumulate(row.prompt_tokens - row.cached_tokens + row.output_tokens for row in rows)]
    step_s = length_s / 4
    grid = [times[0] + step_s * n for n in range(max(1, math.floor((times[-1] - times[0] - length_s) / step_s) + 1))]
    # A window is measured in its later part, so that is what it is ranked by.
    weight = {
        start: tokens[bisect_left(times, start + length_s)] - tokens[bisect_left(times, start + length_s / 4)]
        for start in grid
    }
    chosen: list[float] = []
    for start in sorted(grid, key=lambda start: -weight[start]):
        if len(chosen) >= math.ceil(count / 2):
            break
        if all(abs(start - other) >= length_s for other in chosen):
            chosen.append(start)
    rest = count - len(chosen)
    for start in [grid[math.floor((number + 0.5) / rest * len(grid))] for number in range(rest)]:
        if all(abs(start - other) >= length_s for other in chosen):
            chosen.append(start)
    return sorted(chosen)


def _arrival(profile: Profile, row: TracedRequest, at_s: float, rng: random.Random) -> Arrival:
    workload, hints = profile.workload, row.hints
    is_batch = rng.random() < workload.batch_share if hints.batch is None else hints.batch
    streams = not is_batch and rng.random() < workload.stream_share
    cached = row.cached_tokens or round(row.prompt_tokens * workload.prefix_hit)
    return Arrival(
        at_s=max(0.0, at_s),
        prompt_tokens=max(1, row.prompt_tokens - cached),
        output_tokens=max(1, row.output_tokens),
        stream=streams if hints.stream is None else hints.stream,
        batch=is_batch,
        lane=hints.lane,
        model=hints.model or _drawn_model(profile, rng),
    )


def _drawn_model(profile: Profile, rng: random.Random) -> str:
    """Return a model by the models' shares; empty where there is one."""
    models = profile.models
    return rng.choices([m.name for m in models], weights=[m.share for m in models])[0] if len(models) > 1 else ""


def _peak_rps(times: Sequence[float]) -> float:
    """Return the rate of the busiest minute, as the summary of a trace has it."""
    window: deque[float] = deque()
    busiest = 0
    for at in times:
        window.append(at)
        while window[0] <= at - _PEAK_S:
            window.popleft()
        busiest = max(busiest, len(window))
    return busiest / min(_PEAK_S, max(times[-1] - times[0], 1.0))
