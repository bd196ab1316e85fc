"""How events are recognised: boundaries, content, ends, errors; in every spelling engines use."""

from __future__ import annotations

import contextlib
import itertools
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.core.admission.tokens import PromptSize
from fleetctl.gateway import wire
from fleetctl.gateway.classify import parse_request
from fleetctl.gateway.limits import GatewayLimits
from fleetctl.gateway.relay import EventRelay
from fleetctl.gateway.transcript import Transcript
from fleetctl.gateway.usage import ShownUsage, read_usage
from tests.gateway.scripted import delta, usage_event

COMPACT, SPACED = (",", ":"), (", ", ": ")


LIMITS = GatewayLimits()


def event(payload: Any, *, separators: tuple[str, str] = COMPACT, end: bytes = b"\n\n") -> bytes:
    return b"data: " + json.dumps(payload, separators=separators).encode() + end


def answer(words: list[str], *, separators: tuple[str, str] = COMPACT, end: bytes = b"\n\n") -> bytes:
    payloads = [delta(role=True), *(delta(w) for w in words), delta(finish="stop"), usage_event(9, len(words))]
    return b"".join(event(p, separators=separators, end=end) for p in payloads) + b"data: [DONE]" + end


def relay(limits: GatewayLimits = LIMITS) -> EventRelay:
    return EventRelay(limits, transcript=Transcript(10**6))


def feed(stream: EventRelay, data: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return b"".join(stream.feed(data[a:b]) for a, b in itertools.pairwise(edges))


@given(
    words=st.lists(st.text(min_size=1, max_size=12), max_size=12),
    cuts=st.lists(st.integers(0, 10**6), max_size=8),
    separators=st.sampled_from([COMPACT, SPACED]),
    end=st.sampled_from([b"\n\n", b"\r\n\r\n"]),
)
def test_however_a_stream_is_cut_up_it_comes_out_the_same_and_counts_the_same(words, cuts, separators, end):
    data = answer(words, separators=separators, end=end)
    stream = relay()
    assert feed(stream, data, cuts) == data
    assert stream.tokens == len(words)
    assert stream.is_finished
    assert stream.is_done
    assert stream.fault is None
    assert stream.transcript is not None
    assert stream.transcript.delivered() == "".join(words)
    assert stream.usage is not None
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (9, len(words))


@given(
    words=st.lists(st.text(max_size=12), max_size=40),
    cuts=st.lists(st.integers(0, 10**6), max_size=12),
    key=st.sampled_from(["content", "reasoning_content", "arguments"]),
    irregular=st.lists(st.sampled_from(["", "logprobs", "role", "choice", "empty", "created"]), min_size=1, max_size=5),
)
def test_a_stream_that_nobody_keeps_passes_and_counts_the_same_whatever_its_events_share(words, cuts, key, irregular):
    events, tokens = [event(delta(role=True))], 0
    for place, word in enumerate(words):
        payload = delta(word)
        how = irregular[place % len(irregular)]
        inner: dict[str, Any] = {key: "" if how == "empty" else word}
        inner = {"tool_calls": [{"index": 0, "function": inner}]} if key == "arguments" else inner
        payload["choices"][0] |= {"delta": inner, "index": int(how == "choice")}
        if how == "logprobs":
            payload["choices"][0]["logprobs"] = {"content": [{"token": word, "logprob": -0.1 * place}]}
        elif how == "role":
            inner["role"] = "assistant"
        elif how == "created":
            payload["created"] = place
        tokens += word != "" and how != "empty"
        events.append(event(payload))
    data = b"".join([*events, event(delta(finish="stop")), wire.DONE_EVENT])
    stream = EventRelay(LIMITS)
    assert feed(stream, data, cuts) == data
    assert (stream.tokens, stream.is_finished, stream.is_done, stream.fault) == (tokens, True, True, None)


def test_a_stream_that_nobody_keeps_holds_no_more_of_its_text_the_longer_it_gets():
    stream, one = EventRelay(LIMITS), event(delta("a few words of it "))
    for _ in range(100):
        stream.feed(one)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            stream.feed(one)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stream.tokens == 20_100
    assert held < 32_000


@given(
    text=st.sampled_from(
        ["data: [DONE]\n\n", '"finish_reason":"stop"', '{"error":{"code":503}}', '"content":"x"', "\n\n"]
    )
)
def test_an_answer_about_the_protocol_is_not_taken_for_it(text):
    stream = relay()
    data = event(delta(text))
    assert stream.feed(data) == data
    assert (stream.tokens, stream.is_finished, stream.is_done, stream.fault) == (1, False, False, None)


@pytest.mark.parametrize(
    "inner",
    [{"reasoning_content": "hm"}, {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, {"content": "x"}],
)
def test_reasoning_and_tool_calls_are_content_too(inner):
    stream = relay()
    stream.feed(event({"choices": [{"delta": inner}]}))
    assert stream.tokens == 1


def test_a_switch_from_reasoning_to_content_is_followed():
    stream = relay()
    for inner in ({"reasoning_content": "a"}, {"content": "b"}, {"reasoning": "c"}, {"content": "d"}):
        stream.feed(event({"choices": [{"delta": inner}]}))
    assert stream.tokens == 4


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        ({"error": {"message": "m", "code": 503}}, 503),
        ({"error": {"message": "m", "code": "429"}}, 429),
        ({"object": "error", "message": "m", "code": 400}, 400),
        ({"error": {"message": "m", "code": None}}, 500),
        ({"error": {"message": "m", "code": 7}}, 500),
    ],
)
def test_error_events_are_faults_with_a_status(payload, status):
    stream = relay()
    assert stream.feed(event(payload) + wire.DONE_EVENT) == b""
    assert stream.fault is not None
    assert stream.fault.status == status
    assert stream.fault.error["error"]["message"] == "m"


