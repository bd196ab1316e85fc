"""What a profile comes to, output by output: each function shows one that a key may change."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.catalogue.calibrations import calibrated
from fleetctl.catalogue.known import load_catalogue
from fleetctl.config.profile import parse_profile
from fleetctl.controller.keys import KeyHashes
from fleetctl.controller.table import build_table
from fleetctl.core.dispatch.routes import RoutingState
from fleetctl.core.evictions.conversations import Conversations
from fleetctl.core.lanes import LaneChoice
from fleetctl.core.pacing import ChunkPace
from fleetctl.core.plan.workload import lane_demands
from fleetctl.core.reconcile.gateways import keep_gateways
from fleetctl.core.rollout.in_force import digests
from fleetctl.core.slo.breach import Limits
from fleetctl.core.slo.budget import count_gateway, read_budgets
from fleetctl.core.slo.judge import judge_run
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.status import FleetKnowledge, fleet_status
from fleetctl.core.workflows.promise import call_limit_s, call_percentile
from fleetctl.errors import FleetctlError
from fleetctl.model.budget import RequestTotals
from fleetctl.model.decision import LaneMemory, LaunchReplica, Memory
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.eviction_report import SetEvictionGuard
from fleetctl.model.gateway import ReplicaSnapshot
from fleetctl.model.gateway_actions import StartGateway
from fleetctl.model.gateway_process import ObservedGateway
from fleetctl.model.ladder import LadderStep
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import Revision, Rollout
from fleetctl.operations.planning import traced_requests
from fleetctl.plugins import load_engine
from fleetctl.render.plan import render_plan
from fleetctl.testing import samples
from tests.config.running_gateway import behaviour
from tests.dispatch.event_heap import EventHeap, Fate, HeapExchange, dispatcher_on
from tests.plan.profiles import OFFERINGS, planned
from tests.reconcile import worlds
from tests.reconcile.worlds import observed, snapshot, traffic

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.decision import Decision
    from fleetctl.model.gateway import RoutingTable
    from fleetctl.model.observation import Observation
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile

ENGINE_OF = load_engine
_GRID = tuple((tokens, hint, stream) for tokens in (10, 700, 9000) for hint in (0, 1) for stream in (0, 1))


def profile_of(tree: dict[str, Any], directory: Path) -> Profile:
    """Return the profile a tree of keys says; JSON is YAML."""
    return parse_profile(json.dumps(tree), source="a profile", base_dir=directory)


def plan_or_refusal(profile: Profile) -> Plan | str:
    """Return the plan, or why there is none."""
    try:
        return planned(profile, trace_rows=None)
    except FleetctlError as error:
        return error.message


def calibration_or_refusal(profile: Profile) -> str:
    """Return by whose figures a profile is planned, or why by none."""
    try:
        known, used = load_catalogue(), calibrated(load_catalogue(), profile.capacity.calibration)
    except FleetctlError as error:
        return error.message
    return "another's" if known != used else "gpus.yaml's"


def own_costs(profile: Profile) -> float:
    """Return what a plan costs where the provider prices nothing."""
    free = tuple(replace(offering, price_usd_per_hour=0.0) for offering in OFFERINGS)
    return planned(profile, offerings=free).cost_usd_per_hour


def demand(profile: Profile) -> object:
    """Return what the plan is made for, lane by lane."""
    return lane_demands(profile, traced_requests(profile))


def desired(profile: Profile) -> Desired:
    """Return a fleet of this profile, two replicas planned for every lane."""
    plan = replace(samples.plan(), lanes=tuple(samples.lane_plan(lane.name) for lane in profile.lanes))
    return Desired(
        fleet="demo", phase=DesiredPhase.UP, generation=1, profile=profile, plan=plan,
        created_at=samples.EPOCH, changed_at=samples.EPOCH,
    )  # fmt: skip


def table(profile: Profile) -> RoutingTable:
    """Return the routing table of a fleet whose `short` lane is as far up the ladder as it goes."""
    keys = KeyHashes("demo", lambda name: os.environ.get(name, "")).of(profile.gateway.api_keys)
    memory = Memory(lanes={"short": LaneMemory(step=LadderStep.BREAKER)})
    return build_table(desired(profile), (), memory, engine_of=ENGINE_OF, key_hashes=keys, version=1)


def served(profile: Profile) -> object:
    """Return what clients and replicas see of a gateway that runs by this profile."""
    return behaviour(desired(profile))


def gateway_processes(profile: Profile) -> object:
    """Return which gateways a controller that has just begun starts, seeing that none of those there are to be lives."""
    numbers = range(1, profile.gateway.processes + 1)
    seen = tuple(ObservedGateway(number=n) for n in numbers) if len(numbers) > 1 else ()
    observation = replace(worlds.observation(gateway=None), gateway_alive=False, gateways=seen)
    actions, _, _ = keep_gateways(observation, Memory(), observation.at)
    return [action.number for action in actions if isinstance(action, StartGateway)]


def named_models(profile: Profile) -> object:
    """Return what clients may call each model, and what stands in for it."""
    return table(profile).models


def lenders(profile: Profile) -> object:
    """Return whose replicas each lane may use besides its own."""
    routes = RoutingState(random.Random(1))
    routes.apply(table(profile), 0.0)
    return {name: [owner.route.name for owner in lane.lenders] for name, lane in routes.lanes.items()}


def waits_from_zero(profile: Profile) -> object:
    """Return how a request of `short` fares while the fleet has no replica yet, and for how long."""
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    dispatcher.apply(build_table(desired(profile), (), Memory(), engine_of=ENGINE_OF, key_hashes=(), version=1))
    exchange = HeapExchange(heap, dispatcher, lambda _: Fate())
    exchange.submit("short")
    heap.run()
    return heap.now_s, exchange.ends


def workflow_promises(profile: Profile) -> object:
    """Return which workflows of each lane are promised what, what that asks of their calls, and when one is over."""
    spec = table(profile).workflows
    if spec is None:
        return None
    of_calls = [
        (
            kind.name,
            call_percentile(kind, target.percentile),
            call_limit_s(kind, target.limit_s, target.percentile, 0.1),
        )
        for kind in spec.kinds
        for target in kind.targets
    ]
    return spec.idle_s, of_calls, [spec.kind_of_lane(lane.name) for lane in profile.lanes]


def pacing(profile: Profile) -> object:
    """Return when the next chunk of a stream of `short` leaves, by how many tokens are held."""
    rule = table(profile).lanes[0].coalesce
    if rule is None:
        return None
    pace = ChunkPace(tokens=rule.tokens, within_s=rule.within_s)
    pace.came(0.0, 1)
    pace.left(0.0)
    return [pace.due_s(held, 0.01) for held in range(1, 17)]


def tiers(profile: Profile) -> object:
    """Return what the gateway has of tiers."""
    found = table(profile)
    return found.tiers, found.tier_header, [lane.tier for lane in found.lanes]


def choices(profile: Profile) -> object:
    """Return which lane a grid of requests enters."""
    choice = LaneChoice(table(profile).lanes)
    return [str(choice.choose_by(n, batch_hint=bool(hint), stream=bool(stream))) for n, hint, stream in _GRID]


def limits(profile: Profile) -> object:
    """Return what the gateway judges the requests of `short` by."""
    return Limits.of(table(profile).lanes[0].slo)


def findings(profile: Profile) -> object:
    """Return the verdict on a run in which every latency was 1.5 s in `short`, 3 % stalled, and chunks had 6 tokens."""
    stats = LaneStats()
    for sketch in (stats.ttft, stats.itl, stats.e2e):
        sketch.add(1.5, 1000)
    stats.good = 1000
    for number in range(1000):
        stats.streams.ended(10, 60, stalls=number < 30)
    stats.unit.add(6.0, 1000)
    return judge_run(stats.window(60.0, profile.lanes[0].slo), objective=profile.objective.fraction)


def commands(profile: Profile) -> object:
    """Return how the replicas of every lane are started, as planned on one kind of GPU."""
    plan = planned(replace(profile, capacity=replace(profile.capacity, gpus=("H100",))))
    return [
        ENGINE_OF(lane.engine).launch(
            plan=plan, lane=lane, lane_plan=plan.lane(lane.name), host="127.0.0.1", port=20_000
        )
        for lane in profile.lanes
    ]


def rendered(profile: Profile) -> object:
    """Return the files that `render` writes of it; what compose and systemd start does not hang on the profile's hash."""
    return render_plan(profile, replace(planned(profile), profile_hash="0" * 64), ENGINE_OF)


