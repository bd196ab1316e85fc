"""What is kept of a stream and what is taken out of it: text, counts, usage nobody asked for."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.gateway.limits import GatewayLimits
from fleetctl.gateway.relay import EventRelay
from fleetctl.gateway.seam import Seam
from fleetctl.gateway.transcript import Transcript
from fleetctl.gateway.usage import ShownUsage, asking_for_counts, shown_usage
from tests.gateway.scripted import delta, usage_event

PROMPT_TOKENS = 9
AT_END = ShownUsage(at_end=True)
IN_EVENTS = ShownUsage(at_end=True, in_events=True)


def line(payload: Any, *, spaced: bool = False) -> bytes:
    return b"data: " + json.dumps(payload, separators=(", ", ": ") if spaced else (",", ":")).encode() + b"\n\n"


def counted(payload: Any, tokens: int, **more: Any) -> Any:
    """An event as vLLM writes it with continuous_usage_stats."""
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + tokens, "completion_tokens": tokens}
    return payload | {"usage": usage | more}


def stream(pieces: list[tuple[str, int]], *, spaced: bool = False, **more: Any) -> tuple[bytes, bytes]:
    """An answer in pieces of some tokens each: with the counts asked for, and without."""
    shown, plain, tokens = [counted(delta(role=True), 0)], [delta(role=True)], 0
    for text, count in pieces:
        tokens += count
        shown.append(counted(delta(text), tokens, **more))
        plain.append(delta(text))
    shown += [counted(delta("", finish="stop"), tokens, **more), usage_event(PROMPT_TOKENS, tokens)]
    plain.append(delta("", finish="stop"))
    done = b"data: [DONE]\n\n"
    lines = [b"".join(line(each, spaced=spaced) for each in events) + done for events in (shown, plain)]
    return lines[0], lines[1]


def relay(shown: ShownUsage | None = None, *, text_bytes_max: int = 10**6) -> EventRelay:
    return EventRelay(GatewayLimits(), transcript=Transcript(text_bytes_max), is_counted=True, shown=shown)


def feed(through: EventRelay, data: bytes, cuts: list[int]) -> bytes:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return b"".join(through.feed(data[a:b]) for a, b in itertools.pairwise(edges))


def delivered(through: EventRelay) -> str:
    assert through.transcript is not None
    return through.transcript.delivered()


PIECES = st.lists(st.tuples(st.text(max_size=12), st.integers(1, 5)), max_size=14)


@given(
    pieces=PIECES,
    cuts=st.lists(st.integers(0, 10**6), max_size=20),
    spaced=st.booleans(),
    more=st.sampled_from([{}, {"completion_tokens_details": None}, {"completion_tokens_details": {"reasoning": 0}}]),
)
def test_however_a_counted_stream_is_cut_up_the_client_sees_no_count_and_all_is_known(pieces, cuts, spaced, more):
    data, plain = stream(pieces, spaced=spaced, **more)
    through = relay()
    assert feed(through, data, cuts) == plain
    assert delivered(through) == "".join(text for text, _ in pieces)
    assert through.counts() == (PROMPT_TOKENS, sum(count for _, count in pieces))
    assert through.tokens == sum(bool(text) for text, _ in pieces)
    assert through.is_done
    assert through.fault is None
    assert through.usage is not None
    assert through.usage.completion_tokens == sum(count for _, count in pieces)


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 10**6), max_size=8))
def test_counts_a_client_asked_for_are_passed_on_as_they_come(pieces, cuts):
    data, _ = stream(pieces)
    assert feed(relay(IN_EVENTS), data, cuts) == data


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 10**6), max_size=8))
def test_the_usage_at_the_end_is_passed_on_to_who_asked_for_that(pieces, cuts):
    data, plain = stream(pieces)
    usage = line(usage_event(PROMPT_TOKENS, sum(count for _, count in pieces)))
    assert feed(relay(AT_END), data, cuts) == plain.replace(b"data: [DONE]", usage + b"data: [DONE]")


@given(texts=st.lists(st.text(max_size=8), max_size=10))
def test_an_engine_that_does_not_count_has_a_token_in_every_event(texts):
    through = relay()
    chunks = [delta(text) | {"usage": None} for text in texts]
    for chunk in chunks:
        chunk["choices"][0]["delta"]["role"] = "assistant"  # as TGI has it
    data = b"".join(line(chunk) for chunk in chunks)
    assert through.feed(data) == data
    # The first one may be the opening that other engines send.
    opening = bool(texts) and not texts[0]
    assert through.counts() == (None, len(texts) - opening)
    assert delivered(through) == "".join(texts)


def test_a_long_stream_is_kept_as_text_alone():
    through = relay()
    words = [f"w{number % 7} " for number in range(20_000)]
    data, _ = stream([(word, 1) for word in words])
    for event in data.splitlines(keepends=True):
        through.feed(event)
    transcript = through.transcript
    assert transcript is not None
    assert transcript.delivered() == "".join(words)
    assert len(transcript.text) == 60_000


@pytest.mark.parametrize(
    "other",
    [
        delta("x") | {"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": []}, "finish_reason": None}]},
    ],
)
def test_what_is_not_one_plain_text_is_passed_on_and_cannot_be_continued(other):
    through = relay()
    before, after = line(counted(delta("a"), 1)), line(counted(delta("b"), 3))
    got = through.feed(before) + through.feed(line(counted(other, 2))) + through.feed(after)
    assert got == line(delta("a")) + line(other) + line(delta("b"))
    assert through.transcript is not None
    assert not through.transcript.is_fit


def test_text_beyond_what_the_request_may_generate_is_not_kept():
    through = relay(text_bytes_max=100)
    data, plain = stream([("four", 1)] * 50)
    got = b"".join(through.feed(event) for event in data.splitlines(keepends=True))
    assert got == plain
    assert through.transcript is not None
    assert not through.transcript.is_fit
    assert len(through.transcript.text) <= 100


@pytest.mark.parametrize(
    ("body", "options", "shown"),
    [
        ({"stream": True}, None, ShownUsage()),
        ({"stream": True, "stream_options": None}, None, ShownUsage()),
        ({"stream": True, "stream_options": {"include_usage": True}}, {}, AT_END),
        ({"stream": True, "stream_options": {"include_usage": False, "x": 1}}, {"x": 1}, ShownUsage()),
        ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, {}, IN_EVENTS),
        ({"stream_options": {}, "tools": [{"stream_options": {}}]}, {}, ShownUsage()),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_counts_are_asked_for_beside_whatever_the_client_asks(body, options, shown, separators):
    raw = json.dumps(body, separators=separators).encode()
    given_options = body.get("stream_options", "absent")
    given_raw = b"" if given_options == "absent" else json.dumps(given_options, separators=separators).encode()
    sent = msgspec.json.decode(asking_for_counts(raw, given_raw))
    wanted = {"include_usage": True, "continuous_usage_stats": True} | (options or {})
    assert sent == body | {"stream_options": wanted}
    assert shown_usage(given_raw) == shown


@given(
    answer=st.text(alphabet="ab \n", max_size=30),
    at=st.integers(0, 30),
    cuts=st.lists(st.integers(0, 30), max_size=6),
    stop=st.sampled_from(["", "ab", "aab", "b\n a", "   "]),
    trims=st.booleans(),
)
def test_a_joined_answer_is_the_one_there_would_have_been(answer, at, cuts, stop, trims):
    """The engine stops at what it generated itself; the seam has to find what began before."""
    whole = answer.partition(stop)[0] if stop else answer
    first = answer[:at]
    if stop and stop in first:
        return
    sent = first.rstrip() if trims else first
    rest = answer[len(sent) :]
    rest = rest.partition(stop)[0] if stop else rest
    seam = Seam(first, unsent=first[len(sent) :], stops=(stop,) if stop else ())
    edges = [0, *sorted(cut % (len(rest) + 1) for cut in cuts), len(rest)]
    joined = "".join(
        seam.join(rest[a:b], is_last=number == len(edges) - 2)
        for number, (a, b) in enumerate(itertools.pairwise(edges))
        if not seam.stopped_by
    )
    if seam.stopped_by:
        assert joined == ""
        assert answer.startswith(first)
        assert whole == first[: len(whole)]
    else:
        assert first + joined == answer[: len(first) + len(joined)]
        assert len(first + joined) >= len(whole)
