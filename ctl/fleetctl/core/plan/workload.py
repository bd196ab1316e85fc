"""Who arrives in which lane: shares, lengths and burstiness, from two percentiles or from a trace."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, repeat
from operator import floordiv
from statistics import NormalDist
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import UNKNOWN_DISPERSION, is_burst_known
from fleetctl.core.plan.lane_shares import PREFIX_HIT_MAX, LaneShares, prefix_hit
from fleetctl.core.plan.lane_traffic import LaneTraffic, taken_by_lane
from fleetctl.core.plan.traced import TracedRequest, TracedRequests
from fleetctl.model.workflows import WorkflowKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fleetctl.model.profile import Distribution, Profile, WorkloadSpec

Z_99 = NormalDist().inv_cdf(0.99)
# A lane's demand is carried as this many equally likely points, so that every mean, second moment and percentile
# downstream is a plain sum, and the same on every machine.
POINTS = 160
# AzurePublicDataset LLM inference 2024 (conversation, one week): the mean hour is 0.60 of the busiest one.
AVERAGE_TO_PEAK = 0.6
_BUSY_WINDOW_S = 60.0
_ASKED_FOR = "; clients' max_tokens taken to follow the output lengths"
_SHARE_MIN = 1e-12  # of all requests; a lane with less has no demand to speak of


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Token counts as equally likely points, ascending; never empty."""

    points: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the first moment."""
        return math.fsum(self.points) / len(self.points)

    @property
    def second_moment(self) -> float:
        """Return the mean square."""
        return math.fsum(p * p for p in self.points) / len(self.points)

    def quantile(self, fraction: float) -> float:
        """Return the interpolated quantile; `fraction` in [0, 1]."""
        position = fraction * len(self.points) - 0.5
        low = min(max(math.floor(position), 0), len(self.points) - 1)
        high = min(low + 1, len(self.points) - 1)
        return self.points[low] + (self.points[high] - self.points[low]) * min(max(position - low, 0.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDemand:
    """What one lane is offered at the peak minute."""

    rps: float
    prompt: Lengths  # whole prompts: what occupies the KV cache
    output: Lengths
    prefix_hit: float  # share of a prompt found in the prefix cache: not computed again
    burst_cv: float  # coefficient of variation of inter-arrival times
    average_rps: float  # over the day
    source: str  # one clause: where these come from
    workflows: tuple[WorkflowKind, ...] = ()  # whose calls are the lane's, as planned
    objective: float = 0.0  # 0-1, the share of its requests that must be good; 0: their promises' percentiles alone
    is_burst_known: bool = (
        True  # False: `burst_cv` is what is planned with where nothing says how unevenly requests come
    )

    @property
    def tokens_per_s(self) -> float:
        """Return prompt plus output tokens per second."""
        return self.rps * (self.prompt.mean + self.output.mean)


def lognormal(distribution: Distribution) -> tuple[float, float]:
    """Return (mu, sigma) of the lognormal through both percentiles; sigma is 0 when they coincide."""
    mu = math.log(distribution.p50)
    return mu, max(0.0, (math.log(distribution.p99) - mu) / Z_99)


def lane_demands(profile: Profile, rows: Sequence[TracedRequest] | None = None) -> dict[str, LaneDemand]:
    """Return every lane's demand. `rows` are a trace's requests: they replace the profile's distributions.

    A trace gives lengths, burstiness and the average; `peak_rps` stays the profile's: it scales the trace. Where it says
    which lane a request names, whether it streams or is for batch, and how much of prompts is cached, that is taken too.
    """
    found = _from_trace(profile, TracedRequests.of(rows)) if rows else _from_distributions(profile)
    kinds = profile.workflows.kinds if profile.workflows is not None else ()
    objective = profile.objective.fraction
    return {
        name: replace(demand, objective=objective, workflows=tuple(kind for kind in kinds if kind.lane == name))
        for name, demand in found.items()
    }


def burst_cv(workload: WorkloadSpec) -> float:
    """Return the coefficient of variation of gaps that a workload without a trace is planned with.

    Over long windows counts of a renewal process have the square of it as index of dispersion.
    """
    if not is_burst_known(workload):
        return math.sqrt(UNKNOWN_DISPERSION)
    return max(workload.burst_cv or 1.0, math.sqrt(max(workload.dispersion_1s or 0.0, workload.dispersion_10s or 0.0)))


def _lane_hit(profile: Profile, lane: str) -> float:
    """Return the share of a lane's prompts that its engines find cached: none where the profile turns caching off."""
    return 0.0 if profile.lane(lane).launch.prefix_caching is False else prefix_hit(profile)


