"""What stands before an engine's next prompt, told by nothing but its first tokens."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.routing.budget import in_time
from fleetctl.core.routing.candidate import Candidate, PromptLoad
from fleetctl.core.routing.prefill_line import PrefillLine
from fleetctl.core.routing.prefill_step import PrefillTurn
from fleetctl.core.routing.shared_prefills import SharedPrefillLine

moves = st.lists(
    st.tuples(
        st.sampled_from(["join", "done", "answered", "leave"]),
        st.integers(0, 20_000),
        st.floats(0, 3),
        st.integers(0, 9),
    ),
    max_size=60,
)


@given(moves)
def test_the_line_is_empty_when_all_have_gone_and_never_forecasts_less_than_nothing(moves):
    line, now_s, turns = PrefillLine(5_000.0), 0.0, []
    for what, tokens, seconds, which in moves:
        now_s += seconds
        if what == "join":
            turns.append(line.join(tokens, now_s))
        elif turns:
            turn = turns[which % len(turns)]
            if what == "leave":
                line.leave(turn, now_s)
            else:
                line.done(turn, now_s, is_first_token=what == "done")
        assert line.wait_s(now_s) >= 0.0
        assert line.own_s(tokens) >= 0.0
        assert line.count == sum(not turn.is_gone for turn in turns)
    for turn in turns:
        line.leave(turn, now_s)
    assert line.count == 0
    assert line.wait_s(now_s) == 0.0


def serve(line: PrefillLine, rng: random.Random, *, rate: float, fixed_s: float, prompts: int) -> float:
    """An engine that computes prompts in order; return the mean error of the forecast over the last half, as a share."""
    now_s, free_s, errors = 0.0, 0.0, []
    waiting: list[tuple[PrefillTurn, float]] = []
    for number in range(prompts):
        now_s += rng.expovariate(0.8 * rate / 1500.0)
        while waiting and waiting[0][1] <= now_s:
            turn, done_s = waiting.pop(0)
            line.done(turn, done_s)
        tokens = rng.choice((200, 1000, 3300))
        predicted_s = line.wait_s(now_s) + line.own_s(tokens)
        free_s = max(free_s, now_s) + fixed_s + tokens / rate
        if number > prompts / 2:
            errors.append(abs(predicted_s - (free_s - now_s)) / (free_s - now_s))
        waiting.append((line.join(tokens, now_s), free_s))
    return sum(errors) / len(errors)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(500, 50_000), st.floats(0.0, 0.05), st.floats(0.2, 5.0))
def test_an_engines_own_rate_is_learned_whatever_the_plan_says(seed, rate, fixed_s, wrong_by):
    line = PrefillLine(rate * wrong_by)
    assert serve(line, random.Random(seed), rate=rate, fixed_s=fixed_s, prompts=400) < 0.12


def test_one_pause_is_not_taken_at_its_word_and_one_that_lasts_is():
    line = PrefillLine(10_000.0)
    for number in range(50):
        line.done(line.join(1000, number), number + 0.1)
    line.done(line.join(1000, 100.0), 130.0)
    assert line.own_s(1000) < 0.2
    for number in range(60):
        line.done(line.join(1000, 200.0 + 10 * number), 201.0 + 10 * number)
    assert line.own_s(1000) == pytest.approx(1.0, rel=0.3)


def test_an_answer_that_came_whole_says_nothing_of_its_prompt_alone():
    line = PrefillLine(10_000.0)
    before_s = line.own_s(1000)
    line.done(line.join(1000, 0.0), 60.0, is_first_token=False)
    assert line.own_s(1000) == before_s


@pytest.mark.parametrize("per_stream", [0.0, 0.045])
def test_what_streams_beside_add_to_a_prompt_is_learned(per_stream):
    line, rng, now_s = PrefillLine(5_000.0), random.Random(5), 0.0
    line.plan(5_000.0, 40)
    for _ in range(400):
        beside, tokens = rng.randrange(20), rng.choice((1000, 3000, 8000))
        line.carries(beside)
        turn = line.join(tokens, now_s)
        line.carries(beside + 1)
        now_s += (0.01 + tokens / 4_000.0) * (1.0 + per_stream * beside)
        line.done(turn, now_s)
        now_s += 5.0
    for beside in (0, 5, 18):
        line.carries(beside)
        assert line.own_s(8000) == pytest.approx((0.01 + 2.0) * (1.0 + per_stream * beside), rel=0.12)


@pytest.mark.parametrize("per_step", [1, 3, 12])
def test_prompts_of_one_step_are_told_by_all_of_them(per_step):
    """Their first tokens come together: the first of them took the whole step no more than the last took nothing."""
    line, now_s, each_s = PrefillLine(20_000.0), 0.0, 0.05
    for _ in range(100):
        turns = [line.join(800, now_s) for _ in range(per_step)]
        now_s += per_step * each_s
        for turn in turns:
            line.done(turn, now_s)
            now_s += 0.0005
    assert line.own_s(800) == pytest.approx(each_s, rel=0.15)


def test_nobody_is_let_into_a_shared_step_who_makes_those_late_that_wait_for_it():
    """An engine whose steps take all that wait, at twice what it can do: who is let in is answered in time."""
    engine, rng, now_s = candidate("engine"), random.Random(3), 0.0
    line, step_ends_s, in_step = engine.line, 0.0, list[PrefillTurn]()
    waiting, waits = list[PrefillTurn](), list[float]()
    while now_s < 120.0:
        now_s += rng.expovariate(2.0 / 0.025)
        while step_ends_s <= now_s and (waiting or in_step):
            for turn in in_step:
                line.done(turn, step_ends_s)
                waits.append(step_ends_s - turn.since_s)
            in_step, waiting = waiting, []
            step_ends_s = max(step_ends_s, in_step[0].since_s if in_step else 0.0) + 0.01 + 0.025 * len(in_step)
        if in_time([engine], PromptLoad(800, {}), left_s=0.45, line_s_max=9.0, now_s=now_s, or_idle=False):
            waiting.append(line.join(800, now_s))
    late = waits[len(waits) // 4 :]
    assert sum(wait_s > 0.5 for wait_s in late) <= 0.01 * len(late)
    assert len(waits) > 0.8 * 120.0 / 0.026


def test_answers_that_come_whole_slow_no_forecast_down():
    line, now_s = PrefillLine(10_000.0), 0.0
    for _ in range(100):
        whole = line.join(1000, now_s, is_heard=False)  # computed in .1 s, answered much later
        heard = line.join(500, now_s + 0.4)
        line.done(heard, now_s + 0.45)
        line.done(whole, now_s + 9.0, is_first_token=False)
        now_s += 10.0
    assert line.own_s(1000) == pytest.approx(0.1, rel=0.1)
    line.join(2000, now_s, is_heard=False)
    assert line.wait_s(now_s + 0.1) == pytest.approx(0.1, rel=0.2)
    assert line.wait_s(now_s + 0.5) == 0.0
    assert line.count == 0


def candidate(id_: str, *waiting: int) -> Candidate:
    found = Candidate(
        id=id_, in_rotation=True, concurrency_max=8, prefill_tokens_per_s=10_000.0, line=SharedPrefillLine(10_000.0)
    )
    for tokens in waiting:
        found.line.join(tokens, 0.0)
    return found


def test_only_who_is_done_in_time_takes_a_prompt_and_an_idle_engine_takes_any():
    short, long, idle = candidate("short", 2000), candidate("long", 9000), candidate("idle")

    def ids(tokens: int, left_s: float, line_s_max: float = 10.0) -> list[str]:
        prompt = PromptLoad(tokens, {})
        return [c.id for c in in_time((short, long, idle), prompt, left_s=left_s, line_s_max=line_s_max, now_s=0.0)]

    assert ids(1000, left_s=0.5) == ["short", "idle"]
    assert ids(1000, left_s=1.1) == ["short", "long", "idle"]
    assert ids(4000, left_s=0.5) == ["idle"]  # late anywhere, latest where others wait
    assert ids(1000, left_s=9.0, line_s_max=0.5) == ["short", "idle"]
    hurried = in_time((short, idle), PromptLoad(6000, {}), left_s=0.5, line_s_max=10.0, now_s=0.0, or_idle=False)
    assert hurried == []


def test_a_cached_prefix_takes_no_time():
    busy = candidate("busy", 3000)
    cached = PromptLoad(5000, {"busy": 4500})
    assert in_time((busy,), cached, left_s=0.4, line_s_max=9.0, now_s=0.0) == [busy]
    assert in_time((busy,), PromptLoad(5000, {}), left_s=0.4, line_s_max=9.0, now_s=0.0) == []
