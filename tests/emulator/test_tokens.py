"""Texts and tokens convert both ways, and continuations go on where an answer stopped."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fleetctl_emulator.lengths import natural_tokens
from fleetctl_emulator.tokens import VOCABULARY, AnswerText, AnswerTexts, render_chat, render_text, token_count

ANSWER = AnswerText("7")


@given(start=st.integers(0, 3000), length=st.integers(0, 200))
def test_words_tokens_and_bytes_of_an_answer_count_alike(start, length):
    text = ANSWER.tokens(start, start + length)
    assert token_count(len(text)) == length == len(text.split())
    assert AnswerText("7").tokens(0, start + length)[start * 4 :] == text


def test_words_are_four_bytes_and_distinct():
    assert all(len(word) == 4 and word.endswith(b" ") for word in VOCABULARY)
    assert len(set(VOCABULARY)) == len(VOCABULARY) > 1000


@given(st.text(min_size=1, max_size=200), st.integers(0, 500))
def test_text_ending_in_the_answer_continues_it(question, emitted):
    prompt = render_text(question.encode() + b"? " + ANSWER.tokens(0, emitted), ANSWER)
    assert prompt.resumed_tokens == emitted
    fresh = render_text(question.encode() + b"? ", ANSWER)
    assert prompt.question == fresh.content
    assert prompt.tokens == fresh.tokens + emitted
    assert natural_tokens(prompt.question, seed="7") == natural_tokens(fresh.question, seed="7")


def test_stripped_last_space_is_forgiven():
    assert render_text(b"Say: " + ANSWER.tokens(0, 9).rstrip(), ANSWER).resumed_tokens == 9


def test_another_seeds_answer_is_only_text():
    assert render_text(b"Say: " + AnswerText("8").tokens(0, 9), ANSWER).resumed_tokens == 0


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.binary(max_size=50)), min_size=1))
def test_chat_template_costs_what_it_says(messages):
    body = sum(token_count(len(text)) for _, text in messages)
    plain = render_chat(messages, opens_answer=True, continues_final=False)
    assert plain.tokens == 1 + 5 * len(messages) + body + 4
    assert plain.resumed_tokens == 0
    continued = render_chat(messages, opens_answer=False, continues_final=True)
    assert continued.tokens == 1 + 5 * len(messages) - 1 + body
    assert continued.resumed_tokens == token_count(len(messages[-1][1]))


def test_next_turn_begins_with_the_tokens_of_this_one():
    question = [("user", b"What is a lane?")]
    first = render_chat(question, opens_answer=True, continues_final=False)
    emitted = ANSWER.tokens(0, 40)
    second = render_chat(
        [*question, ("assistant", emitted), ("user", b"And a replica?")], opens_answer=True, continues_final=False
    )
    assert second.content.startswith(first.content + emitted)


def test_natural_lengths_spread_as_published():
    lengths = sorted(natural_tokens(str(i).encode(), seed="0") for i in range(4000))
    assert 115 < lengths[2000] < 145
    assert 480 < lengths[3960] < 760


def test_answers_of_few_seeds_are_kept():
    texts = AnswerTexts(kept_max=2)
    first = texts.of("1")
    assert texts.of("1") is first
    texts.of("2")
    texts.of("3")
    assert texts.of("1") is not first
    assert texts.of("1").tokens(0, 5) == first.tokens(0, 5)
