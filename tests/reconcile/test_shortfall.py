"""A lane that was late with all its replicas serving keeps more than those, whatever its rate says that they carry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.decision import DrainReplica, LaneMemory, LaunchReplica, Memory
from fleetctl.model.replica import ReplicaState
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, reason_of, snapshot, traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.decision import Decision
    from fleetctl.model.observation import ObservedReplica

LATE: dict[str, Any] = {"rps": 1.8, "ttft_s": 0.5}  # one replica is planned for 1 rps, and a TTFT of 300 ms is promised
WELL: dict[str, Any] = {"rps": 1.8, "ttft_s": 0.1}


class LivingLane:
    """Decides every five seconds; what is ordered serves two minutes later."""

    def __init__(self, *, bounds: tuple[int, int] = (1, 40)) -> None:
        self.fleet = worlds.one_lane(2, bounds=bounds)
        self.now_s, self.memory = 3600.0, Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
        self.created_s = {1: 0.0, 2: 0.0}
        self.counts = [2]

    @property
    def wanted(self) -> int:
        """Return how many it wants."""
        return self.memory.lanes["short"].wanted

    def run(self, seconds: float, **figures: Any) -> Iterator[Decision]:
        """Let so many seconds pass, with these figures in all of them."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 5.0
            seen = [self._seen(number, created_s) for number, created_s in self.created_s.items()]
            gateway = snapshot(traffic("short", samples_count=300, **figures), now_s=self.now_s)
            decision = decide(self.fleet, observation(*seen, gateway=gateway, now_s=self.now_s), self.memory)
            self.memory = decision.memory
            for _ in of_kind(decision, LaunchReplica):
                self.created_s[max(self.created_s) + 1] = self.now_s
            for drained in of_kind(decision, DrainReplica):
                del self.created_s[int(drained.replica_id[1:])]
            if self.wanted != self.counts[-1]:
                self.counts.append(self.wanted)
            yield decision

    def _seen(self, number: int, created_s: float) -> ObservedReplica:
        state = ReplicaState.READY if self.now_s - created_s >= 120.0 else ReplicaState.BOOTING
        return observed(f"r{number}", state, record_created_at=at(created_s))

    def pass_by(self, seconds: float, **figures: Any) -> Decision:
        """The same; return the last decision."""
        return [*self.run(seconds, **figures)][-1]

    def grow_to(self, replicas: int) -> None:
        """Be late until it wants so many, and well since."""
        for _ in self.run(7200.0, **LATE):
            if self.wanted >= replicas:
                break
        self.pass_by(130.0, **WELL)


def test_a_lane_that_was_late_twice_in_a_row_keeps_more_than_it_was_late_with():
    lane = LivingLane()
    lane.grow_to(4)
    decision = lane.pass_by(600.0, **WELL)
    assert lane.wanted == 4
    assert "1.8 rps offered needs 2 of 4, and 3 were not enough for 1.8 rps" in reason_of(decision, "short")


def test_a_lane_that_was_late_once_goes_by_its_rate():
    lane = LivingLane()
    lane.grow_to(3)
    lane.pass_by(600.0, **WELL)
    assert lane.wanted == 2


def test_for_every_hour_that_passes_one_fewer_is_tried_and_being_late_again_says_what_it_did():
    lane = LivingLane()
    lane.grow_to(4)
    lane.pass_by(3600.0, **WELL)
    assert lane.counts[-2:] == [4, 3]
    lane.grow_to(4)
    lane.pass_by(1800.0, **WELL)
    assert lane.wanted == 4


def test_less_load_needs_less_by_the_same_measure():
    lane = LivingLane()
    lane.grow_to(10)
    lacked = lane.memory.lanes["short"].bursts.shortfall
    assert lacked is not None
    lane.pass_by(2400.0, **{**WELL, "rps": 0.9})
    assert 2 < lane.wanted < lacked.replicas, "one is what the rate asks for"


def test_the_longer_it_lasts_the_more_are_ordered_at_once():
    lane = LivingLane()
    lane.grow_to(13)
    steps = [after - before for before, after in zip(lane.counts, lane.counts[1:], strict=False)]
    assert steps[:9] == [1, 1, 1, 1, 1, 1, 2, 2, 3]


def test_a_lane_at_its_bound_notes_nothing_however_long_it_is_late():
    lane = LivingLane(bounds=(1, 3))
    lane.grow_to(3)
    lane.pass_by(120.0, **LATE)
    noted = lane.memory.lanes["short"].bursts
    lane.pass_by(300.0, **LATE)
    assert lane.memory.lanes["short"].bursts.shortfall == noted.shortfall
    assert noted.shortfall is not None
    assert noted.shortfall.replicas == 2, "three are the most it may have: nothing would show whether four are enough"


def test_replicas_that_are_missing_say_nothing_of_the_load():
    lane = LivingLane()
    lane.created_s[3] = lane.now_s  # it boots while the lane is late
    lane.memory = replace(lane.memory, lanes={"short": replace(lane.memory.lanes["short"], wanted=3)})
    lane.pass_by(100.0, **LATE)
    assert lane.memory.lanes["short"].bursts.shortfall is None


@pytest.mark.parametrize("rps", [0.0, 0.01])
def test_a_lane_without_load_keeps_none_for_it(rps):
    lane = LivingLane()
    lane.grow_to(6)
    lane.pass_by(3000.0, **{**WELL, "rps": rps})
    assert lane.wanted == 1
