"""What is wrong with a fleet is named first, and nothing is said of a fleet that is well."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from fleetctl.core.diagnosis.findings import Cause
from fleetctl.model.action import EntryKind
from fleetctl.model.engine_fault import EngineFault, EngineFaultKind
from fleetctl.model.eviction import EvictionRules
from fleetctl.model.gateway import EventLoopLoad
from fleetctl.model.journal import JournalEntry
from fleetctl.model.ladder import LadderStep
from fleetctl.model.observation import StoreCondition, StoreFault
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.sim.scenario import Disturbance, DisturbanceKind, SimulationSpec
from fleetctl.sim.world import EPOCH
from fleetctl.testing import samples
from tests.diagnosis.staged import Stage
from tests.sim.fleets import with_launch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fleetctl.core.diagnosis.findings import Diagnosis
    from fleetctl.load.trace import Arrival
    from fleetctl.model.desired import Desired
    from fleetctl.model.request_trace import RequestTrace
    from fleetctl.model.status import FleetStatus, LaneStatus


def disturbed(kind: DisturbanceKind, **how: object) -> SimulationSpec:
    return SimulationSpec(seed=5, disturbances=(Disturbance(kind=kind, **{"at_s": 270.0} | how),))  # type: ignore[arg-type]


def surging(at_s: float) -> float:
    return 6.0 if at_s < 240.0 else 40.0


def pinned(desired: Desired) -> Desired:
    return replace(desired, overrides=replace(desired.overrides, step={"long": LadderStep.BREAKER}))


def shadow(desired: Desired) -> Desired:
    control = replace(desired.profile.control, mode=Mode.SHADOW)
    return replace(desired, profile=replace(desired.profile, control=control))


def overridden(desired: Desired) -> Desired:
    return replace(desired, overrides=replace(desired.overrides, replicas={"long": 2}))


def mixed(rng: random.Random) -> tuple[int, int]:
    """Chats, and now and then a whole document."""
    return (7500, 20) if rng.random() < 0.12 else (rng.randint(100, 300), rng.randint(50, 150))


def ballooning(rng: random.Random) -> tuple[int, int]:
    """Chats, and now and then an answer that does not stop."""
    return rng.randint(600, 1500), 4000 if rng.random() < 0.08 else rng.randint(40, 120)


def hogging(row: Arrival) -> int:
    """Have eight requests of ten come of one client."""
    return 99 if row.output_tokens % 10 < 8 else row.output_tokens % 10


def answered_so(share: int, **how: Any) -> Callable[[RequestTrace], RequestTrace]:
    """Have so many of nine requests of the lane `long` end otherwise than they did."""

    def change(trace: RequestTrace) -> RequestTrace:
        is_meant = trace.lane == "long" and trace.seq % 9 < share and bool(trace.attempts)
        return replace(trace, **how) if is_meant else trace

    return change


def with_loops(status: FleetStatus) -> FleetStatus:
    """Have one of nine answers of `long` repeat itself, as the gateway's figures show it."""

    def looping(lane: LaneStatus) -> LaneStatus:
        traffic = lane.traffic
        if lane.name != "long" or traffic is None:
            return lane
        windows = tuple(msgspec.structs.replace(window, looped=window.finished // 9) for window in traffic.windows)
        return replace(lane, traffic=replace(traffic, windows=windows))

    return replace(status, lanes=tuple(looping(lane) for lane in status.lanes))


def with_evictions(status: FleetStatus) -> FleetStatus:
    """Have the caches of `long` lose one request of twenty, as the gateway's figures show it."""

    def losing(lane: LaneStatus) -> LaneStatus:
        traffic = lane.traffic
        if lane.name != "long" or traffic is None:
            return lane
        windows = tuple(
            msgspec.structs.replace(
                window, preempted=window.finished // 40, prefixes_lost=window.finished // 40, prefix_tokens_lost=9000
            )
            for window in traffic.windows
        )
        return replace(lane, traffic=replace(traffic, windows=windows))

    return replace(status, lanes=tuple(losing(lane) for lane in status.lanes))


def failed_or_uneven(failed: int, uneven: int) -> Callable[[RequestTrace], RequestTrace]:
    """Have so many of nine requests of `long` fail at their replica, and so many have gaps that are too long."""

    def change(trace: RequestTrace) -> RequestTrace:
        number = trace.seq % 9
        if trace.lane != "long" or not trace.attempts or number >= failed + uneven:
            return trace
        if number >= failed:
            crowd = replace(trace.attempts[-1], requests_beside=60)
            return replace(trace, verdict="itl", gap_s_p99=0.15, gap_s_max=0.15, attempts=(*trace.attempts[:-1], crowd))
        attempt = replace(trace.attempts[-1], failure="error")
        return replace(trace, verdict="error", ending="error", ttft_s=None, attempts=(attempt,))

    return change


def crowded(trace: RequestTrace) -> RequestTrace:
    """Have two of three requests on the replicas of `long` be of the batch lane, and the others late."""
    if trace.lane != "long" or not trace.attempts:
        return trace
    return replace(trace, lane="batch", verdict="good") if trace.seq % 3 else replace(trace, verdict="ttft", ttft_s=5.0)


def unguarded(desired: Desired) -> Desired:
    """Let KV caches be as full as they get."""
    control = replace(desired.profile.control, evictions=EvictionRules(act=False))
    return replace(desired, profile=replace(desired.profile, control=control))


def with_prefixes(desired: Desired) -> Desired:
    """Plan with prompts of which most is cached."""
    workload = replace(desired.profile.workload, prefix_hit=0.6)
    return replace(desired, profile=replace(desired.profile, workload=workload))


def on_new_revision(trace: RequestTrace) -> RequestTrace:
    """Have the requests of `long` of the last 40 s be served by a replica of another revision, badly."""
    if trace.lane != "long" or not trace.attempts or trace.at < EPOCH + timedelta(seconds=260):
        return trace
    attempt = replace(trace.attempts[-1], replica="r99")
    return replace(trace, verdict="itl", gap_s_mean=0.3, gap_s_p99=0.4, gap_s_max=0.5, attempts=(attempt,))


def with_new_revision(status: FleetStatus) -> FleetStatus:
    """Have a replica of another revision serve since 40 s ago."""
    record = samples.replica(
        "r99", lane="long", state=ReplicaState.READY, ready_at=EPOCH + timedelta(seconds=259), launch_digest="another",
    )  # fmt: skip
    return replace(status, replicas=(*status.replicas, replace(status.replicas[0], record=record)))


def cannot_start(status: FleetStatus) -> FleetStatus:
    fault = EngineFault(kind=EngineFaultKind.ARGUMENTS, line="error: unrecognized arguments: --frobnicate")
    return of_one_lane(status, engine_fault=fault, failed_starts=5, cannot_start=True)


def busy(status: FleetStatus) -> FleetStatus:
    """Have the gateway compute all the time."""
    return replace(status, gateway_loop=EventLoopLoad(cpu_share=0.98, lag_s=0.4))


def unlawful_disk(status: FleetStatus) -> FleetStatus:
    condition = StoreCondition(fault=StoreFault.DISK_FULL, message="no room on /var")
    return replace(status, store_condition=condition)


NO_STOCK = JournalEntry(
    seq=9999, at=EPOCH + timedelta(seconds=290), fleet="demo", subject=Subject.lane("long"), kind=EntryKind.DECISION,
    action="launch", code=ReasonCode.OFFERING_UNOBTAINABLE, reason="no stock of l4.1x in a, b, c",
)  # fmt: skip
ROLLED = replace(
    NO_STOCK, seq=9998, at=EPOCH + timedelta(seconds=259), action="rollout", code=ReasonCode.ROLLOUT,
    reason="revision 2 rolling",
)  # fmt: skip
LOST = replace(
    NO_STOCK, seq=9997, kind=EntryKind.EVICTION, action="eviction", code=ReasonCode.PREFIX_LOST,
    reason="turn 2 of c-1: 9,000 cached tokens -> 0",
)  # fmt: skip
STAGES = {
    Cause.STATE_FAULT: Stage(status=unlawful_disk),
    Cause.ENGINE_CANNOT_START: Stage(status=cannot_start),
    Cause.OUT_OF_CAPACITY: Stage(
        spec=disturbed(DisturbanceKind.NO_NODES, at_s=150.0), rps=lambda at_s: 6.0 if at_s < 160.0 else 30.0,
        journal=(NO_STOCK,),
    ),
    Cause.ENGINE_ERRORS: Stage(trace=failed_or_uneven(4, 0)),
    Cause.GATEWAY_CPU: Stage(status=busy, rps=surging),
    Cause.NOISY_CLIENT: Stage(client_of=hogging, rps=lambda at_s: 6.0 if at_s < 200.0 else 30.0),
    Cause.KV_CACHE_FULL: Stage(
        profile={"itl": "900ms", "long_ttft": "4s"}, desired=lambda desired: unguarded(with_launch(desired, max_num_seqs=512)),
        lengths=lambda rng: (rng.randint(600, 3000), 1500), rps=lambda at_s: 20.0, settled={"short": 1, "long": 3, "batch": 1},
    ),
    Cause.BATCH_CROWDS: Stage(trace=crowded),
    Cause.PREFIX_MISSES: Stage(desired=with_prefixes, rps=surging),
    Cause.BALLOONING_ANSWERS: Stage(
        profile={"long_max": 4}, lengths=ballooning, rps=lambda at_s: 10.0,
    ),
    Cause.CAPPED_ANSWERS: Stage(trace=answered_so(4, bounded_by="max_tokens")),
    Cause.ANSWERS_LOOP: Stage(status=with_loops, trace=answered_so(1, loop_begin_token=20, loop_period_tokens=3)),
    Cause.KV_EVICTIONS: Stage(status=with_evictions, trace=answered_so(2, prefix_lost="turn 2 of c-1"), journal=(LOST,)),
    Cause.BAD_REQUESTS: Stage(trace=answered_so(3, verdict="rejected", ending="rejected")),
    Cause.OVERLOAD: Stage(rps=surging),
    Cause.AT_LIMIT: Stage(profile={"long_max": 4, "max_nodes": 6}, rps=lambda at_s: 6.0 if at_s < 200.0 else 30.0),
    Cause.REPLICA_LOST: Stage(spec=disturbed(DisturbanceKind.KILL, lane="long", count=2)),
    Cause.REPLICA_HUNG: Stage(spec=disturbed(DisturbanceKind.HANG, at_s=230.0, lane="long", count=1)),
    Cause.SLOW_REPLICA: Stage(spec=disturbed(DisturbanceKind.SLOW, at_s=200.0, lane="long", factor=4.0)),
    Cause.SPOT_LOST: Stage(
        profile={"spot": "all"}, look_at_s=260.0,
        spec=disturbed(DisturbanceKind.NOTICE, at_s=200.0, lane="long", count=3, factor=30.0),
    ),
    Cause.BOOTING: Stage(settled=None, look_at_s=100.0),
    Cause.BAD_REVISION: Stage(trace=on_new_revision, status=with_new_revision, journal=(ROLLED,)),
    Cause.STEP_PINNED: Stage(desired=pinned),
    Cause.LONG_PROMPTS_AHEAD: Stage(
        profile={"short_below": 16000, "short_ttft": "400ms", "long_ttft": "20s", "prompt": (250, 1000), "short_max": 3},
        settled={"short": 3, "long": 1, "batch": 1}, lengths=mixed,
    ),
    Cause.PROMPTS_TOO_LONG: Stage(
        profile={"long_ttft": "700ms", "prompt": (250, 1000), "rps": 1}, lengths=lambda rng: (rng.randint(6000, 7500), 20),
        rps=lambda at_s: 0.5,
    ),
    Cause.TOO_MANY_STREAMS: Stage(
        desired=lambda desired: with_launch(desired, max_num_seqs=256, max_num_batched_tokens=8192),
        lengths=lambda rng: (rng.randint(600, 4000), 300),
    ),
    Cause.CONTROLLER_STALE: Stage(status=lambda status: replace(status, controller_alive=False, controller_pid=0)),
    Cause.GATEWAY_DOWN: Stage(status=lambda status: replace(status, gateway_alive=False)),
}  # fmt: skip


def refused_orders() -> Diagnosis:
    """Return what is said where the provider refuses orders, of lane long, whatever offering they name."""
    fault = "create pod: violates PodSecurity"
    at = replace(NO_STOCK, subject=Subject.replica("r99"))
    declined = replace(at, action="gone", code=ReasonCode.CREATE_REFUSED, reason=f"its node could not be had: {fault}")
    failed = replace(
        at, kind=EntryKind.ERROR, action="create", code=ReasonCode.FAILED, reason=f"{fault}; lower it, or name another"
    )

    def with_it(status: FleetStatus) -> FleetStatus:
        record = samples.replica("r99", lane="long", state=ReplicaState.FAILED, fault=fault)
        lanes = tuple(replace(each, wanted=each.ready + 1) if each.name == "long" else each for each in status.lanes)
        return replace(status, lanes=lanes, replicas=(*status.replicas, replace(status.replicas[0], record=record)))

    return Stage(status=with_it, journal=(failed, declined)).diagnosis()


def test_what_is_refused_wherever_it_is_ordered_is_mended_as_the_provider_says():
    (found,) = [each for each in refused_orders().causes if each.cause is Cause.OUT_OF_CAPACITY]
    assert "violates PodSecurity" in found.message
    assert found.remedy == "lower it, or name another; it is ordered again by itself"


def test_every_cause_is_staged():
    assert set(STAGES) == set(Cause)


@pytest.mark.parametrize("cause", STAGES, ids=str)
def test_the_cause_is_named_first(cause):
    found = STAGES[cause].diagnosis()
    assert found.causes, found.looked_at
    first = found.causes[0]
    assert first.cause is cause, [(each.cause, each.lane, each.message, each.share) for each in found.causes]
    assert first.remedy
    assert any(figure for figure in first.evidence)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_wrong_with_a_fleet_that_is_well(seed):
    found = Stage(settled={"short": 2, "long": 8, "batch": 1}, spec=SimulationSpec(seed=seed)).diagnosis()
    assert found.causes == ()


@pytest.mark.parametrize("is_one", [False, True])
def test_loops_of_one_replica_are_its_engines_and_others_are_the_lanes(is_one: bool) -> None:  # a case
    """Nobody misses a promise for it, and it is named all the same."""
    stage, where = STAGES[Cause.ANSWERS_LOOP], set[str]()

    def trace(each: RequestTrace) -> RequestTrace:
        looping = stage.trace(each)
        if looping.loop_begin_token is not None and not where:
            where.add(each.replica)
        return looping if not is_one or each.replica in where else each

    [found] = replace(stage, trace=trace).diagnosis().causes
    assert found.cause is Cause.ANSWERS_LOOP
    assert (f"fleetctl drain {where.pop()}" if is_one else "generation.loop: stop") in found.remedy
    assert "repeat themselves" in found.message
    assert "tokens of the last 2m are repetition" in found.evidence[1]


def test_a_busy_gateway_that_is_late_with_nobody_is_no_cause():
    assert Stage(settled={"short": 2, "long": 8, "batch": 1}, status=busy).diagnosis().causes == ()


@pytest.mark.parametrize(("lag_s", "is_named"), [(0.06, True), (0.01, False)])
def test_a_loop_that_waits_for_a_processor_explains_gaps_of_the_order_of_its_lag(lag_s, is_named):
    def lagging(status: FleetStatus) -> FleetStatus:
        return replace(status, gateway_loop=EventLoopLoad(cpu_share=0.3, lag_s=lag_s))

    found = Stage(trace=failed_or_uneven(0, 3), status=lagging).diagnosis()
    assert [each.cause for each in found.causes] == [*[Cause.GATEWAY_CPU] * is_named, Cause.TOO_MANY_STREAMS]
    assert ("processor of its own" in found.causes[0].remedy) is is_named


@pytest.mark.parametrize(
    ("failed", "uneven", "first", "second"),
    [(6, 3, Cause.ENGINE_ERRORS, Cause.TOO_MANY_STREAMS), (3, 6, Cause.TOO_MANY_STREAMS, Cause.ENGINE_ERRORS)],
)
def test_of_two_causes_both_are_named_the_greater_first(failed, uneven, first, second):
    found = Stage(trace=failed_or_uneven(failed, uneven)).diagnosis()
    assert [each.cause for each in found.causes] == [first, second]
    assert found.causes[0].share > found.causes[1].share


def test_replicas_that_lack_come_before_what_requests_met():
    lost = STAGES[Cause.REPLICA_LOST]
    found = replace(lost, trace=failed_or_uneven(0, 6)).diagnosis()
    assert found.causes[0].cause is Cause.REPLICA_LOST
    assert Cause.TOO_MANY_STREAMS in {each.cause for each in found.causes}


@pytest.mark.parametrize("hold", [shadow, overridden], ids=["shadow", "overridden"])
def test_whoever_keeps_a_lane_from_growing_is_named(hold):
    found = Stage(rps=lambda at_s: 6.0 if at_s < 200.0 else 30.0, desired=hold).diagnosis()
    first = found.causes[0]
    assert first.cause is Cause.AT_LIMIT
    assert ("shadow" in first.message) is (hold is shadow)


def of_one_lane(status: FleetStatus, **how: Any) -> FleetStatus:  # any field of it
    """What is seen of the lane `long`, otherwise than it is."""
    lanes = tuple(replace(lane, **how) if lane.name == "long" else lane for lane in status.lanes)
    return replace(status, lanes=lanes)


def test_a_canary_that_never_served_is_no_replica_that_was_lost():
    never = samples.replica("r99", lane="long", state=ReplicaState.FAILED, ready_at=None, fault="exit 2: no such flag")

    def rolled_back(status: FleetStatus) -> FleetStatus:
        shown = replace(status.replicas[0], record=never)
        return of_one_lane(replace(status, replicas=(*status.replicas, shown)), wanted=9, lost_since=None)

    entry = JournalEntry(
        seq=9999, at=EPOCH + timedelta(seconds=250), fleet="demo", subject=Subject.replica("r99"),
        kind=EntryKind.LIFECYCLE, action="mark-gone", code=ReasonCode.DIED, reason="died while booting",
    )  # fmt: skip
    found = Stage(
        rps=surging, status=rolled_back, journal=(entry,),
    ).diagnosis()  # fmt: skip
    assert Cause.REPLICA_LOST not in {each.cause for each in found.causes}


def test_the_cap_that_holds_a_launch_back_is_named_before_the_lanes_maximum():
    blocked = ReasonCode.LAUNCH_BLOCKED.because("1 more wanted, but max_nodes 6 is reached")

    def capped(status: FleetStatus) -> FleetStatus:
        return of_one_lane(status, wanted=9, pending=1, reasons=(blocked,))

    found = Stage(rps=surging, profile={"long_max": 9}, status=capped).diagnosis()
    at_limit = next(each for each in found.causes if each.cause is Cause.AT_LIMIT)
    assert "max_nodes 6 is reached" in at_limit.message
    assert "max_nodes" in at_limit.remedy


def put_aside(trace: RequestTrace) -> RequestTrace:
    """Have most requests of `long` fail as their streams were put aside, at a cache that is not full any more."""
    if trace.lane != "long" or not trace.attempts or trace.seq % 9 > 5:
        return trace
    attempt = replace(trace.attempts[-1], failure="preempted")
    return replace(trace, verdict="incomplete", ending="incomplete", attempts=(attempt,))


def test_streams_that_were_put_aside_are_the_caches_doing_and_no_engines_error():
    found = Stage(trace=put_aside).diagnosis()
    assert [each.cause for each in found.causes] == [Cause.KV_CACHE_FULL]
