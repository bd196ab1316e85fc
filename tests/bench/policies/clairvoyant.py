"""The bound: a schedule of replicas made by somebody who knows every arrival beforehand.

What it is: a schedule that was run, so an upper bound of the least cost, not a proof that nothing is cheaper. Each lane's work
is summed over the 30 s around every second, in replicas at the rate that keeps its SLO, and divided by a utilization; the
count is ordered a boot ahead of when it is due, boots are paid for, and the project's own gateway and everything but the
count are as for all others. Searched is, to a tenth, the highest utilization at which at least 99.5 % of every lane's offered
requests are good, then a higher one for each lane alone, while the lanes together keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import RequestTokens
from fleetctl.core.reconcile import reconcile
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.core.scaling import Target
from fleetctl.model.reason import ReasonCode
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import EPOCH, SimulatedWorld
from tests.bench.policies.peers.signals import replica_profile
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.load.trace import Arrival
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.sim.result import SimulationResult
    from tests.bench.policies.cases import Case

GOOD_SHARE = 0.995
WINDOW_S = 30.0
_UTILIZATION = (0.45, 4.0)
_PRECISION = 0.1
_LANE_STEP = 1.2
# A boot takes 10 % longer at worst, an order and a warm-up three seconds, and a decision one.
_BOOT_SPREAD, _AROUND_BOOT_S = 1.1, 5.0
_COST_MIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """How work becomes replicas."""

    window_s: float
    utilization: dict[str, float]  # by lane


@dataclass(frozen=True, slots=True)
class Schedule:
    """Replicas of each lane, by second; a policy."""

    wanted: dict[str, list[int]]

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        """Return the built-in policy's decision with the schedule's counts."""
        second = int((now - EPOCH).total_seconds())

        def scaling(view: LaneView) -> Target:
            counts = self.wanted[view.spec.name]
            wanted = view.bounded(counts[min(second, len(counts) - 1)])
            kept = replace(view.memory, wanted=wanted, planned=view.plan.replicas)
            return Target(wanted=wanted, memory=kept, code=ReasonCode.PLANNED, reason=f"{wanted} on schedule")

        return reconcile(desired, observation, memory, now, scaling=scaling)


def work_by_second(desired: Desired, trace: Sequence[Arrival]) -> dict[str, list[float]]:
    """Return the work of each lane's arrivals, in seconds of a replica that keeps its SLO, by second of arrival."""
    world = SimulatedWorld(desired, reconcile, SimulationSpec(settled={}), offerings=offerings())
    profiles = {lane.name: replica_profile(desired, lane.name) for lane in desired.profile.lanes}
    shares = {lane.name: desired.plan.lane(lane.name).throughput for lane in desired.profile.lanes}
    found = {name: [0.0] * (int(trace[-1].at_s) + 1) for name in profiles}
    for row in trace:
        needed = RequestTokens(row.prompt_tokens, row.prompt_tokens, row.prompt_tokens, row.output_tokens)
        lane = world.dispatcher.routes.lane_of(
            PromptLoad(row.prompt_tokens, {}), needed, header=row.lane or None, batch_hint=row.batch, stream=row.stream
        )
        if isinstance(lane, Refusal):
            continue
        name = lane.route.name
        profile, known = profiles[name], shares[name]
        cost = 1.0
        if known is not None and profile.prompt_tokens and profile.output_tokens:
            cost += known.prompt_share * (row.prompt_tokens / profile.prompt_tokens - 1.0)
            cost += known.output_share * (row.output_tokens / profile.output_tokens - 1.0)
        found[name][int(row.at_s)] += max(_COST_MIN, cost) / profile.rps
    return found


def schedule(work: dict[str, list[float]], settings: ScheduleSettings, *, boot_s: float) -> Schedule:
    """Return the counts for this work: what is due, ordered a boot ahead."""
    ahead = math.ceil(boot_s * _BOOT_SPREAD + _AROUND_BOOT_S)
    return Schedule({
        name: _ahead(_needed(seconds, settings.window_s, settings.utilization[name]), ahead)
        for name, seconds in work.items()
    })  # fmt: skip


def _needed(seconds: list[float], window_s: float, utilization: float) -> list[int]:
    half = max(1, int(window_s / 2))
    summed = [0.0]
    for each in seconds:
        summed.append(summed[-1] + each)
    found = []
    for at in range(len(seconds)):
        first, last = max(0, at - half), min(len(seconds), at + half)
        found.append(math.ceil((summed[last] - summed[first]) / (last - first) / utilization - 1e-9))
    return found


def _ahead(needed: list[int], ahead: int) -> list[int]:
    """Return the largest need of the seconds from each one until a boot later."""
    found = [0] * len(needed)
    queue: list[int] = []  # places of falling needs
    for at in range(len(needed) - 1, -1, -1):
        while queue and needed[queue[-1]] <= needed[at]:
            queue.pop()
        queue.append(at)
        while queue[0] > at + ahead:
            queue.pop(0)
        found[at] = needed[queue[0]]
    return found


def keeps_promise(result: SimulationResult) -> bool:
    """Whether every lane's good of offered is at least what the bound is for."""
    return all(lane.good_share >= GOOD_SHARE for lane in result.lanes if lane.good_share is not None)


def search(
    case: Case,
    trace: Sequence[Arrival],
    run: Callable[[Schedule], SimulationResult],
    *,
    known: ScheduleSettings | None = None,
) -> tuple[SimulationResult, ScheduleSettings] | None:
    """Return the cheapest schedule found that keeps the promise. None: none of those tried does.

    `known` is what another seed's search found: where it passes here too, it is taken as it is.
    """
    desired = case.desired()
    work = work_by_second(desired, trace)

    def attempt(settings: ScheduleSettings) -> SimulationResult | None:
        result = run(schedule(work, settings, boot_s=case.boot_s))
        return result if keeps_promise(result) else None

    if known is not None:
        while min(known.utilization.values()) > _UTILIZATION[0] / 2.0:
            passed = attempt(known)
            if passed is not None:
                return passed, known
            known = replace(known, utilization={name: u * (1.0 - _PRECISION) for name, u in known.utilization.items()})
        return None
    best = _highest(attempt, list(work))
    return None if best is None else _each_lane(attempt, best)


def _highest(
    attempt: Callable[[ScheduleSettings], SimulationResult | None], lanes: list[str]
) -> tuple[SimulationResult, ScheduleSettings] | None:
    low, high = _UTILIZATION
    best = None
    while high / low > 1.0 + _PRECISION:
        middle = math.sqrt(low * high)
        settings = ScheduleSettings(window_s=WINDOW_S, utilization=dict.fromkeys(lanes, middle))
        found = attempt(settings)
        if found is None:
            high = middle
        else:
            low, best = middle, (found, settings)
    return best


def _each_lane(
    attempt: Callable[[ScheduleSettings], SimulationResult | None], best: tuple[SimulationResult, ScheduleSettings]
) -> tuple[SimulationResult, ScheduleSettings]:
    """Let each lane alone be used more, while all keep the promise and it is cheaper."""
    lanes = list(best[1].utilization)
    for name in lanes if len(lanes) > 1 else ():
        while True:
            known = best[1].utilization
            settings = replace(best[1], utilization={**known, name: known[name] * _LANE_STEP})
            found = attempt(settings)
            if found is None or found.cost_usd >= best[0].cost_usd:
                break
            best = (found, settings)
    return best