def launch_digests(profile: Profile) -> object:
    """Return what tells that a lane's replicas are to be replaced."""
    return digests(profile, desired(profile).plan)


def status(profile: Profile) -> object:
    """Return what the faces show while 3 % of the requests of `short` break a promise."""
    short = replace(traffic("short", samples_count=1000, bad=30), totals=RequestTotals(good=970, bad=30))
    gateway = snapshot(short)
    seen = worlds.observation(gateway=gateway)
    budgets = read_budgets(count_gateway({}, gateway, profile, seen.at), profile.objective, seen.at)
    known = FleetKnowledge(
        at=seen.at, desired=desired(profile), records=(), memory=Memory(), observation=seen, budgets=budgets
    )
    return fleet_status(known, ())


def decisions(profile: Profile) -> object:
    """Return everything decided over an hour: overload, then calm, beside a replica that never gets ready.

    Requests of `long` wait meanwhile, and may use the replicas of `batch`.
    """
    lanes = tuple(replace(e, spill_to=(*e.spill_to, "batch")) if e.name == "long" else e for e in profile.lanes)
    fleet, memory, found = desired(replace(profile, lanes=lanes)), Memory(), []
    serving = [lane.name for lane in profile.lanes for _ in range(1 if lane.name == "long" else 2)]
    ready = [observed(f"r{number}", record_lane=lane) for number, lane in enumerate(serving, 1)]
    stuck = observed("r9", ReplicaState.BOOTING, record_lane="long", record_created_at=worlds.at(3590), healthy=False)
    for passed_s in (*range(0, 600, 5), *range(600, 4200, 60)):
        is_pressed = passed_s < 80
        latency_s = 0.9 if is_pressed else 0.01
        short = traffic("short", ttft_s=latency_s, rps=9.0 if is_pressed else 0.1)
        long = traffic("long", wait_s=3 * latency_s, rps=0.1)
        gateway = snapshot(short, long, traffic("batch", rps=0.1, in_flight=1), now_s=3600 + passed_s)
        seen = worlds.observation(*ready, stuck, gateway=gateway, now_s=3600 + passed_s)
        decision = worlds.decide(fleet, seen, memory)
        memory = decision.memory
        found.append((decision.requeue_at, decision.actions))
    return found


