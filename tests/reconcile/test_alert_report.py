"""Alerts in decisions: journalled once when they fire and once when they end, and replicas kept meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.codec import decode, encode
from fleetctl.model.alert import AlertName, AlertState
from fleetctl.model.decision import Decision, LaneMemory, Memory, ReportAlert
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import Subject
from tests.reconcile.worlds import (
    at,
    decide,
    lane_spec,
    observation,
    observed,
    of_kind,
    one_lane,
    reason_of,
    snapshot,
    traffic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.desired import Desired

PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
TWO = (observed("r1"), observed("r2"))


def tick(fleet: Desired, memory: Memory, now_s: float, *, bad: int = 0, queued: int = 0, rps: float = 1.0) -> Decision:
    lane = traffic("short", bad=bad, queued=queued, rps=rps, ttft_s=0.05, wait_s=0.001)
    return decide(fleet, observation(*TWO, gateway=snapshot(lane, now_s=now_s), now_s=now_s), memory)


def reported(bad_at: Callable[[int], int], seconds: int) -> list[tuple[int, ReportAlert]]:
    """Return what is reported of a lane with so many bad requests of 200 at these seconds; a restart each minute."""
    memory, found = PLANNED, []
    for second in range(0, seconds, 5):
        decision = tick(one_lane(), memory, 3600 + second, bad=bad_at(second))
        memory = decode(Memory, encode(decision.memory))
        found += [(second, each) for each in of_kind(decision, ReportAlert)]
    return found


def test_an_alert_is_journalled_once_when_it_fires_and_once_when_it_is_over():
    found = [(s, each) for s, each in reported(lambda second: 20 if 10 <= second < 400 else 0, 700)]
    fast = [(s, each) for s, each in found if each.noted["alert"] == AlertName.FAST_BURN.value]
    assert [(s, each.name, each.code) for s, each in fast] == [
        (130, "alert", ReasonCode.ALERT_FIRING),
        (520, "alert-ended", ReasonCode.ALERT_RESOLVED),
    ]
    assert fast[0][1].reason.startswith("fast-burn: error budget burns 20x over 1h, 20x over 5m (> 14.4x)")
    assert fast[0][1].noted["severity"] == "page"
    assert fast[1][1].noted["lasted_s"] == 390.0


def test_what_lasts_less_than_two_minutes_is_not_journalled():
    assert reported(lambda second: 20 if second % 200 < 110 else 0, 900) == []


@pytest.mark.parametrize("bad", [20, 0])
def test_no_replica_is_given_up_while_the_budget_burns_fast(bad: int) -> None:
    fleet = one_lane(4, bounds=(1, 8))
    four = tuple(observed(f"r{n}") for n in range(1, 5))
    memory = Memory(lanes={"short": LaneMemory(wanted=4, planned=4, requested=4)})
    lane, decision = (
        traffic("short", bad=bad, rps=1.0, ttft_s=0.05, wait_s=0.001),
        Decision(actions=(), memory=memory, requeue_at=at(0)),
    )
    for second in range(0, 400, 5):
        now_s = 3600 + second
        seen = observation(*four, gateway=snapshot(lane, now_s=now_s), now_s=now_s)
        decision = decide(fleet, seen, memory)
        memory = decision.memory
    assert (memory.lanes["short"].wanted == 4) is bool(bad)
    codes = {reason.code for reason in decision.reasons[Subject.lane("short")]}
    assert (ReasonCode.BUDGET_BURN in codes) is bool(bad)
    if bad:
        assert "error budget burns 20x over 1h" in reason_of(decision, "short")
        assert "fast-burn" in str(decision.inputs["short"]["alerts"])


def test_an_interruptible_lane_may_queue_as_deep_as_it_likes():
    spec = replace(lane_spec(), interruptible=True)
    fleet = one_lane()
    batch = replace(fleet, profile=replace(fleet.profile, lanes=(spec,)))
    for wanted, desired in ((True, fleet), (False, batch)):
        memory = PLANNED
        for second in range(0, 60, 5):
            memory = tick(desired, memory, 3600 + second, queued=25).memory
        firing = [a.name for a in memory.lanes["short"].alerts if a.state is AlertState.FIRING]
        assert (AlertName.QUEUE_DEPTH in firing) is wanted
