"""A warm replica goes to the lane that lacks it, instead of a boot; its owner keeps what it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings, strategies as st

from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.model.bursts import BurstMemory, NeedLevel, NeedPeak
from fleetctl.model.catalogue import Market, Precision
from fleetctl.model.decision import AssignReplica, LaneMemory, LaunchReplica, Memory, StopReplica
from fleetctl.model.desired import Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.profile import CapacitySpec, Mode, ReplicaBounds, SpotPolicy
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaCapacity, ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.model.subject import Subject
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of, snapshot, traffic

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation, ObservedReplica

STATE = ReplicaState
# The sample plan: 2 rps on two replicas, so one replica is planned for 1 rps.
HELD = ReplicaCapacity(max_model_len=8192, max_num_seqs=64, precision=Precision.BF16, continues_streams=True)
SAMPLES = 300


def fleet(*, bounds: tuple[int, int] = (1, 8), long: dict[str, Any] | None = None, **changes: Any) -> Desired:
    """Two lanes on demand, of two planned replicas each."""
    limits = ReplicaBounds(min=bounds[0], max=bounds[1])
    lanes = (
        worlds.lane_spec("short", replicas=limits, spot=SpotPolicy.NONE),
        worlds.lane_spec("long", replicas=limits, **({"spot": SpotPolicy.NONE} | (long or {}))),
    )
    return worlds.desired(*lanes, counts={"short": (2, 0), "long": (2, 0)}, **changes)


def ready(of: Desired, lane: str, *numbers: int, **changes: Any) -> tuple[ObservedReplica, ...]:
    spec = of.profile.lane(lane)
    digest = launch_digest(spec, of.plan.lane(lane))
    of_all: dict[str, Any] = {"record_lane": lane, "record_capacity": HELD, "record_launch_digest": digest} | changes
    return tuple(observed(f"r{number}", record_created_at=at(number), **of_all) for number in numbers)


def memory(short: int = 4, long: int = 1, *, had_long: int = 1) -> Memory:
    """Both lanes as they are after an hour of calm."""
    return Memory(lanes={"short": lane_memory(short), "long": replace(lane_memory(long), had_ready=had_long)})


def lane_memory(wanted: int) -> LaneMemory:
    """Return the memory of a lane that needed all that it wants two minutes ago, and one since."""
    bursts = BurstMemory(
        levels=(NeedLevel(need=1, since=at(0)),), peaks=(NeedPeak(need=wanted, at=at(3495)),) if wanted > 1 else ()
    )
    return LaneMemory(wanted=wanted, planned=2, requested=2, had_ready=wanted, bursts=bursts)


def seen(
    *replicas: ObservedReplica, short_rps: float = 1.5, long_rps: float = 3.0, now_s: float = 3600.0, **changes: Any
) -> Observation:
    """`short` needs two of its four by the most that may come, `long` three."""
    gateway = snapshot(
        traffic("short", rps=short_rps, samples_count=SAMPLES),
        traffic("long", rps=long_rps, samples_count=SAMPLES),
        now_s=now_s,
    )
    return observation(*replicas, gateway=gateway, now_s=now_s, **changes)


def late(of: Desired, *replicas: ObservedReplica, before: Memory | None = None, **figures: Any) -> Decision:
    """Return what is decided once the load has lasted for as long as growth waits."""
    first = decide(of, seen(*replicas, now_s=3600.0, **figures), before or memory())
    return decide(of, seen(*replicas, now_s=3611.0, **figures), first.memory)


def all_of(of: Desired) -> tuple[ObservedReplica, ...]:
    return (*ready(of, "short", 1, 2, 3, 4), *ready(of, "long", 5))


def test_a_lane_that_lacks_is_given_the_newest_that_another_does_not_need_and_nothing_is_launched() -> None:
    of = fleet()
    decision = late(of, *all_of(of))
    moves = of_kind(decision, AssignReplica)
    assert [(move.replica_id, move.lane) for move in moves] == [("r4", "long"), ("r3", "long")]
    assert all(isinstance(action, AssignReplica) for action in decision.actions)
    assert decision.memory.lanes["short"].wanted == 2
    assert decision.memory.lanes["long"].wanted == 3
    for lane in ("short", "long"):
        assert "r4 moves from short to long: long lacks 2, short needs 2 of its 4" in reason_of(decision, lane)
    after = worlds.after(seen(*all_of(of), now_s=3611.0), decision, of)
    assert decide(of, replace(after, at=at(3612)), decision.memory, now_s=3612).actions == ()


def test_what_no_other_lane_can_spare_is_launched() -> None:
    of = fleet()
    decision = late(of, *all_of(of), long_rps=6.0)
    assert len(of_kind(decision, AssignReplica)) == 2
    assert len(of_kind(decision, LaunchReplica)) == 3


def test_one_that_is_too_many_is_given_to_a_lane_that_lacks_instead_of_being_drained() -> None:
    of = fleet()
    before = memory(short=3, long=2)
    decision = decide(of, seen(*all_of(of), long_rps=0.5), before)
    assert [(move.replica_id, move.lane) for move in of_kind(decision, AssignReplica)] == [("r4", "long")]
    assert all(isinstance(action, AssignReplica) for action in decision.actions)


def test_a_boot_that_has_just_begun_is_given_up_for_a_warm_replica_and_one_that_is_nearly_over_is_not() -> None:
    of = fleet()
    boot_s = {of.plan.lane("long").offering.key: 60.0}
    for created_s, moves in ((3600.0, 1), (3570.0, 0)):
        boots = observed(
            "r6", STATE.BOOTING, record_lane="long", record_created_at=at(created_s), record_changed_at=at(created_s)
        )
        replicas = (*all_of(of), boots)
        decision = decide(of, seen(*replicas, long_rps=1.5, now_s=3606.0, boot_s=boot_s), memory(short=4, long=2))
        assert len(of_kind(decision, AssignReplica)) == moves
        assert [stop.replica_id for stop in of_kind(decision, StopReplica)] == ["r6"] * moves


@pytest.mark.parametrize(
    ("of", "changes", "why"),
    [
        (fleet(), {"record_capacity": replace(HELD, max_model_len=4096)}, "takes requests of 8192 tokens"),
        (fleet(), {"record_capacity": None}, "was not recorded"),
        (fleet(), {"record_launch_digest": "of-an-earlier-profile"}, "settings that no lane has today"),
        (fleet(), {"record_engine": "tgi"}, "runs on emulator"),
        (fleet(), {"consecutive_failures": 1}, ""),
        (fleet(), {"notice": Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)}, ""),
        (fleet(), {"record_drain_requested": True}, ""),
        (fleet(), {"record_assigned_at": at(3500)}, ""),
        (fleet(), {"healthy": False}, ""),
    ],
)
def test_who_does_not_hold_what_the_lane_needs_stays(of: Desired, changes: dict[str, Any], why: str) -> None:
    replicas = (*ready(of, "short", 1, 2, 3, 4, **changes), *ready(of, "long", 5))
    decision = late(of, *replicas)
    assert of_kind(decision, AssignReplica) == []
    assert why in reason_of(decision, "long")


@pytest.mark.parametrize(
    "of",
    [
        fleet(overrides=Overrides(replicas={"short": 4})),
        fleet(overrides=Overrides(replicas={"long": 3})),
        fleet(overrides=Overrides(step={"short": LadderStep.NORMAL})),
        fleet(bounds=(4, 8)),
    ],
)
def test_nobody_moves_against_an_operator_or_the_lane_s_minimum(of: Desired) -> None:
    assert of_kind(late(of, *all_of(of)), AssignReplica) == []


def test_nobody_moves_out_of_or_into_a_lane_that_waits_for_replicas_it_lost() -> None:
    of = fleet()
    short, long = ready(of, "short", 1, 2, 3, 4), ready(of, "long", 5, 6)
    before = memory(long=3)
    lost = replace(before, lanes=before.lanes | {"long": replace(before.lanes["long"], had_ready=3)})
    assert of_kind(decide(of, seen(*short, *long), lost), AssignReplica) == []
    lost = replace(before, lanes=before.lanes | {"short": replace(before.lanes["short"], had_ready=4)})
    assert of_kind(late(of, *short[:3], *long, before=lost), AssignReplica) == []


def test_a_lane_without_any_replica_is_given_one_at_its_first_request() -> None:
    of = fleet(bounds=(0, 8))
    replicas = ready(of, "short", 1, 2, 3, 4)
    decision = decide(of, seen(*replicas, long_rps=0.5), memory(long=0, had_long=0))
    assert len(of_kind(decision, AssignReplica)) == 1
    assert of_kind(decision, LaunchReplica) == []


def test_who_lacked_before_what_it_gave_up_gives_nothing_for_a_while() -> None:
    of = fleet()
    before = memory()
    bursts = replace(before.lanes["short"].bursts, regrets=1, regretted_at=at(3500))
    regretted = replace(before, lanes=before.lanes | {"short": replace(before.lanes["short"], bursts=bursts)})
    assert of_kind(late(of, *all_of(of), before=regretted), AssignReplica) == []


def test_the_on_demand_baseline_of_both_lanes_is_kept() -> None:
    of = fleet(long={"spot": SpotPolicy.ALL})
    of = replace(
        of,
        plan=replace(
            of.plan, lanes=(replace(of.plan.lane("short"), on_demand=1), replace(of.plan.lane("long"), on_demand=1))
        ),
    )
    of = replace(
        of, profile=replace(of.profile, lanes=(replace(of.profile.lanes[0], spot=SpotPolicy.ALL), of.profile.lanes[1]))
    )
    spot = ready(of, "short", 2, 3, 4, record_market=Market.SPOT)
    only = ready(of, "short", 1)
    assert [m.replica_id for m in of_kind(late(of, *only, *spot, *ready(of, "long", 5)), AssignReplica)] == ["r4", "r3"]
    # Where the taker's own baseline is lacking, spot nodes do not make up for it.
    short_of_baseline = replace(
        of, plan=replace(of.plan, lanes=(of.plan.lane("short"), replace(of.plan.lane("long"), on_demand=3)))
    )
    assert of_kind(late(short_of_baseline, *only, *spot, *ready(of, "long", 5)), AssignReplica) == []


def test_shadow_mode_journals_the_move_and_nothing_else_changes() -> None:
    of = fleet(mode=Mode.SHADOW, overrides=Overrides())
    of = replace(
        of, plan=replace(of.plan, lanes=(replace(of.plan.lane("short"), replicas=4, rps=4.0), of.plan.lane("long")))
    )
    planned = memory()
    planned = replace(planned, lanes=planned.lanes | {"short": replace(planned.lanes["short"], planned=4, requested=4)})
    decision = late(of, *all_of(of), before=planned)
    assert {(move.replica_id, move.shadow) for move in of_kind(decision, AssignReplica)} == {("r4", True), ("r3", True)}
    assert [a for a in decision.actions if not isinstance(a, AssignReplica)] == []
    assert decision.memory.lanes["short"].wanted == 4


def test_no_node_is_ordered_for_a_move_where_the_caps_leave_none() -> None:
    of = fleet(capacity=CapacitySpec(max_nodes=5))
    decision = late(of, *all_of(of), long_rps=6.0)
    assert len(of_kind(decision, AssignReplica)) == 2
    assert of_kind(decision, LaunchReplica) == []
    assert ReasonCode.LAUNCH_BLOCKED in {reason.code for reason in decision.reasons[Subject.lane("long")]}


def test_figures_that_are_not_fit_move_nobody() -> None:
    of = fleet()
    stale = replace(seen(*all_of(of)), gateway_validity=Validity.STALE)
    assert decide(of, stale, memory(long=3)).actions == () or not of_kind(
        decide(of, stale, memory(long=3)), AssignReplica
    )


def rates(most: float) -> st.SearchStrategy[float]:
    return st.floats(0.1, most)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    loads=st.lists(st.tuples(rates(8), rates(8)), min_size=2, max_size=12),
    bounds=st.tuples(st.integers(0, 3), st.integers(3, 8)),
)
# Of two replicas one is still to be given up for a rate that has just risen fourfold, and growth waits.
@example(counts=(0, 6), bounds=(0, 3), loads=[(1, 0.5), (1, 0.5), (2, 0.5), (2, 2)])
def test_a_move_leaves_every_owner_what_it_needs_and_every_lane_inside_its_bounds(
    counts: tuple[int, int], loads: list[tuple[float, float]], bounds: tuple[int, int]
) -> None:
    of = fleet(bounds=bounds)
    short = ready(of, "short", *range(1, counts[0] + 1))
    long = ready(of, "long", *range(101, counts[1] + 101))
    world, kept = seen(*short, *long), memory(short=counts[0], long=counts[1])
    for number, (short_rps, long_rps) in enumerate(loads):
        now_s = 3600.0 + 11.0 * number
        figures = seen(short_rps=short_rps, long_rps=long_rps, now_s=now_s)
        world = replace(world, at=figures.at, gateway=figures.gateway)
        decision = decide(of, world, kept, now_s=now_s)
        before = {lane: _serving(world, lane) for lane in ("short", "long")}
        world, kept = worlds.after(world, decision, of), decision.memory
        for move in of_kind(decision, AssignReplica):
            owner = "short" if move.lane == "long" else "long"
            rps = short_rps if owner == "short" else long_rps
            assert before[owner] > bounds[0]
            assert _serving(world, owner) >= max(bounds[0], min(before[owner], rps, bounds[1]))
            assert _serving(world, move.lane) <= bounds[1]


def _serving(world: Observation, lane: str) -> int:
    return sum(r.record.lane == lane and r.record.state is STATE.READY for r in world.replicas)


@settings(max_examples=12, deadline=None)
@given(noise=st.lists(st.tuples(st.floats(-0.9, 0.9), st.floats(-0.9, 0.9)), min_size=40, max_size=40))
def test_noise_about_a_level_moves_no_replica_twice(noise: list[tuple[float, float]]) -> None:
    of = fleet()
    world, kept = seen(*all_of(of)), memory()
    moves: list[str] = []
    for number, (one, other) in enumerate(noise):
        now_s = 3600.0 + 5.0 * number
        figures = seen(short_rps=2.5 + one, long_rps=2.5 + other, now_s=now_s)
        world = replace(world, at=figures.at, gateway=figures.gateway)
        decision = decide(of, world, kept, now_s=now_s)
        moves += [move.replica_id for move in of_kind(decision, AssignReplica)]
        world, kept = worlds.after(world, decision, of), decision.memory
    assert len(moves) == len(set(moves))
