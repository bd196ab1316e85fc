"""Replays a recorded period under its own profile, which tells how true the simulation is, and under others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl import os_signals, plugins
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.model.catalogue import Offering
from fleetctl.model.desired import Desired, DesiredPhase, Overrides
from fleetctl.model.recording import GapKind
from fleetctl.operations.fidelity import FidelityLane, fidelity
from fleetctl.operations.planning import offerings_now, plan_profile
from fleetctl.operations.profiles import FoundProfile
from fleetctl.operations.recorded_lanes import BacktestLane, recorded_lanes, simulated_lane
from fleetctl.operations.replayed import ReplayedPeriod, replay_spec, replayed
from fleetctl.operations.simulation import SEEDS_MAX, SIMULATED_S_MAX, known_policies
from fleetctl.recordings.period import read_period
from fleetctl.sim.run import simulate
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.provider_setting import ProviderChoice
    from fleetctl.model.recording import RecordingGap
    from fleetctl.operations.site import Site
    from fleetctl.recordings.period import RecordedPeriod
    from fleetctl.sim.result import SimulationResult

RECORDED, REPLAYED = "recorded", "replayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRequest:
    """What is to be replayed, as a person asks for it."""

    recording: Path
    profiles: tuple[tuple[str, FoundProfile], ...] = ()  # beside the recorded one, by the name they are shown under
    policies: tuple[str, ...] = ()  # of each profile; none: its own
    seeds: int = 1
    offset_s: float = 0.0
    duration_s: float | None = None  # None: to the recording's end


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRun:
    """What the period came to: as it was (`recorded`), or under one profile and policy."""

    name: str  # recorded, replayed (under the recorded profile), PROFILE, PROFILE/POLICY
    policy: str
    seeds: int  # 0: it was not simulated
    instances: dict[str, str]  # lane -> what a replica of it runs on, as planned: "g6.xlarge, 1 x L4"
    lanes: tuple[BacktestLane, ...]
    replicas_mean: float
    cost_usd: float
    decisions: dict[str, int]  # actions by name and reason code, over all seeds
    unrouted: dict[str, int]  # requests that no lane took, by Refusal
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestReport:
    """A recorded period beside what simulations make of it."""

    fleet: str
    recording: str
    since: datetime
    duration_s: float
    requests: int
    requests_missed: int  # known to be missing in it
    objective: float
    fidelity: tuple[FidelityLane, ...]  # recorded against replayed, lane by lane
    runs: tuple[BacktestRun, ...]  # recorded first, then replayed
    cautions: tuple[str, ...]  # what the recording lacks, and what is not replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One profile, planned, under one policy."""

    name: str
    desired: Desired
    policy: str
    settled: dict[str, int]
    offerings: tuple[Offering, ...]


def backtest(
    site: Site,
    request: BacktestRequest,
    *,
    on_progress: Callable[[str, int, float], None] = lambda name, seed, share: None,
) -> tuple[BacktestReport, dict[str, SimulationResult]]:
    """Return the report, and each simulated run's first result with its figures over time.

    Raises ConfigError for what cannot be read or be, NotFoundError, and whatever planning raises.
    """
    if not 1 <= request.seeds <= SEEDS_MAX:
        raise ConfigError(f"--seeds is from 1 to {SEEDS_MAX}, not {request.seeds}")
    if request.duration_s is not None and request.duration_s <= 0:
        raise ConfigError("--duration is more than 0s", hint="leave it out to replay to the recording's end")
    policies = known_policies(request.policies)
    period = read_period(request.recording, offset_s=request.offset_s, duration_s=request.duration_s)
    _check(period, request)
    replay = replayed(period)
    cautions: list[str] = []
    found: dict[str, list[SimulationResult]] = {}
    shown = [_recorded_run(period)]
    for case in _cases(site, period, replay, request, policies, cautions):
        found[case.name] = list(_simulated(case, period, replay, request.seeds, on_progress))
        cautions.extend(_renamed(case, replay))
        shown.append(_run(case, found[case.name]))
    report = BacktestReport(
        fleet=period.header.fleet,
        recording=str(request.recording),
        since=period.since,
        duration_s=period.duration_s,
        requests=len(period.requests),
        requests_missed=sum(gap.requests or 0 for gap in period.gaps),
        objective=period.desired.profile.objective.fraction,
        fidelity=fidelity(shown[0].lanes, shown[1].lanes),
        runs=tuple(shown),
        cautions=(*_lacks(period, replay), *cautions, *_shortfalls(shown, len(period.requests))),
    )
    return report, {name: results[0] for name, results in found.items()}