def _from_distributions(profile: Profile) -> dict[str, LaneDemand]:
    workload, hit, shares = profile.workload, prefix_hit(profile), LaneShares(profile)
    mu, sigma = lognormal(workload.prompt_tokens)
    output = Lengths(points=tuple(_lognormal_points(*lognormal(workload.output_tokens), [(0.0, 1.0, 1.0)])))
    segments: dict[str, list[tuple[float, float, float]]] = {lane.name: [] for lane in profile.lanes}
    outputs: dict[str, list[tuple[float, float]]] = {lane.name: [] for lane in profile.lanes}
    answers = output.points if shares.by_output else (output.mean,)
    for answer in answers:
        for low, high in pairwise(_cdf_edges(shares.edges(answer), mu, sigma, hit)):
            middle = math.exp(mu + sigma * _z((low + high) / 2)) * (1 - hit)
            for name, share in shares.of(middle, answer).items():
                weight = share * (high - low) / len(answers)
                segments[name].append((low, high, weight))
                outputs[name].append((answer, weight))
    return {
        name: LaneDemand(
            rps=workload.peak_rps * math.fsum(s[2] for s in parts),
            prompt=Lengths(points=tuple(_lognormal_points(mu, sigma, sorted(parts) or [(0.0, 1.0, 1.0)]))),
            output=_bounded(profile, name, _weighted(outputs[name]) if shares.by_output and parts else output),
            prefix_hit=_lane_hit(profile, name),
            burst_cv=burst_cv(workload),
            is_burst_known=is_burst_known(workload),
            average_rps=workload.peak_rps * math.fsum(s[2] for s in parts) * AVERAGE_TO_PEAK,
            source="lognormal through the profile's p50 and p99; average taken as 60 % of the peak"
            + (_ASKED_FOR if shares.by_output else "")
            + _bound_clause(profile, name),
        )
        for name, parts in segments.items()
    }


def _cdf_edges(edges: Sequence[float], mu: float, sigma: float, hit: float) -> list[float]:
    """Return where lane boundaries cut the prompt distribution, as cumulative probabilities from 0 to 1."""
    cuts: set[float] = {0.0, 1.0}
    for bound in edges:
        if bound:
            z = math.log(bound / (1 - hit)) - mu
            cuts.add(NormalDist().cdf(z / sigma) if sigma else float(z > 0))
    return sorted(cuts)


def _lognormal_points(mu: float, sigma: float, parts: Iterable[tuple[float, float, float]]) -> list[float]:
    """Return POINTS equally likely values of the lognormal restricted to (cdf low, cdf high, weight) parts.

    Every point is the mean of its share, so that the mean of the points is the lane's exact mean.
    """
    parts = [part for part in _disjoint(parts) if part[2] > _SHARE_MIN] or [(0.0, 1.0, 1.0)]
    step = math.fsum(part[2] for part in parts) / POINTS
    points, gathered, free = [], 0.0, step
    for low, high, weight in parts:
        at, left = low, weight
        while left > step * 1e-9:
            taken = min(free, left)
            upto = at + (high - low) * taken / weight
            gathered += taken * _lognormal_mean(mu, sigma, at, min(upto, 1.0))
            at, left, free = upto, left - taken, free - taken
            if free <= step * 1e-9:
                points.append(max(1.0, gathered / step))
                gathered, free = 0.0, step
    return sorted(points)


