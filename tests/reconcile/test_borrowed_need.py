"""What a lane at its maximum lives on by borrowing is kept by the lane that lends it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.bursts import BurstMemory, NeedLevel
from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory
from fleetctl.model.desired import Overrides
from fleetctl.model.profile import ReplicaBounds, SpotPolicy
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of, snapshot, traffic

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision


def lane_memory(wanted: int) -> LaneMemory:
    """Return the memory of a lane that has needed one for an hour."""
    bursts = BurstMemory(levels=(NeedLevel(need=1, since=at(0)),))
    return LaneMemory(wanted=wanted, planned=2, requested=2, had_ready=wanted, bursts=bursts)


def decided(
    *,
    most: int = 2,
    short_rps: float = 3.5,
    lent: dict[str, Any] | None = None,
    overrides: dict[str, int] | None = None,
) -> Decision:
    """Decide on a short lane of two, each of which carries 1 rps, and a long one of four, which needs one."""
    lanes = (
        worlds.lane_spec("short", replicas=ReplicaBounds(min=1, max=most), spot=SpotPolicy.NONE),
        worlds.lane_spec("long", replicas=ReplicaBounds(min=1, max=8), spot=SpotPolicy.NONE, **(lent or {})),
    )
    fleet = worlds.desired(*lanes, counts={"short": (2, 0), "long": (2, 0)})
    fleet = replace(fleet, overrides=Overrides(replicas=overrides or {}))
    gateway = snapshot(
        traffic("short", rps=short_rps, samples_count=300), traffic("long", rps=0.5, samples_count=300), now_s=3600.0
    )
    short = [observed(f"r{n}", record_lane="short", record_created_at=at(n)) for n in (1, 2)]
    long = [observed(f"r{n}", record_lane="long", record_created_at=at(n)) for n in (3, 4, 5, 6)]
    memory = Memory(lanes={"short": lane_memory(2), "long": lane_memory(4)})
    return decide(fleet, observation(*short, *long, gateway=gateway, now_s=3600.0), memory)


def given_up(decision: Decision) -> int:
    return len(of_kind(decision, DrainReplica))


def test_a_lender_keeps_what_a_lane_at_its_maximum_needs_beyond_it():
    decision = decided()
    assert given_up(decision) == 1, "one for its own load, two for short"
    assert "beside 2 lent to short" in reason_of(decision, "long")
    assert ",," not in reason_of(decision, "long")


def test_nobody_orders_for_another_lanes_maximum():
    decision = decided(short_rps=30.0)
    assert given_up(decision) == 0
    assert not of_kind(decision, LaunchReplica)


@pytest.mark.parametrize(
    "case",
    [
        {"short_rps": 1.5},  # it has enough
        {"most": 8},  # it may order its own
        {"lent": {"lends": False}},
    ],
)
def test_a_lane_keeps_none_that_nobody_lives_on(case):
    assert given_up(decided(**case)) == 3


def test_a_count_that_an_operator_set_is_the_maximum_while_it_lasts():
    assert given_up(decided(most=8, overrides={"short": 2})) == 1
    assert given_up(decided(overrides={"long": 1})) == 3