def _check(period: RecordedPeriod, request: BacktestRequest) -> None:
    if period.duration_s > SIMULATED_S_MAX:
        raise ConfigError(
            f"at most {format_duration(SIMULATED_S_MAX)} are simulated", hint="take a part: --duration 7d"
        )
    if not period.requests:
        missing = "no request of it was recorded in that time"
        raise ConfigError(f"{request.recording}: {missing}, so there is nothing to replay")


def _cases(  # what each case is made of
    site: Site,
    period: RecordedPeriod,
    replay: ReplayedPeriod,
    request: BacktestRequest,
    policies: tuple[str, ...],
    cautions: list[str],
) -> Iterator[_Case]:
    """Yield the recorded profile under its own policy first, then everything that was asked for."""
    recorded = replace(period.desired, phase=DesiredPhase.UP)
    own = recorded.profile.control.policy
    offerings = _offerings(site, recorded.profile.provider_choice, cautions)
    yield _Case(name=REPLAYED, desired=recorded, policy=own, settled=replay.begun_with, offerings=offerings)
    for policy in policies:
        if policy != own:
            yield _Case(
                name=f"{REPLAYED}/{policy}",
                desired=recorded,
                policy=policy,
                settled=replay.begun_with,
                offerings=offerings,
            )
    for name, given in request.profiles:
        plan = os_signals.run(plan_profile(site, given.profile, source=given.source))
        desired = replace(recorded, fleet=given.profile.name, profile=given.profile, plan=plan, overrides=Overrides())
        offerings = _offerings(site, given.profile.provider_choice, cautions)
        for policy in dict.fromkeys((given.profile.control.policy, *policies)):
            yield _Case(
                name=name if policy == given.profile.control.policy else f"{name}/{policy}",
                desired=desired,
                policy=policy,
                settled=_settled(desired, recorded, replay),
                offerings=offerings,
            )


def _settled(desired: Desired, recorded: Desired, replay: ReplayedPeriod) -> dict[str, int]:
    """Return how a lane begins: as it was where its replicas are the recorded ones' like, within its own bounds; else as planned."""
    found = {}
    for lane in desired.profile.lanes:
        planned = desired.plan.lane(lane.name)
        found[lane.name] = planned.replicas
        if lane.name in replay.begun_with:
            before = recorded.plan.lane(lane.name)
            if (before.gpu, before.tensor_parallel) == (planned.gpu, planned.tensor_parallel):
                found[lane.name] = min(max(replay.begun_with[lane.name], lane.replicas.min), lane.replicas.max)
    return found


def _offerings(site: Site, provider: ProviderChoice, cautions: list[str]) -> tuple[Offering, ...]:
    """Return what a provider sells now; none, with a caution, where it does not say: then what the plan names is sold."""
    try:
        return os_signals.run(offerings_now(site, provider))
    except FleetctlError as error:
        line = f"provider {provider} does not say what it sells ({error.message}): only what the plans name is"
        if line not in cautions:
            cautions.append(line)
        return ()


def _simulated(
    case: _Case,
    period: RecordedPeriod,
    replay: ReplayedPeriod,
    seeds: int,
    on_progress: Callable[[str, int, float], None],
) -> Iterator[SimulationResult]:
    for seed in range(seeds):
        arrivals, _ = replay.arrivals_of(case.desired.profile)
        spec = replay_spec(case.desired.profile, replay, settled=case.settled, duration_s=period.duration_s, seed=seed)
        yield simulate(
            case.desired,
            arrivals,
            policy=plugins.load_policy(case.policy),
            policy_name=case.name,
            spec=spec,
            offerings=case.offerings,
            on_progress=lambda at_s, seed=seed: on_progress(case.name, seed, min(1.0, at_s / period.duration_s)),  # type: ignore[misc]
        )


def _run(case: _Case, results: list[SimulationResult]) -> BacktestRun:
    decisions, unrouted = Counter[str](), Counter[str]()
    for result in results:
        decisions.update(result.decisions)
        unrouted.update(result.unrouted)
    lanes = tuple(
        simulated_lane([result.lanes[number] for result in results]) for number in range(len(results[0].lanes))
    )
    return BacktestRun(
        name=case.name,
        policy=case.policy,
        seeds=len(results),
        instances=_instances(case.desired),
        lanes=lanes,
        replicas_mean=sum(lane.replicas_mean for lane in lanes),
        cost_usd=sum(lane.cost_usd for lane in lanes),
        decisions=dict(sorted(decisions.items())),
        unrouted=dict(sorted(unrouted.items())),
        violations=tuple(dict.fromkeys(each for result in results for each in result.violations)),
    )