def followed(profile: Profile) -> object:
    """Return how many of twenty conversations a gateway remembers."""
    conversations = Conversations(table(profile).conversations)
    if conversations.size_max:
        for number in range(20):
            conversations.keep(None, 0, None, [number], 512, 128, "r1", 0.1, float(number))
    return len(conversations)


def guards(profile: Profile) -> object:
    """Return what is done over half an hour in which 0.5 % of the requests of `short` are evicted."""
    fleet, memory, found = desired(profile), Memory(), []
    ready = [observed(f"r{number}", record_lane=lane.name) for number, lane in enumerate(profile.lanes)]
    short = traffic("short", samples_count=4000)
    short = replace(short, windows=tuple(msgspec.structs.replace(window, preempted=20) for window in short.windows))
    for passed_s in range(0, 1800, 10):
        seen = worlds.observation(*ready, gateway=snapshot(short, now_s=3600 + passed_s), now_s=3600 + passed_s)
        decision = worlds.decide(fleet, seen, memory)
        memory = decision.memory
        found.append([action for action in decision.actions if isinstance(action, SetEvictionGuard)])
    return found


def rollouts(profile: Profile) -> object:
    """Return everything decided while a flag rolls out over ten replicas a lane: well, with canaries that fail, or never come."""
    after = desired(profile)
    before, new = _with_flags(after.plan, "--old"), _with_flags(after.plan, "--new")
    stable = Revision(number=1, profile=profile, plan=before, at=worlds.EPOCH)
    fleet = replace(after, plan=new, revision=2, stable=stable)
    complete = Rollout(revision=1, started_at=worlds.EPOCH, progressed_at=worlds.EPOCH, ended_at=worlds.EPOCH, lanes={})
    old = digests(profile, before)
    ready = [observed(f"r{n}", record_lane="short", record_launch_digest=old["short"]) for n in range(10)]
    found: list[object] = []
    for fate in ("good", "failing", "stuck"):
        memory = replace(Memory(), rollout=complete, lanes={"short": LaneMemory(wanted=10, planned=10)})
        seen = worlds.observation(*ready, now_s=3600)
        for passed_s in range(0, 4000, 10):
            decision = worlds.decide(fleet, seen, memory)
            memory = decision.memory
            found.append(decision.actions)
            if (
                memory.rollout is not None
                and memory.rollout.revision != stable.number
                and (memory.rollout.is_over or memory.rollout.is_failed)
            ):
                break
            seen = _grown(seen, decision, fleet, 3600 + passed_s + 10, fate=fate)
    return found


def _with_flags(plan: Plan, flag: str) -> Plan:
    lanes = (
        replace(lane, replicas=10, launch=replace(lane.launch, extra_args=(flag,))) if lane.lane == "short" else lane
        for lane in plan.lanes
    )
    return replace(plan, lanes=tuple(lanes))


def _grown(seen: Observation, decision: Decision, fleet: Desired, now_s: float, *, fate: str) -> Observation:
    """Return the world ten seconds later: what was launched is ready, what leaves has left; good or failed requests came."""
    digest = digests(fleet.profile, fleet.plan)
    moved = worlds.after(seen, decision, fleet).replicas
    here = [r for r in moved if r.record.lane == "short" and r.record.state is ReplicaState.READY]
    count = sum(isinstance(a, LaunchReplica) and a.lane == "short" for a in decision.actions)
    count = 0 if fate == "stuck" else count
    new = [
        observed(f"n{now_s:.0f}-{n}", record_lane="short", record_launch_digest=digest["short"]) for n in range(count)
    ]
    replicas = (*here, *new)
    figures = tuple(
        ReplicaSnapshot(
            id=r.record.id,
            in_flight=0,
            failures=0 if fate == "good" or not r.record.id.startswith("n") else 50,
            consecutive_failures=0,
            good=10,
        )
        for r in replicas
    )
    gateway = replace(snapshot(traffic("short"), now_s=now_s), replicas=figures)
    return worlds.observation(*replicas, gateway=gateway, now_s=now_s)
