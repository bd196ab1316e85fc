"""Loops in decisions: journalled when they begin, and again after ten minutes if they go on, however many there are."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.loop_report import ReportLoops
from fleetctl.model.reason import ReasonCode
from tests.reconcile.worlds import decide, observation, observed, of_kind, one_lane, snapshot, traffic

PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})


def reported(looped_at: range, seconds: int) -> list[tuple[int, ReportLoops]]:
    """Return what is reported of a lane of which answers loop at these seconds; a restart each time."""
    memory, found = PLANNED, []
    for second in range(0, seconds, 20):
        lane = traffic("short", rps=1.0, ttft_s=0.05, wait_s=0.001)
        looped = 3 if second in looped_at else 0
        lane = replace(lane, windows=tuple(msgspec.structs.replace(window, looped=looped) for window in lane.windows))
        now_s = 3600 + second
        seen = observation(observed("r1"), observed("r2"), gateway=snapshot(lane, now_s=now_s), now_s=now_s)
        decision = decide(one_lane(), seen, memory)
        memory = decode(Memory, encode(decision.memory))
        found += [(second, each) for each in of_kind(decision, ReportLoops)]
    return found


def test_a_storm_of_loops_is_journalled_once_in_ten_minutes() -> None:
    found = reported(range(100, 1000), 1400)
    assert [second for second, _ in found] == [100, 700]
    _, first = found[0]
    assert first.code is ReasonCode.ANSWERS_LOOP
    assert first.name == "loops"
    assert first.reason.startswith("3 answers were found to repeat themselves in 5m")
    assert "fleetctl requests --lane short" in first.reason
    assert first.figures["looped"] == 3


def test_a_lane_without_loops_says_nothing() -> None:
    assert reported(range(0), 700) == []
