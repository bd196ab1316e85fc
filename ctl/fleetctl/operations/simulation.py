"""Simulates a profile's fleet over a trace, under one policy or several."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl import os_signals, plugins
from fleetctl.config.spot_trace import SpotRow, read_spot_rows
from fleetctl.config.trace import check_ends_by
from fleetctl.config.trace_summary import summarize
from fleetctl.core.dispersion import pooled_burst
from fleetctl.core.slo.judge import COUNTS_ALONE, judge_runs
from fleetctl.core.slo.wording import explain
from fleetctl.errors import ConfigError, NotFoundError, SloBreachError, UnavailableError
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import arrival_duration_s, arrivals, check_spec, uncached
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.traffic import ArrivalBurst
from fleetctl.model.verdict import Compliance, SloVerdict
from fleetctl.operations.kept_promises import missed_promises, undecided_promises
from fleetctl.operations.planning import plan_profile, sold_or_listed
from fleetctl.operations.simulated_traffic import PolicyTraffic, clients_of, tiers_of
from fleetctl.operations.simulated_workflows import PolicyWorkflows, workflows_compared
from fleetctl.sim.result import LaneResult, SimulationResult
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import Disturbance, SimulationSpec, paced
from fleetctl.sim.scenario_text import SYNTAX, parse_disturbance, read_disturbances
from fleetctl.sim.world import EPOCH
from fleetctl.spelling import suggest
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fleetctl.config.faults import ProfileSource
    from fleetctl.model.profile import Profile
    from fleetctl.model.verdict import PromiseFinding
    from fleetctl.operations.site import Site

__all__ = [
    "SYNTAX",
    "LaneResult",
    "PolicyLane",
    "PolicyTraffic",
    "PolicyWorkflows",
    "SimulationReport",
    "SimulationRequest",
    "SimulationResult",
    "SimulationSpec",
    "SpotRow",
    "check_objective",
    "known_policies",
    "paced",
    "promised_parts",
    "simulate_profile",
    "unrouted_line",
]  # fmt: skip
_PROGRESS_S = 60.0  # of simulated time between two looks
SEEDS_MAX = 1000
SIMULATED_S_MAX = 31 * 86400.0  # a month; with a decision a second some ten minutes of computing


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """What is to be simulated, as a person asks for it."""

    load: LoadSpec
    policies: tuple[str, ...] = ()  # none: the profile's own
    seeds: int = 1
    scenario: tuple[str, ...] = ()  # files, or disturbances as SYNTAX has them
    spot: str = ""  # a file of spot availability
    start: tuple[str, ...] = ()  # LANE=N replicas that are ready when it begins; the plan's for lanes not named
    is_fresh: bool = False  # no replica is there when it begins
    spec: SimulationSpec = field(default_factory=SimulationSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLane:
    """One lane under one policy, over all seeds."""

    policy: str
    lane: str
    offered: int
    good: int
    good_share: float | None  # good of what was offered and is decided; null where nothing is
    good_share_min: float | None  # of the worst seed
    refused: int
    unfinished: int  # waited or ran when the simulation ended
    undecided: int  # of these: inside every limit
    goodput_rps: float
    ttft_p50_s: float  # means over the seeds, as are the next
    ttft_p95_s: float
    ttft_p99_s: float
    itl_p99_s: float
    replicas_mean: float
    gpu_hours: float
    cost_usd: float
    reversals: float
    over_slo_s: float
    arrivals: ArrivalBurst  # over all seeds, beside what the lane is planned for
    model: str = ""  # that the lane serves, by name; empty: the fleet has one
    verdict: SloVerdict = field(default_factory=SloVerdict)  # the judge's, over all seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """What came of every policy, seed by seed."""

    fleet: str
    source: str  # of the requests: a trace's path, or the profile's workload
    scenario: tuple[str, ...]
    spot: str
    objective: float
    runs: tuple[SimulationResult, ...]
    comparison: tuple[PolicyLane, ...]
    tiers: tuple[PolicyTraffic, ...] = ()  # of all lanes; none where no request had a tier
    clients: tuple[PolicyTraffic, ...] = ()  # those that offered the most; none where no request named its client
    workflows: tuple[PolicyWorkflows, ...] = ()  # where the trace has any


def simulate_profile(
    site: Site,
    profile: Profile,
    request: SimulationRequest,
    *,
    source: ProfileSource | None = None,
    on_progress: Callable[[str, int, float], None] = lambda policy, seed, share: None,
) -> SimulationReport:
    """Plan a profile and run every policy over every seed; `on_progress` is told the policy, the seed and the share done.

    Raises ConfigError for what cannot be read or be, NotFoundError, and whatever planning raises.
    """
    policies = known_policies(request.policies or (profile.control.policy,))
    if not 1 <= request.seeds <= SEEDS_MAX:
        raise ConfigError(f"--seeds is from 1 to {SEEDS_MAX}, not {request.seeds}")
    kinds = profile.workflows.kinds if profile.workflows is not None else ()
    load = replace(
        request.load, workload=profile.workload, tiers=profile.tiers, kinds=kinds, models=profile.models,
        lane_models=profile.lane_models,
    )  # fmt: skip
    check_spec(load)
    spec, start = _spec(profile, request), _start(profile, request)
    duration_s = _duration_s(load)
    plan = os_signals.run(plan_profile(site, profile, source=source, proves=True))
    desired = Desired(
        fleet=profile.name, phase=DesiredPhase.UP, generation=1, profile=profile, plan=plan, created_at=EPOCH,
        changed_at=EPOCH,
    )  # fmt: skip
    settled = None if request.is_fresh else {lane.lane: lane.replicas for lane in plan.lanes} | start
    offerings = () if spec.spot else os_signals.run(sold_or_listed(site, profile)).offerings
    runs = []
    for name, seed in [(name, spec.seed + number) for name in policies for number in range(request.seeds)]:
        runs.append(
            simulate(
                desired,
                map(uncached, arrivals(load, random.Random(seed))),  # as `load --seed` sends them
                policy=plugins.load_policy(name),
                policy_name=name,
                spec=replace(spec, seed=seed, settled=settled),
                offerings=offerings,
                on_progress=_reporter(on_progress, name, seed, duration_s),
            )
        )
    return SimulationReport(
        fleet=profile.name,
        source=load.trace or "the profile's workload",
        scenario=request.scenario,
        spot=request.spot,
        objective=profile.objective.fraction,
        runs=tuple(runs),
        comparison=tuple(replace(each, model=profile.lane_models.get(each.lane, "")) for each in _compared(runs)),
        tiers=tiers_of(runs),
        clients=clients_of(runs),
        workflows=tuple(workflows_compared(runs)),
    )


def check_objective(report: SimulationReport) -> None:
    """Raise SloBreachError where a lane missed its SLO under a policy, or a tier or a kind of workflows what it is promised.

    Raises UnavailableError if too few ended to know, ConfigError where no lane took any request.
    """
    missed = [each for each in report.comparison if each.verdict.compliance is Compliance.MISSED]
    named = [f"lane {each.lane} under {each.policy} missed its SLO: {explain(each.verdict)}" for each in missed]
    parts = promised_parts(report)
    if lines := [*named, *missed_promises(parts)]:
        raise SloBreachError("; ".join(lines))
    unrouted = [line for run in report.runs if (line := unrouted_line(run))]
    if unrouted and not any(each.offered for each in report.comparison):
        raise ConfigError(f"no lane took any request: {unrouted[0]}", hint="look at the prompts' length")
    if all(each.good_share is None for each in report.comparison):
        raise UnavailableError(
            "no request was judged: none arrived, or none ended", hint="look at --trace and --duration"
        )
    open_ones = [each for each in report.comparison if each.verdict.compliance is Compliance.UNDECIDED]
    if open_ones:
        named = [
            f"{each.lane} under {each.policy}: {each.undecided} of {each.offered} unfinished" for each in open_ones
        ]
        raise UnavailableError(f"whether the objective was kept is undecided: {'; '.join(named)}")
    if unknown := undecided_promises(parts):
        raise UnavailableError(f"whether every promise was kept is undecided: {'; '.join(unknown)}")


def promised_parts(report: SimulationReport) -> list[tuple[str, Sequence[PromiseFinding]]]:
    """Return the tiers and the kinds of workflows that have promises of their own, by policy, and what became of each."""
    return [
        *((f"tier {each.name} under {each.policy}", each.promises) for each in report.tiers if each.promises),
        *((f"workflows {each.kind} under {each.policy}", each.promises) for each in report.workflows if each.promises),
    ]


def unrouted_line(run: SimulationResult) -> str:
    """Return how many requests no lane took and why, in words; empty where every one had a lane."""
    if not run.unrouted:
        return ""
    why = ", ".join(f"{count} {refusal}" for refusal, count in run.unrouted.items())
    return f"{sum(run.unrouted.values())} of {run.requests} requests were refused by every lane ({why}): in no lane's figures"


def known_policies(names: Sequence[str]) -> tuple[str, ...]:
    """Return the policies without repetition. Raises NotFoundError for one that is not installed."""
    known = plugins.installed(plugins.POLICIES)
    for name in names:
        if name not in known:
            hint = f"installed: {', '.join(known)}"
            raise NotFoundError(f"{name!r} is not an installed policy{suggest(name, known)}", hint=hint)
    return tuple(dict.fromkeys(names))


def _spec(profile: Profile, request: SimulationRequest) -> SimulationSpec:
    lanes = [lane.name for lane in profile.lanes]
    disturbances: list[Disturbance] = []
    for written in request.scenario:
        path = Path(written)
        if path.is_file():
            disturbances += read_disturbances(path, lanes=lanes)
        else:
            disturbances.append(parse_disturbance(written, lanes=lanes))
    spot = read_spot_rows(Path(request.spot)) if request.spot else ()
    return replace(paced(profile, request.spec), disturbances=tuple(disturbances), spot=spot)


def _start(profile: Profile, request: SimulationRequest) -> dict[str, int]:
    names, found = [lane.name for lane in profile.lanes], {}
    for written in request.start:
        lane, _, count = written.partition("=")
        if lane not in names:
            raise ConfigError(
                f"--start {written}: no lane {lane!r}{suggest(lane, names)}; there are {', '.join(names)}"
            )
        if not count.isdigit():
            raise ConfigError(f"--start {written}: {count!r} is no number of replicas", hint="write LANE=N")
        found[lane] = int(count)
    if found and request.is_fresh:
        raise ConfigError(
            "--fresh begins without replicas, so --start has nothing to say", hint="leave one of them out"
        )
    return found


def _duration_s(load: LoadSpec) -> float:
    """Return how long requests arrive. Raises ConfigError for longer than may be simulated."""
    rule = f"at most {format_duration(SIMULATED_S_MAX)} are simulated"
    given_s = arrival_duration_s(load)
    if given_s is not None:
        if given_s > SIMULATED_S_MAX:
            raise ConfigError(f"--duration {format_duration(given_s)}: {rule}")
        return given_s
    check_ends_by(Path(load.trace), load.offset_s + SIMULATED_S_MAX * load.speed, rule=rule)
    return max(0.0, summarize(Path(load.trace)).duration_s - load.offset_s) / load.speed


def _reporter(
    on_progress: Callable[[str, int, float], None], policy: str, seed: int, duration_s: float
) -> Callable[[float], None]:
    return lambda at_s: on_progress(policy, seed, min(1.0, at_s / max(duration_s, 1.0)))


def _compared(runs: Sequence[SimulationResult]) -> Iterator[PolicyLane]:
    for policy in dict.fromkeys(run.policy for run in runs):
        of_policy = [run for run in runs if run.policy == policy]
        for number, first in enumerate(of_policy[0].lanes):
            yield _over_seeds(policy, first.lane, [run.lanes[number] for run in of_policy])


def _over_seeds(policy: str, lane: str, found: Sequence[LaneResult]) -> PolicyLane:
    offered = sum(each.offered for each in found)
    good = sum(each.good for each in found)
    undecided = sum(each.undecided for each in found)
    return PolicyLane(
        policy=policy,
        lane=lane,
        offered=offered,
        good=good,
        good_share=good / (offered - undecided) if offered > undecided else None,
        good_share_min=min((each.good_share for each in found if each.good_share is not None), default=None),
        refused=sum(sum(each.refused.values()) for each in found),
        unfinished=sum(each.unfinished for each in found),
        undecided=undecided,
        goodput_rps=fmean(each.goodput_rps for each in found),
        ttft_p50_s=fmean(each.ttft.p50_s for each in found),
        ttft_p95_s=fmean(each.ttft.p95_s for each in found),
        ttft_p99_s=fmean(each.ttft.p99_s for each in found),
        itl_p99_s=fmean(each.itl.p99_s for each in found),
        replicas_mean=fmean(each.replicas_mean for each in found),
        gpu_hours=fmean(each.gpu_hours for each in found),
        cost_usd=fmean(each.cost_usd for each in found),
        reversals=fmean(each.reversals for each in found),
        over_slo_s=fmean(each.over_slo_s for each in found),
        arrivals=pooled_burst([each.arrivals for each in found]),
        verdict=judge_runs([each.verdict for each in found], confidence=COUNTS_ALONE),
    )