def _disjoint(parts: Iterable[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Return the same (cdf low, cdf high, weight) as ascending parts that do not overlap: answers of every length have prompts of all."""
    density: dict[float, float] = defaultdict(float)
    for low, high, weight in parts:
        density[low] += weight / (high - low)
        density[high] -= weight / (high - low)
    found, level = [], 0.0
    for low, high in pairwise(sorted(density)):
        level += density[low]
        found.append((low, high, max(0.0, level * (high - low))))
    return found


def _lognormal_mean(mu: float, sigma: float, low: float, high: float) -> float:
    """Return the mean of the lognormal between two cumulative probabilities."""
    if sigma == 0.0 or high - low < 1e-12:
        return math.exp(mu + sigma * _z((low + high) / 2))
    return math.exp(mu + sigma**2 / 2) * (_shifted(high, sigma) - _shifted(low, sigma)) / (high - low)


def _z(probability: float) -> float:
    """Return the standard normal quantile, held short of its infinite ends."""
    return NormalDist().inv_cdf(min(max(probability, 1e-12), 1 - 1e-12))


def _shifted(probability: float, sigma: float) -> float:
    """Return how much of a lognormal's mean lies below this cumulative probability."""
    if probability <= 0.0:
        return 0.0
    return 1.0 if probability >= 1.0 else NormalDist().cdf(NormalDist().inv_cdf(probability) - sigma)


def _from_trace(profile: Profile, rows: TracedRequests) -> dict[str, LaneDemand]:
    workload, shares = profile.workload, LaneShares(profile)
    lanes = taken_by_lane(profile, rows, shares)
    busy, average = _peak_and_average(rows.arrival_s)
    cv = max(workload.burst_cv or 0.0, _inter_arrival_cv(busy))
    everyone = LaneTraffic.of(rows)
    taken = f"{len(rows):,} trace requests{_untaken_clause(rows, lanes)}"
    demands = {}
    for name, found in lanes.items():
        rps, known = workload.peak_rps * found.share / len(rows), found if found.requests else everyone
        demands[name] = LaneDemand(
            rps=rps,
            prompt=_empirical(known.prompts),
            output=_bounded(profile, name, _empirical(known.outputs)),
            prefix_hit=_traced_hit(profile, name, known) if rows.has_cached else _lane_hit(profile, name),
            burst_cv=cv,
            average_rps=rps * average,
            source=f"{taken}, {found.requests:,} of them this lane's"
            + ("; prompts cached as the trace says, of a cache that forgets nothing" if rows.has_cached else "")
            + (_ASKED_FOR if shares.by_output else "")
            + _bound_clause(profile, name),
        )
    return demands


def _untaken_clause(rows: TracedRequests, lanes: Collection[str]) -> str:
    """Return how many requests name a lane that there is none of: the gateway refuses them, so they are no demand."""
    counts = Counter(rows.hint_of)
    unknown = sum(counts[place] for place, hints in enumerate(rows.hints) if hints.lane and hints.lane not in lanes)
    return f" ({unknown:,} name no lane of the profile and are refused)" if unknown else ""


def _traced_hit(profile: Profile, lane: str, found: LaneTraffic) -> float:
    """Return the share of a lane's prompt tokens that its trace says are cached."""
    if profile.lane(lane).launch.prefix_caching is False:
        return 0.0
    prompts = math.fsum(tokens * share for tokens, share in found.prompts.items())
    return min(found.cached_tokens / prompts, PREFIX_HIT_MAX)


def _bounded(profile: Profile, lane: str, output: Lengths) -> Lengths:
    """Return answers as long as the lane's maximum lets them get."""
    most = profile.lane(lane).generation.max_tokens
    return output if most is None else Lengths(points=tuple(min(tokens, float(most)) for tokens in output.points))


def _bound_clause(profile: Profile, lane: str) -> str:
    most = profile.lane(lane).generation.max_tokens
    return "" if most is None else f"; no answer longer than generation.max_tokens ({most:,})"


def _empirical(lengths: Mapping[int, float]) -> Lengths:
    """Return the weighted quantiles of lengths at the middle of each of POINTS equal shares."""
    return _weighted((max(1, tokens), share) for tokens, share in lengths.items())


def _weighted(lengths: Iterable[tuple[float, float]]) -> Lengths:
    """Return the quantiles of (length, weight) at the middle of each of POINTS equal shares."""
    ascending = sorted(lengths)
    passed = list(accumulate(share for _, share in ascending))
    middles = ((i + 0.5) / POINTS * passed[-1] for i in range(POINTS))
    return Lengths(points=tuple(float(ascending[bisect_right(passed, m, hi=len(passed) - 1)][0]) for m in middles))


def _peak_and_average(times_s: Sequence[float]) -> tuple[Sequence[float], float]:
    """Return the arrivals of the busiest minute, and the mean minute as a share of it."""
    minutes = Counter(map(floordiv, times_s, repeat(_BUSY_WINDOW_S)))
    busiest = max(minutes, key=lambda minute: minutes[minute])
    begins = bisect_left(times_s, busiest, key=lambda at: at // _BUSY_WINDOW_S)
    busy = times_s[begins : begins + minutes[busiest]]
    spanned = int(max(minutes)) - int(min(minutes)) + 1
    return busy, len(times_s) / spanned / len(busy)


def _inter_arrival_cv(arrivals: Sequence[float]) -> float:
    """Return the coefficient of variation of the gaps; 1 (Poisson) when there are too few to say."""
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    mean = math.fsum(gaps) / len(gaps) if gaps else 0.0
    if len(gaps) < 30 or mean <= 0:
        return 1.0
    return math.sqrt(math.fsum((g - mean) ** 2 for g in gaps) / len(gaps)) / mean
