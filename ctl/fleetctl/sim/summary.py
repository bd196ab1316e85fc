"""Puts a simulated world's figures together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.slo.judge import COUNTS_ALONE, judge_run
from fleetctl.core.slo.promises import TierPromises
from fleetctl.sim.nodes import SpotMarket
from fleetctl.sim.result import LaneResult, SimulationResult

if TYPE_CHECKING:
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.desired import Desired
    from fleetctl.sim.scenario import SimulationSpec
    from fleetctl.sim.world import SimulatedWorld


def on_own_machines(desired: Desired) -> Desired:
    """Return a fleet each of whose replicas has a machine of its own: sharing is not simulated, and so costs are no lower."""

    def whole(offering: Offering) -> Offering:
        return replace(offering, is_shareable=False)

    lanes = tuple(
        replace(lane, offering=whole(lane.offering), spot_offering=lane.spot_offering and whole(lane.spot_offering))
        for lane in desired.plan.lanes
    )
    return replace(desired, plan=replace(desired.plan, lanes=lanes))


def plan_offerings(desired: Desired, spec: SimulationSpec) -> tuple[Offering, ...]:
    """Return the offerings that a plan names; spot ones in every zone of the spot trace, where there is one."""
    zones = SpotMarket(spec.spot).zones
    found: dict[str, Offering] = {}
    for lane in desired.plan.lanes:
        found[lane.offering.key] = lane.offering
        spot = lane.spot_offering
        if spot is not None:
            for each in [replace(spot, zone=zone) for zone in zones] or [spot]:
                found[each.key] = each
    return tuple(found.values())


def summarize_world(world: SimulatedWorld, policy: str) -> SimulationResult:
    """Return what became of everything until now."""
    profile = world.desired.profile
    lanes = tuple(_lane(world, spec.name) for spec in profile.lanes)
    promised = TierPromises(
        tiers=profile.tiers, lanes=[lane.slo for lane in profile.lanes], objective=profile.objective.fraction, confidence=COUNTS_ALONE
    )  # fmt: skip
    return SimulationResult(
        policy=policy,
        seed=world.spec.seed,
        requests=world.requests,
        duration_s=world.arrivals_s,
        bucket_s=world.spec.bucket_s,
        replicas_mean=sum(lane.replicas_mean for lane in lanes),
        gpu_hours=sum(lane.gpu_hours for lane in lanes),
        cost_usd=sum(lane.cost_usd for lane in lanes),
        lanes=lanes,
        unrouted=dict(sorted(world.unrouted.items())),
        decisions=dict(sorted(world.controller.decisions.items())),
        violations=world.violations(),
        tiers=world.traffic.by_tier([tier.name for tier in profile.tiers], promised.judged),
        clients=world.traffic.by_client(),
        workflows=world.workflows.figures(world.heap.now_s, confidence=COUNTS_ALONE),
        fallbacks=world.models.fallbacks(),
    )


def _lane(world: SimulatedWorld, name: str) -> LaneResult:
    seconds = max(1.0, world.arrivals_s)
    recorder, plan = world.recorders[name], world.desired.plan.lane(name)
    accounts = world.dispatcher.routes.lanes[name].accounts
    accounts.fold(world.heap.now_s)
    window = accounts.windows.lifetime().window(world.heap.now_s, accounts.slo)
    judged = window.judged
    objective = world.desired.profile.objective.fraction
    bucket_s = world.spec.bucket_s
    return LaneResult(
        lane=name,
        offered=sum(each.offered for each in recorder.buckets),
        good=window.attained,
        unfinished=recorder.unfinished,
        undecided=recorder.undecided,
        good_share=window.attained / judged if judged else None,
        breached=dict(sorted(window.missed_by_kind.items())),
        refused=dict(sorted(recorder.refusals.items())),
        endings=dict(sorted(accounts.endings.items())),
        came_again=recorder.came_again,
        arrivals=recorder.arrivals.burst(world.arrivals_s, plan.arrivals),
        goodput_rps=window.good / seconds,
        prompt_tokens=window.prompt_tokens,
        output_tokens=window.output_tokens,
        ttft=window.ttft,
        itl=window.itl,
        tpot=recorder.tpot.summary(),
        e2e=window.e2e,
        queue_wait=window.queue_wait,
        replicas_mean=recorder.held_s / seconds,
        ready_mean=recorder.ready_s / seconds,
        wanted_max=recorder.wanted_max,
        reversals=recorder.reversals,
        gpu_hours=recorder.held_s / 3600.0 * plan.gpu_count,
        cost_usd=recorder.usd,
        verdict=judge_run(window, objective=objective, undecided=recorder.undecided, confidence=COUNTS_ALONE),
        over_slo_s=bucket_s * sum(each.is_over(objective, accounts.slo.shed) for each in recorder.buckets),
        offered_over_time=tuple(each.offered for each in recorder.buckets),
        good_over_time=tuple(each.good for each in recorder.buckets),
        refused_over_time=tuple(each.refused for each in recorder.buckets),
        ready_over_time=tuple(each.ready_s / bucket_s for each in recorder.buckets),
    )
