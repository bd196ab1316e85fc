"""Whatever a client sends, it is a request or a refusal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl_emulator.bodies import ChatBody, CompletionBody, chat_generation, completion_generation, read_body
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason
from fleetctl_emulator.requests import GenerationRequest, predict_answer
from fleetctl_emulator.tokens import AnswerTexts

TEXTS = AnswerTexts()
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
known = st.sampled_from(
    [
        "model", "stream", "stream_options", "max_tokens", "min_tokens", "ignore_eos", "n", "seed", "stop", "priority",
        "echo", "response_format", "logprobs", "tool_choice", "continue_final_message", "add_generation_prompt",
        "max_completion_tokens", "suffix", "best_of", "messages", "prompt",
    ]
)  # fmt: skip
right = {
    "n": st.integers(1, 3), "max_tokens": st.integers(1, 60), "min_tokens": st.integers(0, 60),
    "seed": st.integers(-5, 5), "stop": st.text(min_size=1, max_size=3) | st.lists(st.text(min_size=1, max_size=3)),
    "stream": st.booleans(), "ignore_eos": st.booleans(), "priority": st.integers(-9, 9),
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(wrong=st.dictionaries(known, anything, max_size=4), fields=st.fixed_dictionaries({}, optional=right))
def test_any_body_is_an_ask_or_a_refusal(wrong, fields):
    chat = {"messages": [{"role": "user", "content": "x"}]} | fields | wrong
    completion = {"prompt": "x"} | fields | wrong
    for body, is_chat in ((chat, True), (completion, False)):
        taken = _taken(json.dumps(body).encode(), is_chat=is_chat)
        if isinstance(taken, EngineRefusal):
            assert taken.message
        else:
            assert taken.sequences >= 1
            assert all(prompt.tokens >= 1 for prompt in taken.prompts)


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_refused_as_malformed_or_taken(raw):
    taken = _taken(raw, is_chat=True)
    assert isinstance(taken, GenerationRequest) or taken.reason in (RefusalReason.MALFORMED, RefusalReason.INVALID)


@settings(max_examples=200, deadline=None)
@given(fields=st.fixed_dictionaries({}, optional=right), tokens_max=st.integers(1, 200), topic=st.text(max_size=20))
def test_answer_is_predicted_within_its_bounds_and_continues_itself(fields, tokens_max, topic):
    generation = _generation(
        json.dumps({"messages": [{"role": "user", "content": topic}], **fields}).encode(), is_chat=True
    )
    answer = TEXTS.of(generation.choice_seed(0))
    predicted = predict_answer(generation, generation.prompts[0], answer, tokens_max=tokens_max)
    ceiling = min(tokens_max, generation.max_tokens or tokens_max)
    assert 1 <= predicted.output_tokens <= ceiling
    assert answer.tokens(0, 200).startswith(predicted.text[:800])
    if generation.ignores_eos and predicted.stop_reason is None:
        assert predicted.output_tokens == ceiling
    if generation.min_tokens >= ceiling and predicted.stop_reason is None:
        assert predicted.output_tokens == ceiling
    assert all(word.encode() not in predicted.text for word in generation.stop)


@pytest.mark.parametrize("body", [b'{"messages":[{"role":"user","content":"\\ud800"}]}', b'{"messages":[]}'])
def test_text_that_is_no_text_is_refused(body):
    with pytest.raises(EngineRefusal):
        _generation(body, is_chat=True)


def _generation(raw: bytes, *, is_chat: bool) -> GenerationRequest:
    if is_chat:
        return chat_generation(read_body(ChatBody, raw), seed=0, request_id="")
    return completion_generation(read_body(CompletionBody, raw), TEXTS, seed=0, request_id="")


def _taken(raw: bytes, *, is_chat: bool) -> GenerationRequest | EngineRefusal:
    try:
        return _generation(raw, is_chat=is_chat)
    except EngineRefusal as refusal:
        return refusal
