"""What a lane's simulated requests say: whether its promises are kept, and the forecast that a plan prints."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import index_of_dispersion
from fleetctl.core.plan.checks import describe
from fleetctl.core.plan.evidence import TailEstimate, clumping, missed_upper, tail_estimate
from fleetctl.model.plan import LaneProof
from fleetctl.model.slo import BreachKind, Metric, covered_refusals, less_covered
from fleetctl.units import format_duration, format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.operations.proof_load import ProofLoad
    from fleetctl.sim.sampled import LaneSamples

_FEW_MISSES = 3.0  # that the objective leaves: with fewer it is the tail that tells


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEvidence:
    """One lane of one simulated fleet."""

    replicas: int
    objective: float
    offered: int
    missed: Counter[str]  # by kind
    covered: int  # refusals that are good, as the lane's shed allowance covers them
    missed_upper: float  # of another load as long
    ttft: TailEstimate | None  # the P99; None: nothing streamed
    ttft_p50_s: float
    ttft_held: TailEstimate | None  # at the share of requests that the objective asks for
    ttft_limit_s: float
    itl_p99_s: float
    itl_limit_s: float
    e2e_p99_s: float
    running: float
    dispersion_1s: float | None
    dispersion_10s: float | None
    is_traced: bool = False  # by the worst of a trace itself

    @property
    def good_share(self) -> float | None:
        """Return the good of those offered; None: none were."""
        return 1.0 - self.missed.total() / self.offered if self.offered else None

    @property
    def good_share_low(self) -> float | None:
        """Return the lower end of its interval."""
        return 1.0 - self.missed_upper / self.offered if self.offered else None

    @property
    def allowed(self) -> float:
        """Return how many may be missed."""
        return (1.0 - self.objective) * self.offered

    @property
    def worst_kind(self) -> str:
        """Return how most were missed."""
        return max(self.missed, key=lambda kind: self.missed[kind], default="ttft")

    @property
    def why(self) -> str:
        """Return what is not kept, one clause."""
        if self.itl_p99_s > self.itl_limit_s:
            return f"the ITL P99 is {format_duration(self.itl_p99_s)}"
        if self.good_share is not None and self.missed.total():
            few = f", {format_fraction(self.good_share_low or 0.0)} at the lower end of its interval"
            return f"{self.good_share:.2%} of requests are good (most others: {self.worst_kind}){few}"
        held = self.ttft_held
        return f"the TTFT tail may reach {format_duration(held.high_s)}" if held is not None else "too little is known"

    def holds(self, *, accepts_risk: bool = False) -> bool:
        """Whether every promise is kept, with `accepts_risk` at the point, else at the end of the interval too."""
        allowed = self.allowed
        if self.missed.total() > allowed or self.itl_p99_s > self.itl_limit_s:
            return False
        if accepts_risk:
            return True
        if allowed < _FEW_MISSES:  # of a trace's own worst the count is what it is
            return self.is_traced or self.ttft_held is None or self.ttft_held.high_s <= self.ttft_limit_s
        return self.missed_upper <= allowed


def lane_evidence(
    lane: LaneSpec, profile: Profile, load: ProofLoad, runs: Sequence[LaneSamples], *, replicas: int
) -> SimulatedEvidence:
    """Return what the runs of a load show of a lane."""
    requests, stretches, begins_s = [], [], 0.0
    for run, length_s in zip(runs, load.run_s, strict=True):
        requests += [(begins_s + each.started_s, each) for each in run.requests]
        arrived = [begins_s + at_s for at_s in run.arrived_s]
        stretches.append((begins_s + load.warm_s, begins_s + length_s, arrived))
        begins_s += math.ceil(length_s / 10.0 + 1) * 10.0
    ttft = [(at, each.ttft_s) for at, each in requests if each.ttft_s is not None]
    promised, itl = lane.slo.strictest(Metric.TTFT), lane.slo.strictest(Metric.ITL)
    missed = Counter(each.missed for _, each in requests if each.missed)
    clumps = clumping([at for at, each in requests if each.missed], [(at, 0.0) for at, _ in requests])
    clumps = 0.5 if load.is_traced else clumps  # of a trace it is its own worst
    allowance = lane.slo.shed * len(requests)
    covered = covered_refusals(missed[BreachKind.REFUSED], allowance=allowance)
    every, left = missed.total(), Counter(less_covered(missed, covered))
    objective = profile.objective.fraction
    share = max(objective, promised.percentile) if promised is not None else objective
    median = tail_estimate(ttft, 0.5)
    whole = [run for run in runs if run.requests]
    return SimulatedEvidence(
        replicas=replicas,
        objective=objective,
        offered=len(requests),
        missed=left,
        # Another stretch may refuse more of its requests than are covered.
        missed_upper=max(missed_upper(left.total(), clumps), missed_upper(every, clumps) - allowance),
        covered=covered,
        ttft=tail_estimate(ttft, 0.99),
        ttft_p50_s=median.point_s if median is not None else 0.0,
        ttft_held=tail_estimate(ttft, share) if promised is not None else None,
        ttft_limit_s=promised.limit_s if promised is not None else math.inf,
        itl_p99_s=max((run.itl.p99_s for run in whole), default=0.0),
        itl_limit_s=itl.limit_s if itl is not None else math.inf,
        e2e_p99_s=max((run.e2e.p99_s for run in whole), default=0.0),
        running=fmean([run.running for run in whole]) if whole else 0.0,
        dispersion_1s=index_of_dispersion(stretches, 1.0),
        dispersion_10s=index_of_dispersion(stretches, 10.0),
        is_traced=load.is_traced,
    )


def proven_lane(lane: LanePlan, point: SimulatedEvidence, slow: SimulatedEvidence) -> LanePlan:
    """Return a lane's plan with the simulated forecast; `slow` is of engines as much slower as the model may be wrong."""
    if not point.offered:
        return lane
    forecast = replace(lane.forecast, concurrency=point.running, e2e_p99_s=point.e2e_p99_s)
    ttft, slow_ttft = point.ttft, slow.ttft
    if ttft is not None and slow_ttft is not None:
        factor = max(1.0, slow_ttft.point_s / ttft.point_s)
        forecast = replace(
            forecast,
            ttft_p50_s=point.ttft_p50_s,
            ttft_p99_s=ttft.point_s,
            ttft_p99_low_s=ttft.low_s / factor,
            ttft_p99_high_s=ttft.high_s * factor,
        )
    if point.itl_p99_s:
        factor = max(1.0, slow.itl_p99_s / point.itl_p99_s)
        forecast = replace(
            forecast,
            itl_p99_s=point.itl_p99_s,
            itl_p99_low_s=point.itl_p99_s / factor,
            itl_p99_high_s=point.itl_p99_s * factor,
        )
    proof = LaneProof(
        replicas=point.replicas,
        offered=point.offered,
        good_share=point.good_share,
        covered=point.covered,
        good_share_low=slow.good_share_low,
        dispersion_1s=point.dispersion_1s,
        dispersion_10s=point.dispersion_10s,
    )
    return replace(lane, forecast=forecast, proof=proof)


