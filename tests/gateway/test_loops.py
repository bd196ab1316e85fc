"""Answers that repeat themselves are found in whatever form they come, and shown; all others pass as ever."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.model.generation import CappedIs, GenerationSpec, LoopAction
from fleetctl.model.request_trace import RequestTrace, TraceQuery
from tests.gateway.rig import CHAT, GatewayRig, until
from tests.gateway.scripted import Seen, Wire, answers, completion, delta, usage_event
from tests.repetition.texts import looping, prose, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPING, LEAD, PERIOD = looping("sentences", random.Random(5))
STRAIGHT = tokens(prose(random.Random(1), 60), random.Random(1))


@pytest.fixture
async def rig():
    async with GatewayRig() as made:
        yield made


async def trace_of(rig: GatewayRig, **body: Any) -> RequestTrace:
    answered = await rig.post(**body)
    assert answered.status == 200
    [trace] = rig.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    return trace


def streamed(change: Callable[[Any, str], Any], words: list[str], *, together: int = 1, usage: bool = False) -> Any:
    """Return a script that streams these words, each event as `change` makes it of an ordinary one."""

    async def script(_: Seen, wire: Wire) -> None:
        await wire.begin_events()
        await wire.event(delta(role=True))
        events = [change(delta(word), word) for word in words]
        for at in range(0, len(events), together):
            encoded = (json.dumps(each, separators=(",", ":")).encode() for each in events[at : at + together])
            await wire.chunk(b"".join(b"data: " + each + b"\n\n" for each in encoded))
        await wire.event(delta(finish="stop"))
        if usage:
            await wire.event(usage_event(7, len(words)))
        await wire.done()

    return script


def as_it_is(event: Any, _: str) -> Any:
    return event


def reasoning(event: Any, word: str) -> Any:
    event["choices"][0]["delta"] = {"reasoning_content": word}
    return event


def tool_call(event: Any, word: str) -> Any:
    event["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}
    return event


def with_logprobs(event: Any, word: str) -> Any:
    event["choices"][0]["logprobs"] = {"content": [{"token": word, "logprob": -0.1, "top_logprobs": []}]}
    return event


def with_changing_head(event: Any, word: str) -> Any:
    return event | {"created": 1700000000 + len(word), "id": f"c{hash(word) % 7}"}


@pytest.mark.parametrize("continues", [True, False], ids=["kept", "unkept"])
@pytest.mark.parametrize("together", [1, 5])
@pytest.mark.parametrize("change", [as_it_is, reasoning, tool_call, with_logprobs, with_changing_head])
async def test_a_loop_is_found_however_the_stream_spells_it(rig, change, together, continues):
    await rig.add("r1", streamed(change, LOOPING, together=together), continues=continues)
    trace = await trace_of(rig, stream=True)
    assert trace.loop_begin_token is not None
    assert 0 < trace.loop_begin_token < len(LOOPING)  # of many tokens in one read nobody knows where each began
    assert trace.loop_period_tokens == pytest.approx(PERIOD, abs=1 + PERIOD // 8)
    assert trace.output_tokens == len(LOOPING)
    assert trace.ending == "complete"
    assert rig.window().looped == 1


@pytest.mark.parametrize("continues", [True, False], ids=["kept", "unkept"])
@pytest.mark.parametrize("change", [as_it_is, reasoning, with_logprobs])
async def test_an_answer_that_goes_on_is_not_counted(rig, change, continues):
    await rig.add("r1", streamed(change, STRAIGHT), continues=continues)
    trace = await trace_of(rig, stream=True)
    assert trace.loop_begin_token is None
    assert rig.window().looped == 0


async def test_the_client_of_a_looping_answer_gets_all_of_it(rig):
    await rig.add("r1", answers(LOOPING, usage=True), continues=True)
    answered = await rig.post(stream=True)
    assert answered.text == "".join(LOOPING)
    assert answered.is_whole


@pytest.mark.parametrize("text", ["好的。", "\n\n", '"\\"', "😂 ", "</think>"])
@pytest.mark.parametrize("continues", [True, False], ids=["kept", "unkept"])
async def test_escapes_and_characters_of_several_bytes_are_taken_as_they_are(rig, text, continues):
    words = [*STRAIGHT[:50], *[text] * 300]
    await rig.add("r1", answers(words), continues=continues)
    trace = await trace_of(rig, stream=True)
    assert trace.loop_begin_token is not None
    assert trace.loop_period_tokens in (1, 2, 3)


async def test_whole_answers_are_looked_at_when_they_are_there(rig):
    async def script(_: Seen, wire: Wire) -> None:
        await wire.whole(200, completion("".join(LOOPING), completion_tokens=len(LOOPING)))

    await rig.add("r1", script)
    trace = await trace_of(rig)
    assert trace.loop_begin_token is not None
    assert rig.window().looped == 1


async def test_a_completion_is_looked_at_too(rig):
    def change(event: Any, word: str) -> Any:
        event["choices"] = [{"index": 0, "text": word, "logprobs": None, "finish_reason": None}]
        return event

    await rig.add("r1", streamed(change, LOOPING), continues=True)
    trace = await trace_of(rig, path="/v1/completions", prompt="Say", stream=True)
    assert trace.loop_begin_token is not None


@pytest.mark.parametrize("body", [{"n": 2}, {"path": "/v1/completions", "prompt": ["a", "b"]}])
async def test_several_choices_come_mixed_and_are_not_looked_at(rig, body):
    await rig.add("r1", answers(LOOPING))
    trace = await trace_of(rig, stream=True, **body)
    assert trace.loop_begin_token is None


@pytest.mark.parametrize("ids", [[7], [1, 2, 3], list(range(40))])
async def test_tokens_that_show_no_text_are_told_by_their_ids(rig, ids):
    def change(event: Any, word: str) -> Any:
        number = int(word)
        event["choices"][0] |= {"delta": {"content": "" if number >= 50 else f" w{number}"}}
        event["choices"][0]["token_ids"] = [ids[number % len(ids)] if number >= 50 else 1000 + number]
        return event

    await rig.add("r1", streamed(change, [str(number) for number in range(400)]), continues=True)
    trace = await trace_of(rig, stream=True, return_token_ids=True)
    assert trace.loop_begin_token is not None
    assert trace.loop_period_tokens == pytest.approx(len(ids), abs=2)


async def test_ids_of_tokens_that_show_text_say_nothing_more(rig):
    def change(event: Any, word: str) -> Any:
        event["choices"][0]["token_ids"] = [17]
        return event

    await rig.add("r1", streamed(change, STRAIGHT), continues=True)
    assert (await trace_of(rig, stream=True, return_token_ids=True)).loop_begin_token is None


async def test_a_lane_that_wants_nothing_of_it_looks_at_nothing(rig):
    rig.lanes = (replace(CHAT, generation=GenerationSpec(loop=LoopAction.OFF)),)
    await rig.add("r1", answers(LOOPING), continues=True)
    assert (await trace_of(rig, stream=True)).loop_begin_token is None
    assert rig.window().looped == 0


async def test_a_loop_that_spans_two_replicas_is_found(rig):
    await rig.add("r1", answers(LOOPING, die_after=LEAD + 90), continues=True)
    await rig.add("r2", answers(LOOPING[LEAD + 90 :], usage=True, id_="c2"), continues=True)
    trace = await trace_of(rig, stream=True)
    assert trace.continuations in (0, 1)
    assert trace.loop_begin_token is not None


async def test_loops_are_on_the_metrics_page(rig):
    await rig.add("r1", answers(LOOPING), continues=True)
    await rig.post(stream=True)
    page = (await rig.get("/metrics")).body.decode()
    assert "# HELP fleetctl_gateway_loops_total " in page
    assert 'fleetctl_gateway_loops_total{fleet="rig",lane="chat"} 1' in page


@pytest.fixture
async def stopping():
    lane = replace(CHAT, generation=GenerationSpec(loop=LoopAction.STOP))
    async with GatewayRig(lanes=(lane,)) as made:
        yield made


@pytest.mark.parametrize("continues", [True, False], ids=["kept", "unkept"])
@pytest.mark.parametrize("change", [as_it_is, tool_call, with_logprobs, reasoning])
async def test_a_loop_is_ended_in_due_form_where_a_lane_says_so(stopping, change, continues):
    gone = []

    async def script(seen: Seen, wire: Wire) -> None:
        try:
            await streamed(change, LOOPING * 300, together=4)(seen, wire)
        except ConnectionError:
            gone.append(seen)

    await stopping.add("r1", script, continues=continues)
    answered = await stopping.post(stream=True, stream_options={"include_usage": True})
    assert answered.is_whole
    assert not answered.broke
    finishes = [c for e in answered.events if isinstance(e, dict) for c in e["choices"] if c.get("finish_reason")]
    assert [(c["finish_reason"], c["stop_reason"]) for c in finishes] == [("length", "loop")]
    [usage] = [e["usage"] for e in answered.events if isinstance(e, dict) and e.get("usage")]
    assert LEAD < usage["completion_tokens"] < 50 * len(LOOPING)
    await until(lambda: gone)
    [trace] = stopping.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    assert (trace.ending, trace.verdict, trace.bounded_by) == ("complete", "good", "loop")
    assert trace.loop_begin_token is not None
    page = (await stopping.get("/metrics")).body.decode()
    assert 'fleetctl_gateway_bounded_total{fleet="rig",lane="chat",reason="loop"} 1' in page
    assert stopping.window().looped == 1


@pytest.mark.parametrize("continues", [True, False], ids=["kept", "unkept"])
@pytest.mark.parametrize("together", [1, 7, 400])
async def test_a_loop_without_a_word_of_text_is_ended_in_due_form_too(stopping, together, continues):
    """Until an answer shows some, nothing of it is written, not even a head."""

    def change(event: Any, word: str) -> Any:
        event["choices"][0] |= {"delta": {"content": ""}, "token_ids": [int(word) % 3]}
        return event

    words = [str(number) for number in range(400)]
    await stopping.add("r1", streamed(change, words, together=together), continues=continues)
    answered = await stopping.post(stream=True, return_token_ids=True)
    assert answered.status == 200
    assert answered.headers["content-type"].startswith("text/event-stream")
    assert answered.is_whole
    finishes = [c for e in answered.events if isinstance(e, dict) for c in e["choices"] if c.get("finish_reason")]
    assert [(c["finish_reason"], c["stop_reason"]) for c in finishes] == [("length", "loop")]
    [trace] = stopping.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    assert (trace.ending, trace.bounded_by) == ("complete", "loop")


def counted_events(words: list[str], change: Callable[[Any, str], Any]) -> list[bytes]:
    """Return a whole answer's events as vLLM writes them where the gateway asked for its count with each."""
    opening: Any = delta(role=True)
    events = [opening, *(change(delta(word), word) for word in words), delta(finish="length")]
    for place, event in enumerate(events):
        generated = min(place, len(words))
        event["usage"] = {"prompt_tokens": 19, "total_tokens": 19 + generated, "completion_tokens": generated}
    encoded = (json.dumps(event | {"prompt_text": None}, separators=(",", ":")).encode() for event in events)
    return [b"data: " + event + b"\n\n" for event in encoded] + [b"data: [DONE]\n\n"]


