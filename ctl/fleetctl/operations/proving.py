"""Proves a plan: the planned fleet is simulated under the load that was planned for, and replicas are added or taken until it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import is_dispersion_exact
from fleetctl.core.plan.assemble import later
from fleetctl.core.plan.checks import Failure
from fleetctl.core.plan.proven import ProvenCount
from fleetctl.core.ttft_budget import as_held, inside_s
from fleetctl.errors import BudgetExceededError, InfeasiblePlanError
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.plan import Constraint, Plan
from fleetctl.model.profile import Profile, ReplicaBounds
from fleetctl.model.slo import Metric
from fleetctl.model.traffic import Dispersion
from fleetctl.operations.proof_figures import SimulatedEvidence, lane_evidence, proven_lane, with_risks
from fleetctl.operations.proof_load import DrawnRun, ProofLoad, proof_load
from fleetctl.sim.sampled import EnteredRun, LaneMemo, entered_lanes, sample_fleet
from fleetctl.sim.scenario import SimulationSpec, paced
from fleetctl.sim.world import EPOCH
from fleetctl.units import format_count, format_fraction
from fleetctl.worker_processes import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fleetctl.core.plan import FleetSearch, TracedRequest
    from fleetctl.load.trace import Arrival
    from fleetctl.model.plan import LanePlan
    from fleetctl.sim.sampled import LaneSamples

REQUESTS = 4000  # of one simulation, about: a second of computing
_PASSES_MAX = 7
_KINDS_MAX = 3  # of replicas that are tried for lanes which the cheapest do not carry
_SLICE_REPLICAS_MIN = 6  # of a larger pool, as many as keep most of what pooling gains
_SLICE_REQUESTS = 9000
# Of a lane that is to have many more than its load needs, so many are given all of its requests first, or three times what the closed
# form finds: what holds there holds with the more that share the same load. To route among a thousand takes twenty times as long.
_CROWDED_REPLICAS_MIN = 50
_CROWDED_TIMES = 3
_FORKED_REQUESTS_MIN = 2000
_TAIL_REQUESTS_MIN = 100  # below it the ceil rank of a P99 is the last one (docs/slo.md)
_WARM_S_MIN, _WARM_S_MAX = 5.0, 20.0
_MORE, _FEWER = 1.25, 0.8  # of the count, while only one side is known
_FAR, _MORE_FROM_FAR = 4.0, 1.6  # times as many missed as may be: the count is far off


@dataclass(slots=True, kw_only=True)
class _Count:
    """How many replicas of a lane are known to be enough, and too few."""

    tried: int
    too_few: int  # or one below the fewest that may be
    enough: int | None = None
    failed: SimulatedEvidence | None = None  # at `too_few`

    @property
    def is_settled(self) -> bool:
        """Whether no count in between is left to try."""
        return self.enough is not None and self.enough - self.too_few <= 1

    def next(self) -> None:
        """Choose the next count to try."""
        if self.enough is None:
            is_far = self.failed is not None and self.failed.missed.total() > _FAR * self.failed.allowed
            self.tried = max(self.tried + 1, math.ceil(self.tried * (_MORE_FROM_FAR if is_far else _MORE)))
        elif self.failed is None:
            self.tried = max(self.too_few + 1, min(self.enough - 1, math.floor(self.enough * _FEWER)))
        else:
            self.tried = (self.too_few + self.enough) // 2


def prove(
    searched: FleetSearch,
    rows: Sequence[TracedRequest] | None,
    *,
    accepts_risk: bool = False,
    requests: int = REQUESTS,
    processes: int = 1,
) -> Plan:
    """Return the plan with the fewest replicas that a simulation shows to keep every promise, and what it measured as forecast.

    Engines step as much slower as the step model has been wrong on data it was not fitted to, with `accepts_risk` at
    its point; emulated ones step by the model. Where no count within reach holds, the next cheapest kinds of replica are
    tried. Deterministic, and the same by whatever number of `processes`. Raises InfeasiblePlanError of the cheapest where
    none of them holds either, BudgetExceededError.
    """
    refused: list[InfeasiblePlanError] = []
    for _ in range(_KINDS_MAX):
        try:
            return _prove(searched, rows, accepts_risk=accepts_risk, requests=requests, processes=processes)
        except InfeasiblePlanError as error:
            refused.append(error)
            lane = next((each.name for each in searched.profile.lanes if error.key[:2] == ("lanes", each.name)), None)
            if lane is None:
                break
        try:
            searched = searched.without(lane)
        except (InfeasiblePlanError, BudgetExceededError):
            break
    raise refused[0]


def _prove(
    searched: FleetSearch, rows: Sequence[TracedRequest] | None, *, accepts_risk: bool, requests: int, processes: int
) -> Plan:
    """Prove the kinds of replica that were chosen. Raises InfeasiblePlanError, BudgetExceededError."""
    profile, plan = searched.profile, searched.plan()
    if any(lane.offering.is_on_cpu for lane in plan.lanes) or profile.workflows is not None:
        return plan  # nothing is forecast of the one, and no trace of calls is given of the other
    load = proof_load(profile, rows, requests_max=requests, warm_s=warm_s(plan))
    slowdown = {} if accepts_risk else searched.slowdowns()
    crowds = {o.lane.name: max(_CROWDED_REPLICAS_MIN, _CROWDED_TIMES * o.result.needed) for o in searched.chosen}
    laboratory = Laboratory(profile=profile, plan=plan, load=load, crowds=crowds, processes=processes)
    counts = _counts(searched, plan)
    for _ in range(_PASSES_MAX):
        trying = {lane: count.tried for lane, count in counts.items()}
        found = laboratory.simulated(trying, slowdown)
        for lane, count in counts.items():
            if not count.is_settled:
                _learn(count, found[lane], accepts_risk=accepts_risk)
        if all(count.is_settled for count in counts.values()):
            break
        for count in counts.values():
            if count.is_settled:
                count.tried = count.enough or count.tried
            else:
                count.next()
    proven = _proven(profile, counts, load, accepts_risk=accepts_risk)
    return _with_forecast(searched.plan(proven), laboratory, slowdown, accepts_risk=accepts_risk)


def warm_s(plan: Plan) -> float:
    """Return how long a fleet takes to fill: half of what its longest answers take, as most are shorter."""
    return min(_WARM_S_MAX, max(_WARM_S_MIN, *(lane.forecast.e2e_p99_s / 2 for lane in plan.lanes)))


def _counts(searched: FleetSearch, plan: Plan) -> dict[str, _Count]:
    fewest, found = searched.fewest(), {}
    for option in searched.chosen:
        lane = option.lane
        floor = max(fewest[lane.name], lane.replicas.min)
        tried = max(floor, option.result.needed)
        found[lane.name] = _Count(tried=tried, too_few=floor - 1)
    return found


def _learn(count: _Count, found: SimulatedEvidence, *, accepts_risk: bool) -> None:
    if found.holds(accepts_risk=accepts_risk):
        count.enough = count.tried
    else:
        count.too_few, count.failed = count.tried, found
        if count.enough is not None and count.enough <= count.tried:
            count.enough = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Laboratory:
    """Where a profile's planned fleet is simulated under one load; nothing is simulated twice."""

    profile: Profile
    plan: Plan
    load: ProofLoad
    crowds: dict[str, int] = field(default_factory=dict)  # lane -> how many replicas are tried with the load of more
    processes: int = 1  # that simulate the load's runs, which know nothing of each other
    known: dict[tuple[object, ...], dict[str, SimulatedEvidence]] = field(default_factory=dict)
    lanes: LaneMemo = field(default_factory=dict)
    entered: list[EnteredRun] = field(
        default_factory=list
    )  # the load's runs, once a part of a lane's requests was simulated

    def simulated(self, counts: dict[str, int], slowdown: dict[str, float]) -> dict[str, SimulatedEvidence]:
        """Return what so many replicas of each lane make of the load, their steps `slowdown` times as long."""
        key = (*counts.items(), *((lane, factor) for lane, factor in slowdown.items() if factor != 1.0))
        if key not in self.known:
            self.known[key] = self._simulate(counts, slowdown)
        return self.known[key]

    def _simulate(self, counts: dict[str, int], slowdown: dict[str, float]) -> dict[str, SimulatedEvidence]:
        """Of a large pool a part is simulated, with as much of the load, or with all of it where that holds."""
        slices = {lane: _slice(count, self.load) for lane, count in counts.items()}
        kept = {lane: slices[lane] / count for lane, count in counts.items() if slices[lane] < count}
        crowded = {
            lane: self.crowds[lane] for lane, n in slices.items() if lane not in kept and self.crowds.get(lane, n) < n
        }
        if crowded:
            found = self._run(slices | crowded, kept, slowdown)
            if all(found[lane].holds() for lane in crowded):
                return found
        return self._run(slices, kept, slowdown)

    def _run(
        self, simulated: dict[str, int], kept: dict[str, float], slowdown: dict[str, float]
    ) -> dict[str, SimulatedEvidence]:
        profile, load = self.profile, self.load
        desired, spec = self._fleet(simulated), paced(profile, SimulationSpec(settled=simulated))
        # Where all requests arrive, each run is as it is.
        loads: Sequence[Sequence[Arrival] | EnteredRun] = self._entered(desired, spec) if kept else load.runs
        simulations: list[Callable[[], dict[str, LaneSamples]]] = [
            partial(
                sample_fleet,
                desired,
                run,
                replace(spec, seed=number, duration_s=load.run_s[number]),
                warm_s=load.warm_s,
                kept=kept,
                slowdown=slowdown,
                lanes=self.lanes,
            )
            for number, run in enumerate(loads)
        ]
        # To fork takes as long as some hundred requests.
        runs = spread(simulations, processes=self.processes if load.requests >= _FORKED_REQUESTS_MIN else 1)
        return {
            lane.name: lane_evidence(
                lane,
                profile,
                load,
                [run[lane.name] for run in runs],
                replicas=simulated[lane.name],
            )
            for lane in profile.lanes
        }

    def _entered(self, desired: Desired, spec: SimulationSpec) -> Sequence[EnteredRun]:
        """Return the load's runs with the lane that each request enters, which is chosen once for all simulations."""
        if not self.entered:
            for run in self.load.runs:
                if isinstance(run, DrawnRun):
                    lanes = entered_lanes(desired, run.bodies, spec, self.lanes)
                    self.entered.append(EnteredRun(run, run.at_s, [lanes[place] for place in run.body_of]))
                else:
                    lanes = entered_lanes(desired, run, spec, self.lanes)
                    self.entered.append(EnteredRun(run, [row.at_s for row in run], lanes))
        return self.entered

    def _fleet(self, counts: dict[str, int]) -> Desired:
        """Return the fleet with so many replicas; the caps, which the plan is held to, do not bind here."""
        capacity = replace(self.profile.capacity, max_nodes=10**6, max_cost_usd_per_hour=None)
        lanes = tuple(
            replace(lane, replicas=ReplicaBounds(min=counts[lane.name], max=counts[lane.name]))
            for lane in self.profile.lanes
        )
        profile = replace(self.profile, lanes=lanes, capacity=capacity)
        return Desired(
            fleet=profile.name,
            phase=DesiredPhase.UP,
            generation=1,
            profile=profile,
            plan=self.plan,
            created_at=EPOCH,
            changed_at=EPOCH,
        )


