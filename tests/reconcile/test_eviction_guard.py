"""The guard of KV caches: raised step by step by evictions that are surely too many, let go after long calm, never on a guess."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, strategies as st

from fleetctl.codec import decode, encode
from fleetctl.controller.table import build_table
from fleetctl.core.eviction_guard import GUARDED_KV_SHARE, LEVEL_MAX, decide_guard
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.eviction import EvictionRules
from fleetctl.model.eviction_report import EvictionMemory, SetEvictionGuard
from fleetctl.model.profile import Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.slo import Validity
from fleetctl.model.subject import Subject
from fleetctl.plugins import load_engine
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, one_lane, reason_of, snapshot, traffic

if TYPE_CHECKING:
    from fleetctl.model.decision import Decision
    from fleetctl.model.gateway import LaneSnapshot

RULES = EvictionRules()


def lane(evicted: int, finished: int = 4000) -> LaneSnapshot:
    """Return figures in which so many of so many requests were evicted, in every window."""
    made = traffic("short", ttft_s=0.05, wait_s=0.001, samples_count=finished)
    return replace(made, windows=tuple(msgspec.structs.replace(window, preempted=evicted) for window in made.windows))


def levels(*evicted: tuple[int, int], step_s: int = 10) -> list[tuple[int, int]]:
    """Return (second, new level) for phases of (evicted of 4,000 requests in every window, seconds)."""
    memory, now_s, found = EvictionMemory(), 0, []
    for count, seconds in evicted:
        for _ in range(0, seconds, step_s):
            decision = decide_guard("short", memory, lane(count), RULES, at(now_s))
            memory = decode(EvictionMemory, encode(decision.memory))
            found += [(now_s, action.level) for action in decision.actions]
            now_s += step_s
    return found


def test_it_rises_step_by_step_each_judged_by_requests_of_its_own() -> None:
    assert levels((40, 600)) == [(0, 1), (90, 2), (180, 3)]


def test_what_is_within_the_limit_or_may_be_chance_raises_nothing() -> None:
    assert levels((0, 600), (4, 600), (8, 600)) == []
    few = decide_guard("short", EvictionMemory(), lane(2, 3), RULES, at(0))
    assert few.actions == ()


def test_it_is_let_go_step_by_step_after_a_quarter_of_an_hour_of_calm() -> None:
    found = levels((40, 100), (0, 4000))
    assert [level for _, level in found] == [1, 2, 1, 0]
    assert found[2][0] - found[1][0] >= 900
    assert found[3][0] - found[2][0] >= 900


def test_one_that_is_needed_again_soon_is_kept_for_twice_as_long() -> None:
    first = levels((40, 10), (0, 1000))
    assert [level for _, level in first] == [1, 0]
    both = levels((40, 10), (0, 1000), (40, 10), (0, 2000))
    assert [level for _, level in both] == [1, 0, 1, 0]
    assert both[1][0] - both[0][0] < 1000
    assert both[3][0] - both[2][0] >= 1800


@given(phases=st.lists(st.tuples(st.sampled_from((0, 2, 40, 400)), st.integers(10, 2000)), max_size=12))
def test_it_never_flaps_and_moves_a_level_at_a_time(phases: list[tuple[int, int]]) -> None:
    found = [(0, 0), *levels(*phases)]
    for (before_s, before), (now_s, now) in pairwise(found):
        assert abs(now - before) == 1
        assert 0 <= now <= LEVEL_MAX
        assert now > before or now_s - before_s >= 900
    assert sum(now < before for (_, before), (_, now) in pairwise(found)) <= len(phases) * LEVEL_MAX


def test_without_current_figures_it_stays_as_it_is() -> None:
    raised = EvictionMemory(level=2, changed_at=at(0))
    decision = decide_guard("short", raised, None, RULES, at(9999))
    assert decision.memory == raised
    assert "held: no current figures" in decision.reasons[0].message


def test_switched_off_it_lets_go_at_once() -> None:
    raised = EvictionMemory(level=2, changed_at=at(0))
    decision = decide_guard("short", raised, lane(400), EvictionRules(act=False), at(10))
    assert decision.memory.level == 0
    assert decide_guard("short", decision.memory, lane(400), EvictionRules(act=False), at(20)).actions == ()


def decided(
    memory: Memory, *, evicted: int = 40, mode: Mode = Mode.ACTIVE, validity: Validity = Validity.OK
) -> Decision:
    seen = observation(
        observed("r1"), observed("r2"), gateway=snapshot(lane(evicted), now_s=3600), gateway_validity=validity
    )
    return decide(one_lane(mode=mode), seen, memory)


def test_a_decision_raises_it_says_why_and_the_table_has_it() -> None:
    planned = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
    decision = decided(planned)
    [action] = of_kind(decision, SetEvictionGuard)
    assert (action.level, action.code, action.shadow) == (1, ReasonCode.EVICTION_GUARD, False)
    assert action.reason == (
        "20% of the KV caches are kept free (level 1 of 3): 40 evictions in 4,000 requests in 1m, 1% where 0.1% may be: "
        "40 streams preempted"
    )
    assert "20% of the KV caches" in reason_of(decision, "short")
    assert ReasonCode.EVICTION_GUARD in {reason.code for reason in decision.reasons[Subject.lane("short")]}
    records = [observed("r1").record]
    tables = [
        build_table(one_lane(mode=mode), records, memory, engine_of=load_engine, key_hashes=(), version=1)
        for mode in Mode
        for memory in (planned, decision.memory)
    ]
    shares = {mode: [table.replicas[0].kv_share for table in tables[2 * n : 2 * n + 2]] for n, mode in enumerate(Mode)}
    assert shares[Mode.ACTIVE] == [0.96, GUARDED_KV_SHARE]
    assert shares[Mode.SHADOW] == [0.96, 0.96], "in shadow mode nothing is done"


def test_higher_levels_give_fewer_slots_and_send_long_prompts_away() -> None:
    records = [observed("r1").record]
    tables = [
        build_table(
            one_lane(),
            records,
            Memory(lanes={"short": LaneMemory(evictions=EvictionMemory(level=level))}),
            engine_of=load_engine,
            key_hashes=(),
            version=1,
        )
        for level in range(LEVEL_MAX + 1)
    ]
    slots = [table.replicas[0].concurrency_max for table in tables]
    assert slots[0] == slots[1] > slots[2] == slots[3] >= 1
    assert [bool(table.lanes[0].long_prompt_tokens) for table in tables] == [False, False, False, True]


def test_shadow_mode_says_what_it_would_do() -> None:
    planned = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
    [action] = of_kind(decided(planned, mode=Mode.SHADOW), SetEvictionGuard)
    assert action.shadow


def test_stale_figures_raise_nothing() -> None:
    planned = Memory(lanes={"short": LaneMemory(wanted=2, planned=2, requested=2)})
    assert of_kind(decided(planned, validity=Validity.STALE), SetEvictionGuard) == []