@pytest.mark.parametrize("continues", [True, False], ids=["kept", "unkept"])
@pytest.mark.parametrize("first", [2, 120, 330])  # events that come by themselves before all others come together
@pytest.mark.parametrize("change", [as_it_is, reasoning, with_logprobs, with_changing_head])
async def test_an_answer_that_comes_all_at_once_ends_where_its_loop_is_found(stopping, change, first, continues):
    events = counted_events(LOOPING * 10, change)

    async def script(_: Seen, wire: Wire) -> None:
        await wire.begin_events()
        for event in events[:first]:
            await wire.chunk(event)
        await wire.raw(b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events[first:]) + b"0\r\n\r\n")

    await stopping.add("r1", script, continues=continues)
    answered = await stopping.post(stream=True)
    assert answered.is_whole
    [trace] = stopping.frontend.ended.find(TraceQuery(id=answered.headers["x-request-id"])).requests
    assert trace.bounded_by == "loop"
    assert LEAD + 160 <= trace.output_tokens <= max(first, LEAD + 160) + 80
    assert trace.loop_begin_token == pytest.approx(LEAD, abs=40)


async def test_a_stream_that_is_no_longer_kept_is_counted_by_its_events(stopping):
    """After what could not be told back to an engine, the engine's count of before says nothing more."""

    words = [*STRAIGHT[:60], *["a"] * 600]
    changes = iter([as_it_is] * 20 + [with_logprobs] + [with_changing_head] * (len(words) - 21))

    def change(event: Any, word: str) -> Any:
        return next(changes)(event, word)

    events = counted_events(words, change)

    async def script(_: Seen, wire: Wire) -> None:
        await wire.begin_events()
        for event in events:
            await wire.chunk(event)
        await wire.end()

    await stopping.add("r1", script, continues=True)
    trace = await trace_of(stopping, stream=True)
    assert trace.bounded_by == "loop"
    assert trace.output_tokens < 60 + 220


