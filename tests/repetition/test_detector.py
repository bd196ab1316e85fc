"""What a loop is: found soon after it begins, whatever it repeats, and never seen in what repeats rightfully."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.repetition.detector import NEVER, PERIOD_TOKENS_MAX, TAIL_BYTES, LoopDetector
from fleetctl.core.repetition.units import LOOP_TOKENS, RIGHTFUL_TOKENS, tokens_needed
from tests.repetition.texts import LOOPS, LOOPS_OF_DATA, RIGHTFUL, looping, prose, rightful, tokens
from tests.repetition.watching import found_in

ANSWERS_A_KIND = 12
FOUND_WITHIN_TOKENS = 200
# What comes before a loop may end as its unit does: it began then before it was made to.
SHARED_TOKENS = 24


@pytest.mark.parametrize("kind", sorted(RIGHTFUL))
def test_what_repeats_rightfully_is_no_loop(kind: str) -> None:
    found = [found_in(rightful(kind, random.Random(f"{kind}/{seed}"))) for seed in range(ANSWERS_A_KIND)]
    assert found == [None] * ANSWERS_A_KIND


@pytest.mark.parametrize("kind", sorted(LOOPS))
def test_a_loop_is_found_within_200_tokens_of_its_beginning(kind: str) -> None:
    for seed in range(ANSWERS_A_KIND):
        answer, lead, unit = looping(kind, random.Random(f"{kind}/{seed}"))
        loop = found_in(answer)
        assert loop is not None, f"seed {kind}/{seed}"
        assert LOOP_TOKENS - SHARED_TOKENS <= loop.found_token - lead <= FOUND_WITHIN_TOKENS, f"seed {kind}/{seed}"
        assert abs(loop.begin_token - lead) <= SHARED_TOKENS, f"seed {kind}/{seed}"
        assert abs(loop.period_tokens - unit) <= 1 + unit // 8 or unit % loop.period_tokens == 0, f"seed {kind}/{seed}"


@pytest.mark.parametrize("kind", sorted(LOOPS_OF_DATA))
def test_a_loop_of_data_is_found_once_it_is_longer_than_any_data(kind: str) -> None:
    for seed in range(3):
        answer, lead, _ = looping(kind, random.Random(f"{kind}/{seed}"), tokens_repeated=RIGHTFUL_TOKENS + 300)
        loop = found_in(answer)
        assert loop is not None
        assert RIGHTFUL_TOKENS - SHARED_TOKENS <= loop.found_token - lead <= RIGHTFUL_TOKENS + 200


@pytest.mark.parametrize("chunk", [2, 7, 40])
@pytest.mark.parametrize("kind", sorted(LOOPS))
def test_chunks_of_several_tokens_delay_it_by_no_more_than_a_chunk(kind: str, chunk: int) -> None:
    answer, lead, _ = looping(kind, random.Random(f"{kind}/{chunk}"))
    loop = found_in(answer, chunk=chunk)
    assert loop is not None
    assert loop.found_token - lead <= FOUND_WITHIN_TOKENS + chunk


def test_events_that_do_not_count_their_tokens_are_told_by_their_bytes() -> None:
    answer, lead, _ = looping("sentences", random.Random(1), tokens_repeated=800)
    events = ["".join(answer[at : at + 10]) for at in range(0, len(answer), 10)]
    loop = found_in(events)
    assert loop is not None
    assert loop.found_token * 10 - lead <= 600


def test_nothing_is_looked_at_once_it_is_found() -> None:
    answer, _, _ = looping("phrase", random.Random(2))
    detector, text = LoopDetector(), bytearray()
    looks_after = 0
    for place, token in enumerate(answer):
        text += token.encode()
        if len(text) >= detector.next_bytes:
            looks_after += detector.loop is not None
            detector.look(text, place + 1)
    assert detector.loop is not None
    assert detector.next_bytes == NEVER
    assert looks_after == 0


@given(st.integers(0, 10_000), st.sampled_from(sorted(LOOPS)))
@settings(max_examples=30, deadline=None)
def test_the_tail_of_a_text_tells_as_much_as_all_of_it(seed: int, kind: str) -> None:
    answer, _, _ = looping(kind, random.Random(seed))
    detector, text, dropped = LoopDetector(), bytearray(), 0
    for place, token in enumerate(answer):
        text += token.encode()
        if dropped + len(text) >= detector.next_bytes:
            detector.look(text, place + 1, dropped=dropped)
            dropped += max(0, len(text) - TAIL_BYTES)
            del text[:-TAIL_BYTES]
    assert detector.loop == found_in(answer, escapes=False)


@pytest.mark.parametrize("seed", range(20))
def test_a_period_that_is_little_longer_than_the_longest_is_no_loop(seed: int) -> None:
    unit = tokens(prose(random.Random(seed), 60), random.Random(0))
    assert found_in(unit[: PERIOD_TOKENS_MAX + 5] * 6) is None
    assert found_in(unit[:PERIOD_TOKENS_MAX] * 6) is not None


@given(st.integers(0, 10_000), st.integers(PERIOD_TOKENS_MAX * 2, PERIOD_TOKENS_MAX * 4))
@settings(max_examples=20, deadline=None)
def test_a_longer_period_is_no_loop(seed: int, period: int) -> None:
    rng = random.Random(seed)
    unit = tokens(prose(rng, 60), random.Random(0))[:period]
    assert found_in(unit * 5) is None


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_a_text_that_goes_on_after_some_rounds_is_no_loop(seed: int) -> None:
    rng = random.Random(seed)
    unit = tokens(" " + prose(rng, 1), rng)
    rounds = max(1, (LOOP_TOKENS - 40) // len(unit))
    assert found_in(tokens(prose(rng, 5), rng) + unit * rounds + tokens(prose(rng, 5), rng)) is None


def test_a_loop_that_began_after_a_broken_one_is_found() -> None:
    rng = random.Random(3)
    first, second = tokens(" " + prose(rng, 1), rng), tokens(" " + prose(rng, 2), rng)
    answer = first * (100 // len(first)) + second * (400 // len(second))
    loop = found_in(answer)
    assert loop is not None
    assert abs(loop.period_tokens - len(second)) <= 2


def test_a_unit_that_holds_another_one_twice_is_found() -> None:
    unit = tokens(
        " the cat sat on the mat and the cat sat on the mat and then it left for the garden.", random.Random(0)
    )
    loop = found_in(unit * 20)
    assert loop is not None
    assert loop.period_tokens == len(unit)


@pytest.mark.parametrize(
    "unit",
    [
        "| 0 | 0 |\n", " b |\n| a |", "0, ", "[0, 0],\n", "<td></td>", "AAAA", '{"id": null, "n": 0}, ', "NULL, ", ".........\n",
        "0x00, ", "⬜⬜⬜⬜⬜⬜\n", "- [ ] \n", "ACGT", '"yes", "no", ', "('a', 1), ('b', -2),\n", '\\"a:b:c\\",', '"x"; ', "0 & 0 \\\\\n", "true, false, ",
    ],
)  # fmt: skip
def test_units_of_data_may_repeat_for_long(unit: str) -> None:
    assert tokens_needed(unit * 3) == RIGHTFUL_TOKENS


@pytest.mark.parametrize(
    "unit",
    [
        "\n", "!", " the", "好的。", "的", "I will. ", "- item\n", "return x;\n", "ha", "</div>\n", "}\n", "[0, ", "\n\n", "😂", "```\n", "---\n\n",
        '{"role": "user", "content": "what is it that you want of me"}, ', "- \n", '"No." ', '"No," she said. ', 'print("x")\n',
        '"what is it that you want of me", ', '["a", ', '"a" and "b", ', "don't, won't, ",
    ],
)  # fmt: skip
def test_units_of_prose_and_what_never_closes_may_not(unit: str) -> None:
    assert tokens_needed(unit * 3) == LOOP_TOKENS