def _slice(count: int, load: ProofLoad) -> int:
    """Return how many of a lane's replicas are simulated, so that a run is no longer than about the requests that were asked for."""
    if load.requests <= _SLICE_REQUESTS:
        return count
    return min(count, max(_SLICE_REPLICAS_MIN, round(count * _SLICE_REQUESTS / load.requests)))


_OF_MISS = {"itl": Constraint.ITL, "stream_gap": Constraint.ITL, "timeout": Constraint.DECODE}


def _proven(
    profile: Profile, counts: dict[str, _Count], load: ProofLoad, *, accepts_risk: bool
) -> dict[str, ProvenCount]:
    """Return the counts that differ from the closed form's, with what fails below them. Raises InfeasiblePlanError."""
    found = {}
    for spec in profile.lanes:
        count = counts[spec.name]
        if count.enough is None:
            if accepts_risk:
                continue
            raise _unproven(spec.name, count, load, profile)
        if count.enough == spec.replicas.min:
            continue  # the closed form's is fewer, or the same
        fewer = None
        if count.failed is not None:
            kind = count.failed.worst_kind
            target = spec.slo.strictest(Metric.ITL if _OF_MISS.get(kind) is Constraint.ITL else Metric.TTFT)
            fewer = Failure(
                constraint=_OF_MISS.get(kind, Constraint.PREFILL),
                why=f"in a simulation {count.failed.why}",
                target=target,
            )
        found[spec.name] = ProvenCount(replicas=count.enough, why="simulated", fewer=fewer)
    return found


