"""Whatever a client sends, it is a request or a refusal."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl_emulator.bodies import ChatBody, CompletionBody, chat_generation, completion_generation, read_body
from fleetctl_emulator.json_bodies import parse_json
from fleetctl_emulator.openai_fields import chat_body, completion_body
from fleetctl_emulator.refusals import EngineRefusal, RefusalReason
from fleetctl_emulator.requests import GenerationRequest, predict_answer
from fleetctl_emulator.tokens import AnswerTexts

TEXTS = AnswerTexts()
VOCABULARY = 2**32
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
known = st.sampled_from(
    [
        "model", "stream", "stream_options", "max_tokens", "min_tokens", "ignore_eos", "n", "seed", "stop", "priority",
        "echo", "response_format", "logprobs", "tool_choice", "continue_final_message", "add_generation_prompt",
        "max_completion_tokens", "suffix", "best_of", "messages", "prompt", "temperature", "top_p", "top_k", "tools",
        "logit_bias", "structured_outputs",
    ]
)  # fmt: skip
right = {
    "n": st.integers(1, 3), "max_tokens": st.integers(1, 60), "min_tokens": st.integers(0, 60),
    "seed": st.integers(-5, 5), "stop": st.text(min_size=1, max_size=3) | st.lists(st.text(min_size=1, max_size=3), max_size=4),
    "stream": st.booleans(), "ignore_eos": st.booleans(), "priority": st.integers(-9, 9),
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(wrong=st.dictionaries(known, anything, max_size=4), fields=st.fixed_dictionaries({}, optional=right))
def test_any_body_is_an_ask_or_a_refusal(wrong, fields):
    chat = {"messages": [{"role": "user", "content": "x"}]} | fields | wrong
    completion = {"prompt": "x"} | fields | wrong
    for is_chat, is_strict in itertools.product((True, False), (True, False)):
        body = chat if is_chat else completion
        taken = _taken(json.dumps(body).encode(), is_chat=is_chat, is_strict=is_strict)
        if isinstance(taken, EngineRefusal):
            assert taken.message
        else:
            assert taken.sequences >= 1
            assert all(prompt.tokens >= 1 for prompt in taken.prompts)


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=60), is_strict=st.booleans())
def test_any_bytes_are_refused_as_malformed_or_taken(raw, is_strict):
    taken = _taken(raw, is_chat=True, is_strict=is_strict)
    refused = (RefusalReason.UNREADABLE, RefusalReason.MALFORMED, RefusalReason.INVALID)
    assert isinstance(taken, GenerationRequest) or taken.reason in refused


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


def _generation(raw: bytes, *, is_chat: bool, is_strict: bool = False) -> GenerationRequest:
    if is_chat:
        chat = read_body(ChatBody, raw) if is_strict else chat_body(parse_json(raw))
        return chat_generation(chat, seed=0, request_id="")
    value = read_body(CompletionBody, raw) if is_strict else None
    text = value or completion_body(parse_json(raw))
    return completion_generation(text, TEXTS, seed=0, request_id="", vocabulary=VOCABULARY)


def _taken(raw: bytes, *, is_chat: bool, is_strict: bool = False) -> GenerationRequest | EngineRefusal:
    try:
        return _generation(raw, is_chat=is_chat, is_strict=is_strict)
    except EngineRefusal as refusal:
        return refusal