def _instances(desired: Desired) -> dict[str, str]:
    return {lane.lane: f"{lane.offering.instance_type}, {lane.gpu_count} x {lane.gpu}" for lane in desired.plan.lanes}


def _recorded_run(period: RecordedPeriod) -> BacktestRun:
    lanes = recorded_lanes(period)
    return BacktestRun(
        name=RECORDED,
        policy=period.desired.profile.control.policy,
        seeds=0,
        instances=_instances(period.desired),
        lanes=lanes,
        replicas_mean=sum(lane.replicas_mean for lane in lanes),
        cost_usd=sum(lane.cost_usd for lane in lanes),
        decisions=dict(sorted(period.decisions.items())),
        unrouted={},
    )


def _renamed(case: _Case, replay: ReplayedPeriod) -> Iterator[str]:
    """Yield that clients named lanes, or had tiers, which the profile has not."""
    _, unknown = replay.arrivals_of(case.desired.profile)
    if unknown:
        count = sum(each.lane in unknown for each in replay.arrivals)
        yield (
            f"{case.name}: {format_count(count, 'request')} named a lane that it has not ({', '.join(unknown)}), which it would refuse: "
            "here its own rules choose theirs, as for clients that name none"
        )
    if missing := replay.unknown_models(case.desired.profile):
        named = ", ".join(sorted(name or "(none)" for name in missing))
        yield (
            f"{case.name}: {format_count(missing.total(), 'request')} were for a model that it has not ({named}): here they are for its "
            f"first, {case.desired.profile.model.name}, or that of the lane they name"
        )
    tiers = {tier.name for tier in case.desired.profile.tiers}
    gone = Counter(each.tier for each in replay.arrivals if tiers and each.tier and each.tier not in tiers)
    if gone:
        yield (
            f"{case.name}: {format_count(gone.total(), 'request')} had a tier that it has not ({', '.join(sorted(gone))}): here they have "
            "their key's, or their lane's"
        )


def _shortfalls(runs: list[BacktestRun], requests: int) -> Iterator[str]:
    """Yield what makes a run look better than it would have been: requests that no lane took, and what went wrong in it."""
    for run in runs:
        if run.unrouted:
            why = ", ".join(f"{count} {refusal}" for refusal, count in run.unrouted.items())
            yield (
                f"{run.name}: {sum(run.unrouted.values())} of {requests * run.seeds} requests were refused by every lane ({why}): "
                "in no lane's figures, and its cost is for the rest"
            )
        for violation in run.violations:
            yield f"{run.name}: {violation}"


_GAPS = {
    GapKind.OVERRUN: "the gateway forgot them before they were read",
    GapKind.GATEWAY_RESTART: "the gateway was restarted",
    GapKind.NOT_RECORDED: "nothing was recorded",
}


def _lacks(period: RecordedPeriod, replay: ReplayedPeriod) -> Iterator[str]:
    """Yield what the recording lacks and what is not replayed: the fleet was busier than the simulation has it."""
    for gap in period.gaps:
        yield f"{_missing(gap)} between {gap.since:%H:%M:%S} and {gap.until:%H:%M:%S}: {_GAPS[gap.kind]}"
    if period.is_cut:
        yield "the recording has no end: what ended in its last half second, and what was under way then, is missing"
    if period.requests_open:
        yield f"{format_count(period.requests_open, 'request')} still waited or ran as the recording ended, and are not in it"
    if period.requests_before:
        yield f"{format_count(period.requests_before, 'request')} came before the period and ended in it: they are left out"
    if replay.lengths_drawn:
        yield (
            f"{format_count(replay.lengths_drawn, 'answer')} of unknown length (refused, cut or capped): "
            "each is taken to be as long as another one of its lane"
        )
    if period.by_people or period.changes:
        count = max(period.by_people, period.changes)
        yield f"what people changed meanwhile ({count} times) is not replayed"


def _missing(gap: RecordingGap) -> str:
    return (
        "an unknown number of requests is missing"
        if gap.requests is None
        else f"{format_count(gap.requests, 'request')} missing"
    )