def _unproven(lane: str, count: _Count, load: ProofLoad, profile: Profile) -> InfeasiblePlanError:
    why = count.failed.why if count.failed is not None else ""
    return InfeasiblePlanError(
        f"lane {lane}: simulated with {count.too_few} replicas under {load.about}, {why}; the objective is "
        f"{format_fraction(profile.objective.fraction)}",
        hint="more replicas do not help: relax its promises, give its longest prompts a lane of their own, or raise max_wait; "
        "or take a plan that the simulation does not show to hold: --accept-risk",
        key=("lanes", lane, "slo"),
    )


def _with_forecast(plan: Plan, laboratory: Laboratory, slowdown: dict[str, float], *, accepts_risk: bool) -> Plan:
    """Return the plan with what its fleet came to in a simulation, spares included, as forecast."""
    counts = {lane.lane: lane.replicas for lane in plan.lanes}
    point = laboratory.simulated(counts, {})
    slow = laboratory.simulated(counts, slowdown)
    profile = as_held(laboratory.profile)
    lanes = tuple(_simulated(profile, lane, point[lane.lane], slow[lane.lane]) for lane in plan.lanes)
    load = laboratory.load
    about = "; ".join((load.about, *_parts(lanes, load)))
    proven = replace(plan, lanes=lanes, proof=about, cautions=(*plan.cautions, *_few(load)))
    return with_risks(proven, profile, accepts_risk=accepts_risk)


