"""The phases of a start: put together from record, node and engine, whichever of them says what, and judged by what others took."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.boot_phases import MeasuredPhases, boot_concern, boot_steps, phase_times_s
from fleetctl.core.transitions import transition
from fleetctl.model.boot import BootPhase, BootStep
from fleetctl.model.decision import AdmitReplica
from fleetctl.model.node import BootProgress
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.testing.samples import EPOCH, replica

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def record(state: ReplicaState = ReplicaState.BOOTING, *, changed_s: float = 2.0, **changes: Any) -> Replica:
    return replica(created_at=EPOCH, changed_at=at(changed_s), state=state, node_id="i-1", ready_at=None, **changes)


def step(phase: str, seconds: float) -> BootStep:
    return BootStep(phase=phase, began_at=at(seconds))


def taken(steps: Iterable[BootStep], until_s: float) -> dict[str, float]:
    return dict(phase_times_s(steps, until=at(until_s)))


REPORTED = BootProgress(
    phase="loading",
    steps=(step("user-data", 30), step("image", 50), step("gpu-check", 170), step("loading", 180)),
)


def test_a_start_is_followed_from_its_order_to_its_first_completion() -> None:
    steps: tuple[BootStep, ...] = boot_steps(record(ReplicaState.PENDING), None, (), now=at(1))
    steps = boot_steps(record(), BootProgress(phase="launching"), steps, now=at(3))
    steps = boot_steps(record(), BootProgress(phase="user-data"), steps, now=at(33))
    steps = boot_steps(record(), REPORTED, steps, now=at(200))
    steps = boot_steps(
        record(), replace(REPORTED, phase="weights", steps=(*REPORTED.steps, step("weights", 200))), steps, now=at(201)
    )
    steps = boot_steps(record(ReplicaState.WARMING, changed_s=260), REPORTED, steps, now=at(262))
    assert taken(steps, 270) == {
        "ordered": 2, "launching": 28, "user-data": 20, "image": 120, "gpu-check": 10, "loading": 80, "warm-up": 10,
    }  # fmt: skip
    admitted = transition(
        record(ReplicaState.WARMING, changed_s=260),
        AdmitReplica(replica_id="r1", code=ReasonCode.WARMED, reason="warmed", boot_steps=steps),
        now=at(270),
    )
    assert admitted.boot_steps == steps
    assert boot_steps(admitted, REPORTED, steps, now=at(280)) == (), "it has started"


def test_a_controller_that_begins_in_the_middle_knows_what_the_node_tells() -> None:
    before = boot_steps(record(), BootProgress(phase="launching"), (), now=at(3))
    followed = taken(boot_steps(record(), REPORTED, before, now=at(200)), 200)
    anew = taken(boot_steps(record(), REPORTED, (), now=at(200)), 200)
    assert followed == {"ordered": 2, "launching": 28, "user-data": 20, "image": 120, "gpu-check": 10, "loading": 20}
    assert anew == {"ordered": 30, "user-data": 20, "image": 120, "gpu-check": 10, "loading": 20}


def test_until_its_node_is_seen_nothing_says_that_an_engine_starts() -> None:
    steps = boot_steps(record(), None, (), now=at(5), is_node_running=False)
    assert [each.phase for each in steps] == ["ordered"]
    steps = boot_steps(record(), BootProgress(phase="image"), steps, now=at(6))
    assert [each.phase for each in boot_steps(record(), None, steps, now=at(9), is_node_running=False)] == [
        "ordered",
        "image",
    ]


def test_what_an_earlier_engine_of_the_slot_went_through_is_not_this_ones() -> None:
    stale = replace(
        REPORTED, steps=tuple(replace(each, began_at=each.began_at - timedelta(hours=1)) for each in REPORTED.steps)
    )
    assert taken(boot_steps(record(), stale, (), now=at(10)), 10) == {"ordered": 2, "loading": 8}


PHASES = st.sampled_from(["launching", "user-data", "image", "weights", "loading"])
BY_PROVIDER = st.builds(BootProgress, phase=PHASES)
BY_NODE = st.lists(
    st.builds(step, PHASES, st.floats(-3600, 3600)), min_size=1, max_size=4, unique_by=lambda s: s.phase
).map(lambda steps: BootProgress(phase=steps[-1].phase, steps=tuple(steps)))
REPORTS = st.none() | BY_PROVIDER | BY_NODE


@given(looks=st.lists(st.tuples(REPORTS, st.floats(0, 60)), min_size=1, max_size=12), is_warm=st.booleans())
def test_the_phases_are_in_order_and_make_up_the_whole_time_whatever_clocks_say(
    looks: list[tuple[BootProgress | None, float]], is_warm: bool
) -> None:
    steps: tuple[BootStep, ...] = ()
    now_s = 2.0
    for report, later_s in looks:
        now_s += later_s
        steps = boot_steps(record(), report, steps, now=at(now_s))
        assert steps == boot_steps(record(), report, steps, now=at(now_s)), "a second look at the same is no news"
    if is_warm:
        steps = boot_steps(record(ReplicaState.WARMING, changed_s=now_s), None, steps, now=at(now_s))
    instants = [each.began_at for each in steps]
    assert instants == sorted(instants)
    assert instants[-1] <= at(now_s)
    assert sum(taken(steps, now_s).values()) == pytest.approx(now_s, abs=1e-3)


@pytest.mark.parametrize(
    ("image_s", "others_s", "says"),
    [
        (500.0, (), ""),
        (700.0, (), "image for 11m40s, usually under 10m: look at the registry's"),
        (70.0, (30.0, 40.0), ""),
        (100.0, (30.0, 40.0), "image for 1m40s, others took 35s: look at the registry's"),
        (100.0, (30.0, 90.0), ""),  # one of them took nearly as long
        (15.0, (1.0,), ""),
    ],
)
def test_a_phase_is_late_by_what_others_took_or_by_what_is_usual(
    image_s: float, others_s: tuple[float, ...], says: str
) -> None:
    others = [
        replace(
            record(ReplicaState.READY, replica_id=f"r{number + 2}"), ready_at=at(each_s + 10),
            boot_steps=(step("ordered", 0), step("image", 10)),
        )
        for number, each_s in enumerate(others_s)
    ]  # fmt: skip
    steps = (step("ordered", 0), step("image", 10))
    found = boot_concern(record(), steps, MeasuredPhases(others), (), now=at(10 + image_s))
    assert found.startswith(says)
    assert bool(found) is bool(says)


def test_where_to_look_is_the_providers_word_and_names_the_node() -> None:
    declared = (BootPhase(name="image", usual_s=5.0, look="console of {node}, {replica} of {fleet}"),)
    found = boot_concern(record(), (step("image", 0),), MeasuredPhases(()), declared, now=at(9))
    assert found == "image for 9s, usually under 5s: look at console of i-1, r1 of demo"
