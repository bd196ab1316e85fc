"""What is done says what else was considered, with the figure that spoke against it; what is not done costs no words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controller.journal import Journal
from fleetctl.model.decision import AssignReplica, DrainReplica, LaunchReplica, SetStep
from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode
from fleetctl.testing.clocks import ManualClock
from tests.reconcile.test_reassign import all_of, fleet, late, memory, ready, seen
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, one_lane, snapshot, traffic

if TYPE_CHECKING:
    from fleetctl.model.journal import JournalEntry


def test_a_launch_says_why_not_fewer_not_more_and_not_borrowed() -> None:
    of = fleet(bounds=(1, 3))
    there = (*ready(of, "short", 1, 2), *ready(of, "long", 5))
    decision = late(of, *there, before=memory(short=2), short_rps=1.5, long_rps=3.0)
    launch = next(each for each in of_kind(decision, LaunchReplica) if each.lane == "long")
    options = " | ".join(launch.rejected)
    assert "2 replicas: 3 rps offered needs 3" in options
    assert "4 replicas: the lane's maximum is 3" in options
    assert "borrow from short: it needs 2 and has 2" in options


def test_a_move_says_why_no_boot_and_why_not_from_elsewhere() -> None:
    of = fleet()
    (move, *_) = of_kind(late(of, *all_of(of)), AssignReplica)
    assert any(each.startswith("order one: ") and "from order to ready" in each for each in move.rejected)


def test_giving_up_a_replica_says_why_it_is_not_kept_and_why_not_one_more() -> None:
    of = fleet(bounds=(1, 4))
    there = (*ready(of, "short", 1, 2, 3, 4), *ready(of, "long", 5))
    calm = memory(short=4)
    decision = decide(of, seen(*there, short_rps=0.3, long_rps=0.3, now_s=9000.0), calm)
    drains = [each for each in of_kind(decision, DrainReplica) if each.code is ReasonCode.REPLICA_EXCESS]
    assert drains
    options = " | ".join(drains[0].rejected)
    assert "4 replicas: " in options
    assert "0 replicas: the lane's minimum is 1" in options
    assert "give it to another lane: none lacks a replica" in options


def test_a_step_of_the_ladder_says_why_it_is_neither_milder_nor_harsher() -> None:
    of, known = one_lane(2, bounds=(1, 2)), memory(short=2)
    steps: list[SetStep] = []
    for second in range(12):
        gateway = snapshot(traffic("short", ttft_s=0.7), now_s=3600.0 + second)
        decision = decide(
            of, observation(observed("r1"), observed("r2"), gateway=gateway, now_s=3600.0 + second), known
        )
        known, steps = decision.memory, steps + of_kind(decision, SetStep)
    (step,) = steps
    options = " | ".join(step.rejected)
    assert f"stay at {LadderStep.NORMAL.value}: " in options
    assert "breaker: overloaded for " in options
    assert "wait for replicas: " in options


def test_what_a_person_pins_and_what_is_no_choice_has_no_other_options() -> None:
    of = fleet()
    pinned = replace(of, overrides=replace(of.overrides, step={"short": LadderStep.SHED}))
    (step,) = of_kind(decide(pinned, seen(*all_of(of)), memory()), SetStep)
    assert step.rejected == ()


def test_the_journal_keeps_the_options_among_an_entrys_inputs() -> None:
    written: list[JournalEntry] = []

    class Kept:
        def append(self, entries: tuple[JournalEntry, ...]) -> None:
            written.extend(entries)

    of = fleet()
    decision = late(of, *all_of(of))
    journal = Journal(Kept(), "demo", ManualClock(at(0)))  # type: ignore[arg-type]
    journal.decided(decision, list(of_kind(decision, AssignReplica)), {})
    assert "order one: " in str(written[0].inputs["rejected"])
