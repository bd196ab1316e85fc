"""Which requests a plan is proven with: windows of the profile's trace, the worst among them, or synthetic ones as bursty as is said."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from fleetctl.core.dispersion import UNKNOWN_DISPERSION, is_burst_known
from fleetctl.core.plan import TracedRequests
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import Arrival, arrivals, uncached
from fleetctl.operations.proof_windows import window_starts
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from fleetctl.core.plan import TracedRequest
    from fleetctl.model.profile import Profile, WorkloadSpec

_MEASURED_S_MAX = 30.0  # of a window, after its fleet has filled
_MEASURED_S_MIN = 10.0
_WINDOWS_MIN = 4
# Times what a fleet takes to be half full, after which a window is as one of the whole trace: its longest answers, half as much again.
_FILLS = 3
# Of few requests a second as many are looked at, in more time: half a per cent of misses is told by thousands.
_SYNTHETIC_S_MAX = 7200.0
_SYNTHETIC_S_MIN = 45.0


@dataclass(frozen=True, slots=True)
class DrawnRun(Sequence[Arrival]):
    """Requests drawn from others, of which each is made where it is looked at: most of a long run never are."""

    bodies: tuple[Arrival, ...]
    body_of: tuple[int, ...]  # each one's place among them
    at_s: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.at_s)

    @overload
    def __getitem__(self, place: int) -> Arrival: ...
    @overload
    def __getitem__(self, place: slice) -> list[Arrival]: ...
    def __getitem__(self, place: int | slice) -> Arrival | list[Arrival]:
        """Return one, or several as a list."""
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return replace(self.bodies[self.body_of[place]], at_s=self.at_s[place])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofLoad:
    """The requests of a proof, one run after another."""

    runs: tuple[Sequence[Arrival], ...]  # each in order of time, from 0
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
        return _traced(profile, TracedRequests.of(rows), requests_max=requests_max, warm_s=warm_s, rng=rng)
    return _synthetic(profile, requests_max=requests_max, warm_s=warm_s, rng=rng)


def _synthetic(profile: Profile, *, requests_max: int, warm_s: float, rng: random.Random) -> ProofLoad:
    workload = known_burst(profile.workload)
    most_s = requests_max / workload.peak_rps
    duration_s = min(_SYNTHETIC_S_MAX, max(_SYNTHETIC_S_MIN, most_s)) + warm_s
    spec = LoadSpec(
        url="", workload=workload, duration_s=duration_s, models=profile.models, lane_models=profile.lane_models
    )
    made = tuple(uncached(each) for each in arrivals(spec, rng))
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


def _traced(
    profile: Profile, rows: TracedRequests, *, requests_max: int, warm_s: float, rng: random.Random
) -> ProofLoad:
    """Return the whole trace at the profile's rate, or the windows of it that are the hardest for each of the lanes."""
    times = rows.arrival_s
    speed = profile.workload.peak_rps / rows.peak_rps
    spanned_s = (times[-1] - times[0]) / speed
    at_speed = "" if abs(speed - 1.0) < 0.005 else f" at {speed:.3g} times its speed"  # half a per cent
    measured_s = requests_max / _WINDOWS_MIN / profile.workload.peak_rps
    measured_s = min(_MEASURED_S_MAX, max(_MEASURED_S_MIN, measured_s))
    filled_s = _FILLS * warm_s
    window_s = filled_s + measured_s
    starts: list[float] = []
    if len(rows) > requests_max * 1.2 and spanned_s > _WINDOWS_MIN * window_s:
        count = max(_WINDOWS_MIN, round(requests_max / profile.workload.peak_rps / window_s))
        starts = window_starts(profile, rows, speed=speed, measured_s=measured_s, warm_s=filled_s, count=count)
    if starts:
        warm_s = filled_s
        about = (
            f"{format_count(len(starts), 'window')} of {format_duration(measured_s)} of the trace's {len(rows):,} "
            f"requests{at_speed}, the busiest of each lane, each after {format_duration(filled_s)} in which its fleet fills"
        )
    else:
        starts, window_s, about = [times[0]], spanned_s, _whole_words(len(rows), at_speed)
        warm_s = min(warm_s, spanned_s / 4)
    runs = tuple(
        tuple(
            _arrival(profile, rows[number], (times[number] - start) / speed, rng, tells_cached=rows.has_cached)
            for number in range(bisect_left(times, start), bisect_left(times, start + window_s * speed + 1e-9))
        )
        for start in starts
    )
    return ProofLoad(runs=runs, run_s=(window_s,) * len(runs), warm_s=warm_s, about=about, is_traced=True)


def _whole_words(count: int, at_speed: str) -> str:
    return f"all {count:,} requests of the trace{at_speed}" if count > 1 else "the one request of the trace"


def _arrival(profile: Profile, row: TracedRequest, at_s: float, rng: random.Random, *, tells_cached: bool) -> Arrival:
    workload, hints = profile.workload, row.hints
    is_batch = rng.random() < workload.batch_share if hints.batch is None else hints.batch
    streams = not is_batch and rng.random() < workload.stream_share
    cached = row.cached_tokens if tells_cached else round(row.prompt_tokens * workload.prefix_hit)
    computed = max(1, row.prompt_tokens - cached)
    return Arrival(
        at_s=max(0.0, at_s),
        prompt_tokens=computed,
        cached_tokens=max(0, row.prompt_tokens - computed),
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
