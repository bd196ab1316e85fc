"""What the journal says of breaches: each once, with its figures, and little of one that comes and goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.decision import LaneMemory, Memory, ReportBreach
from fleetctl.model.reason import ReasonCode
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.decision import Decision
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, one_lane, snapshot, traffic

TTFT = samples.lane_slo().targets[0]
PLANNED = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
TWO = (observed("r1"), observed("r2"))


def tick(memory: Memory, now_s: float, *, is_late: bool) -> Decision:
    late = {TTFT: 4 * TTFT.limit_s} if is_late else None
    lane = traffic("short", samples_count=7, late=late)
    return decide(one_lane(), observation(*TWO, gateway=snapshot(lane, now_s=now_s), now_s=now_s), memory)


def reported(late_at: Callable[[int], bool], seconds: int) -> list[tuple[int, ReportBreach]]:
    """Return what is reported of a lane that is late at these seconds, and when."""
    memory = PLANNED
    found: list[tuple[int, ReportBreach]] = []
    for second in range(seconds):
        decision = tick(memory, 3600 + second, is_late=late_at(second))
        memory = decision.memory
        found += [(second, each) for each in of_kind(decision, ReportBreach)]
    return found


def test_a_breach_is_reported_when_it_begins_and_when_it_ends():
    (began_s, began), (ended_s, ended) = reported(lambda second: 5 <= second < 50, 200)
    assert (began_s, ended_s) == (5, 50)
    assert began.name == "breach"
    assert began.reason == "ttft P99 1.2s > 300ms (4x) over 60s"
    assert began.figures == {
        "finding": "ttft P99",
        "window_s": 60.0,
        "factor": 4.0,
        "since": "2026-01-05T13:00:05+00:00",
    }
    assert (ended.name, ended.code, ended.figures["lasted_s"]) == ("breach-ended", ReasonCode.SLO_KEPT, 45.0)
    assert ended.reason == "ttft P99 kept again after 45s"


def test_a_breach_that_comes_and_goes_is_reported_once_more_and_ends_when_it_is_over_for_good():
    found = reported(lambda second: second < 600 and second % 20 < 5, 800)
    assert [each.name for _, each in found] == ["breach", "breach-ended"] * 2
    assert found[2][1].reason.startswith("again, 15s after the last one: ttft P99")
    assert found[-1][0] == 585 + 60


def test_two_breaches_far_apart_are_two():
    found = reported(lambda second: second < 10 or 200 <= second < 210, 400)
    assert [each.name for _, each in found] == ["breach", "breach-ended"] * 2
    assert "again" not in found[2][1].reason


def test_a_lane_without_figures_has_not_recovered():
    memory = tick(PLANNED, 3600, is_late=True).memory
    silent = observation(*TWO, gateway=snapshot(now_s=3601), now_s=3601)
    assert of_kind(decide(one_lane(), silent, memory), ReportBreach) == []


def test_a_gateway_that_is_killed_in_a_breach_ends_it_for_nobody():
    """Its figures are empty, then few; a breach that they show again is the one before."""
    killed_s, back_s, late_again_s = 3630, 3632, 3645
    memory = PLANNED
    found: list[ReportBreach] = []
    for second in range(3600, 3760):
        is_back = second >= back_s
        lane = traffic("short", samples_count=7, late={TTFT: 4 * TTFT.limit_s})
        if is_back and second < late_again_s:
            lane = traffic("short", samples_count=max(0, second - back_s - 5), late={})
        gateway = snapshot(*([lane] if second < killed_s or is_back else []), now_s=second)
        if is_back:
            gateway = replace(gateway, started_at=at(back_s))
        decision = decide(one_lane(), observation(*TWO, gateway=gateway, now_s=second), memory)
        memory = decision.memory
        found += of_kind(decision, ReportBreach)
    assert [each.name for each in found] == ["breach"]


def test_a_breach_that_nothing_shows_any_more_is_over_after_a_minute():
    memory = tick(PLANNED, 3600, is_late=True).memory
    found: list[tuple[int, ReportBreach]] = []
    for second in range(3601, 3700):
        nothing = snapshot(traffic("short", samples_count=0), now_s=second)
        decision = decide(one_lane(), observation(*TWO, gateway=nothing, now_s=second), memory)
        memory = decision.memory
        found += [(second, each) for each in of_kind(decision, ReportBreach)]
    ((ended_s, ended),) = found
    assert ended_s == 3661
    assert ended.reason == "nothing is measured any more after 1s: ttft P99"