def test_what_came_before_an_error_event_is_passed_on():
    stream = relay()
    before = event(delta("a"))
    assert stream.feed(before + event({"error": {"message": "m", "code": 500}})) == before
    assert stream.fault is not None


def test_done_without_a_finish_reason_is_held_back():
    stream = relay()
    data = event(delta("a"))
    assert stream.feed(data + wire.DONE_EVENT) == data
    assert stream.fault is not None
    assert not stream.is_done


def test_an_endless_event_is_a_fault():
    stream = relay(GatewayLimits(event_bytes_max=1000))
    stream.feed(b"data: " + b"x" * 2000)
    assert stream.fault is not None


@given(
    cuts=st.lists(st.integers(0, 10**6), max_size=6),
    is_kept=st.booleans(),
    words=st.lists(st.text(min_size=1, max_size=5), max_size=4),
)
def test_a_usage_told_with_the_finish_reason_is_told_after_it_to_who_wants_it_at_the_end(cuts, is_kept, words):
    """llama.cpp ends completions so."""
    figures = usage_event(9, len(words))["usage"]
    payloads = [text_chunk(word) for word in words]
    data = b"".join(
        [*map(event, payloads), event({**text_chunk("", finish="length"), "usage": figures}), b"data: [DONE]\n\n"]
    )
    for shown, is_shown in ((ShownUsage(at_end=True), True), (ShownUsage(), False)):
        kept = Transcript(10**6) if is_kept else None
        stream = EventRelay(LIMITS, transcript=kept, is_counted=True, shown=shown)
        ending = event({**text_chunk("", finish="length"), "choices": [], "usage": figures}) if is_shown else b""
        expected = [*map(event, payloads), event(text_chunk("", finish="length")), ending, b"data: [DONE]\n\n"]
        assert feed(stream, data, cuts) == b"".join(expected)
        assert stream.is_usage_passed is is_shown
        assert stream.is_done


def text_chunk(text: str, *, finish: str | None = None) -> Any:
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
    return {"id": "c1", "object": "text_completion", "created": 1700000000, "model": "m", "choices": [choice]}


def test_usage_is_found_in_whole_answers_and_nowhere_else():
    usage = read_usage(b'{"choices":[],"usage": {"prompt_tokens": 5, "total_tokens": 9, "completion_tokens": 4}}')
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 4)
    assert read_usage(b'{"usage":null}') is None
    assert read_usage(b"") is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [{"role": "user", "content": "abcd"}]}, (6, None, False, False)),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": []}], "stream": True},
            (6, None, True, False),
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "abcd"}]}]}, (6, None, False, False)),
        ({"prompt": "abcd", "stream": None}, (6, None, False, False)),
        ({"prompt": [1, 2, 3]}, (9, 3, False, False)),
        ({"prompt": [[1, 2], [3]]}, (13, 3, False, False)),
        ({"prompt": ["a", "b"], "service_tier": "flex"}, (10, None, False, True)),
        ({}, (0, None, False, False)),
    ],
)
def test_bodies_are_read_as_far_as_routing_needs(body, expected):
    parsed = parse_request(json.dumps(body).encode())
    assert (len(parsed.prompt), parsed.size.token_ids, parsed.stream, parsed.batch_hint) == expected


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
LOW = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": [{"role": "user", "content": "Hi"}]}, PromptSize(4, 1)),
        ({"messages": [{"role": "user", "content": [IMAGE, LOW]}]}, PromptSize(0, 1, 2, 765 + 85)),
        ({"messages": [{"role": "user", "content": "Hi", "name": "Ann"}] * 2}, PromptSize(18, 2)),
        ({"messages": [], "tools": [{"type": "function"}]}, PromptSize(len('[{"type": "function"}]'))),
        ({"messages": [{"role": "assistant", "content": None, "reasoning_content": "why"}]}, PromptSize(9, 1)),
        ({"prompt": "abcd"}, PromptSize(6)),
        ({"prompt": [[1, 2], [3]]}, PromptSize(13, token_ids=3)),
    ],
)
def test_a_prompts_size_counts_all_that_an_engine_sees(body, expected):
    assert parse_request(json.dumps(body).encode()).size == expected


def test_of_several_prompts_the_longest_has_to_fit():
    assert parse_request(b'{"prompt": ["aaaa", "b"]}').longest == PromptSize(4)
    assert parse_request(b'{"prompt": [[1, 2], [3]]}').longest.token_ids == 2
    assert parse_request(b'{"prompt": [1, 2, 3]}').longest.token_ids == 3


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 7}, 7), ({"max_completion_tokens": 9, "max_tokens": 7}, 9), ({"max_tokens": "7"}, 7),
        ({"max_tokens": None}, None), ({"max_tokens": -1}, -1), ({"max_tokens": [1]}, None), ({"max_tokens": 7.0}, 7),
    ],
)  # fmt: skip
def test_the_answer_asked_for_is_read_as_leniently_as_engines_do(fields, expected):
    assert parse_request(json.dumps({"messages": [], **fields}).encode()).output_tokens_max == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_a_body_or_a_decode_error(data):
    with contextlib.suppress(msgspec.DecodeError):
        parse_request(data)