def _few(load: ProofLoad) -> Iterator[str]:
    """Yield that a trace has too few requests to tell a tail by."""
    if load.is_traced and load.requests < _TAIL_REQUESTS_MIN:
        yield (
            f"the trace has {format_count(load.requests, 'request')}: of fewer than {_TAIL_REQUESTS_MIN} the P99 is that of the worst one, "
            "and how others fare is not shown; a longer trace does, or the workload's percentiles without one"
        )


def _parts(lanes: Sequence[LanePlan], load: ProofLoad) -> Iterator[str]:
    """Yield of which lanes a part was simulated, and with how much of their load."""
    for lane in lanes:
        if lane.proof is not None and lane.proof.replicas < lane.replicas:
            requests = "as much of" if _slice(lane.replicas, load) < lane.replicas else "all of"
            yield f"of lane {lane.lane} {lane.proof.replicas:,} of {lane.replicas:,} replicas, with {requests} its requests"


def _simulated(profile: Profile, lane: LanePlan, point: SimulatedEvidence, slow: SimulatedEvidence) -> LanePlan:
    """Return a lane's plan with the simulated forecast; a simulation has gateway and tokenization as plans assume them."""
    more_s = inside_s(profile.lane(lane.lane).ttft_budget)
    found = proven_lane(replace(lane, forecast=later(lane.forecast, -more_s)), point, slow)
    if found.proof is not None and not is_dispersion_exact(profile.workload):
        counted = Dispersion(over_1s=found.proof.dispersion_1s, over_10s=found.proof.dispersion_10s)
        found = replace(found, arrivals=counted)
    return replace(found, forecast=later(found.forecast, more_s))