def lane_risks(profile: Profile, lane: LanePlan) -> Iterator[str]:
    """Yield the promises of a lane that its forecast's interval crosses."""
    slo, forecast = profile.lane(lane.lane).slo, lane.forecast
    known = {Metric.TTFT: forecast.ttft_p99_high_s, Metric.ITL: forecast.itl_p99_high_s}
    for target in slo.targets:
        high_s = known.get(target.metric, 0.0) if target.percentile >= 0.99 else 0.0  # the forecast is a P99's
        if high_s > target.limit_s:
            yield f"lane {lane.lane}: {describe(target)} may be missed at {format_duration(high_s)}"
    low = lane.proof.good_share_low if lane.proof is not None else None
    if low is not None and low < profile.objective.fraction:
        yield (
            f"lane {lane.lane}: {low:.2%} of its requests may be good, and {profile.objective.fraction:.4g} is the objective"
        )


def with_risks(plan: Plan, profile: Profile, *, accepts_risk: bool) -> Plan:
    """Return the plan with the promises that its forecasts' intervals cross: accepted, or cautioned of."""
    risks = tuple(risk for lane in plan.lanes for risk in lane_risks(profile, lane))
    if accepts_risk:
        return replace(plan, risks=risks)
    return replace(plan, cautions=(*plan.cautions, *risks))