async def test_what_goes_on_is_not_ended(stopping):
    await stopping.add("r1", answers(STRAIGHT, usage=True), continues=True)
    answered = await stopping.post(stream=True)
    assert answered.text == "".join(STRAIGHT)
    assert answered.is_whole


async def test_an_ended_loop_counts_as_the_lane_says(stopping):
    stopping.change_lane("chat", generation=GenerationSpec(loop=LoopAction.STOP, capped_is=CappedIs.BAD))
    await stopping.add("r1", answers(LOOPING * 50), continues=True)
    assert (await trace_of(stopping, stream=True)).verdict == "capped"
    assert stopping.window().breached == {"capped": 1}


async def test_a_whole_answer_is_only_looked_at(stopping):
    async def script(_: Seen, wire: Wire) -> None:
        await wire.whole(200, completion("".join(LOOPING), completion_tokens=len(LOOPING)))

    await stopping.add("r1", script)
    trace = await trace_of(stopping)
    assert (trace.ending, trace.bounded_by) == ("complete", "")
    assert trace.loop_begin_token is not None


async def test_streams_of_several_choices_under_a_clock_pass(stopping):
    stopping.change_lane("chat", generation=GenerationSpec(loop=LoopAction.STOP, max_duration_s=60.0))
    await stopping.add("r1", answers(LOOPING))
    answered = await stopping.post(stream=True, n=2)
    assert answered.text == "".join(LOOPING)
