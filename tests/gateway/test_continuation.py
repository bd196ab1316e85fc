"""Streams whose replica dies under them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.dispatch.limits import DispatchLimits
from tests.gateway.scripted import Script, answers, delta, rejects, usage_event
from tests.gateway.stage import CHAT, LIMITS, Stage, until

WORDS = ["one ", "two ", "three ", "four ", "five "]


def goes_on(*, usage: bool = False) -> Script:
    """Is an engine that knows continue_final_message: says the words that are not said yet."""

    async def script(seen, wire):
        last = seen.body["messages"][-1]
        said = last["content"] if last["role"] == "assistant" else ""
        assert bool(said) is bool(seen.body.get("continue_final_message"))
        rest = [w for i, w in enumerate(WORDS) if len("".join(WORDS[: i + 1])) > len(said)]
        rest = rest[: seen.body.get("max_tokens", 99)]
        await wire.begin_events()
        await wire.event(delta(role=True, id_="c2"))
        for word in rest:
            await wire.event(delta(word, id_="c2"))
        await wire.event(delta(finish="stop", id_="c2"))
        if usage:
            await wire.event(usage_event(7 + len(WORDS) - len(rest), len(rest), id_="c2"))
        await wire.done()

    return script


async def lose_and_ask(stage: Stage, *, after: int = 2, other: Script | None = None, **body: Any) -> Any:
    """Ask so that the first replica is taken, and lose it after so many words."""
    await stage.add("lost", answers(WORDS, die_after=after))
    asking = asyncio.create_task(stage.ask(stream=True, **body))
    await until(lambda: stage.replicas[0].seen)
    if other is not None:
        await stage.add("other", other)
    return await asking


async def test_a_lost_stream_goes_on_elsewhere_as_one_answer(stage):
    answer = await lose_and_ask(stage, other=goes_on(usage=True), max_tokens=50, stream_options={"include_usage": True})
    assert answer.status == 200
    assert answer.text == "one two three four five "
    assert answer.is_whole
    events = [e for e in answer.events if e != "[DONE]"]
    assert {e["id"] for e in events} == {"c1"}
    roles = [c for e in events for c in e["choices"] if "role" in c["delta"]]
    assert len(roles) == 1
    assert events[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    asked = stage.replicas[1].seen[0].body
    assert asked["messages"][-1] == {"role": "assistant", "content": "one two "}
    assert asked["continue_final_message"] is True
    assert asked["add_generation_prompt"] is False
    assert asked["max_tokens"] == 48
    window = stage.window()
    assert (window.finished, window.good, window.output_tokens) == (1, 1, 5)


async def test_a_stream_lost_twice_goes_on_twice_and_not_more():
    async with Stage(limits=replace(LIMITS, dispatch=DispatchLimits(continuations_max=1))) as stage:
        answer = await lose_and_ask(stage, other=answers(["three "], die_after=1))
        assert answer.text == "one two three "
        assert not answer.is_whole
        assert "error" in answer.events[-1]
        assert stage.window().breached == {"incomplete": 1}


async def test_a_stream_lost_before_its_first_word_starts_over_without_a_second_role(stage):
    answer = await lose_and_ask(stage, after=0, other=goes_on())
    assert answer.text == "".join(WORDS)
    assert answer.is_whole
    assert "continue_final_message" not in stage.replicas[1].seen[0].body
    assert sum("role" in c["delta"] for e in answer.events[:-1] for c in e["choices"]) == 1


async def test_a_lost_stream_waits_for_a_replica_to_come(stage):
    await stage.add("lost", answers(WORDS, die_after=2))
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.frontend.snapshot(1).lanes[0].queued == 1)
    await stage.add("new", goes_on())
    answer = await asking
    assert answer.text == "".join(WORDS)
    assert answer.is_whole


async def test_only_engines_that_can_are_asked_to_go_on(stage):
    await stage.add("lost", answers(WORDS, die_after=2, gap_s=0.05))
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.replicas[0].seen)
    tgi = await stage.add("tgi", goes_on(), continues=False)
    await stage.add("vllm", goes_on())
    assert (await asking).is_whole
    assert not tgi.seen


@pytest.mark.parametrize(
    "unlawful",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"logprobs": True},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"guided_regex": "a+"},
        {"stream_options": {"continuous_usage_stats": True, "include_usage": True}},
    ],
)
async def test_where_going_on_is_unlawful_the_stream_ends_with_an_error_and_no_done(stage, unlawful):
    answer = await lose_and_ask(stage, other=goes_on(), **unlawful)
    assert answer.status == 200
    assert answer.text == "one two "
    assert answer.events[-1]["error"]["type"] == "server_error"
    assert not answer.is_whole
    assert not answer.broke
    assert not stage.replicas[1].seen
    assert stage.window().breached == {"incomplete": 1}


async def test_too_long_a_stream_to_remember_is_not_continued():
    async with Stage(limits=replace(LIMITS, transcript_bytes_max=300)) as stage:
        answer = await lose_and_ask(stage, after=4, other=goes_on())
        assert not answer.is_whole


async def test_an_abort_that_ends_with_done_but_no_finish_reason_is_a_loss(stage):
    async def aborts(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta(role=True))
        await wire.event(delta("one "))
        await wire.done()

    await stage.add("stopping", aborts)
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.replicas[0].seen)
    await stage.add("other", goes_on())
    answer = await asking
    assert answer.text == "".join(WORDS)
    assert answer.events.count("[DONE]") == 1


async def test_an_error_event_in_mid_stream_is_a_loss(stage):
    async def breaks(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("one "))
        await wire.event(
            {"error": {"message": "engine dead", "type": "InternalServerError", "param": None, "code": 500}}
        )
        await wire.done()

    await stage.add("breaking", breaks)
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.replicas[0].seen)
    await stage.add("other", goes_on())
    answer = await asking
    assert answer.text == "".join(WORDS)
    assert not any("error" in e for e in answer.events)


async def test_a_stall_in_mid_stream_is_a_loss(stage):
    async def stalls(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("one "))
        await asyncio.Event().wait()

    await stage.add("stalling", stalls)
    stage.apply(stall_timeout_s=0.3)
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.replicas[0].seen)
    await stage.add("other", goes_on())
    assert (await asking).text == "".join(WORDS)


async def test_a_finished_answer_that_lacks_only_its_end_is_whole(stage):
    async def nearly(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("all"))
        await wire.event(delta(finish="stop"))
        wire.die()

    await stage.add("r1", nearly)
    answer = await stage.ask(stream=True)
    assert answer.text == "all"
    assert answer.is_whole
    assert stage.window().good == 1


async def test_an_answer_lost_at_its_very_length_is_ended_here(stage):
    answer = await lose_and_ask(stage, after=3, other=goes_on(), max_tokens=3)
    assert answer.text == "one two three "
    assert answer.events[-2]["choices"][0]["finish_reason"] == "length"
    assert answer.is_whole
    assert not stage.replicas[1].seen


async def test_a_refused_continuation_is_offered_to_the_next(stage):
    asked = []

    async def refuses_first(seen, wire):
        asked.append(seen)
        await (rejects(503) if len(asked) == 1 else goes_on())(seen, wire)

    await stage.add("lost", answers(WORDS, die_after=2, gap_s=0.1))
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.replicas[0].seen)
    await stage.add("r1", refuses_first)
    await stage.add("r2", refuses_first)
    answer = await asking
    assert answer.text == "".join(WORDS)
    assert answer.is_whole
    assert [len(r.seen) for r in stage.replicas] == [1, 1, 1]


async def test_a_lost_completion_goes_on_from_its_text(stage):
    def piece(text: str, finish: str | None = None) -> Any:
        return {
            "id": "p1",
            "object": "text_completion",
            "choices": [{"index": 0, "text": text, "finish_reason": finish}],
        }

    async def loses(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(piece("a"))
        await wire.event(piece("b"))
        await SYSTEM_CLOCK.sleep(0.2)
        wire.die()

    async def goes(seen, wire):
        assert seen.body["prompt"] == "Say: ab"
        assert seen.body["max_tokens"] == 14  # of OpenAI's default, 16
        await wire.begin_events()
        await wire.event(piece("c") | {"id": "p2"})
        await wire.event(piece("", "stop") | {"id": "p2"})
        await wire.done()

    await stage.add("lost", loses)
    asking = asyncio.create_task(stage.ask("/v1/completions", prompt="Say: ", stream=True))
    await until(lambda: stage.replicas[0].seen)
    await stage.add("other", goes)
    answer = await asking
    assert answer.text == "abc"
    assert {e["id"] for e in answer.events[:-1]} == {"p1"}
    assert answer.is_whole


async def test_every_stream_of_a_killed_replica_survives(stage):
    words = [f"w{i} " for i in range(40)]

    async def slow_continuer(seen, wire):
        last = seen.body["messages"][-1]
        said = last["content"].split() if last["role"] == "assistant" else []
        await wire.begin_events()
        await wire.event(delta(role=True))
        for word in words[len(said) :]:
            await wire.event(delta(word))
            await SYSTEM_CLOCK.sleep(0.01)
        await wire.event(delta(finish="stop"))
        await wire.done()

    for i in range(3):
        await stage.add(f"r{i}", slow_continuer)
    asking = [asyncio.create_task(stage.ask(stream=True)) for _ in range(30)]
    await until(lambda: stage.window().output_tokens > 200)
    await stage.replicas[0].stop()
    found = await asyncio.gather(*asking)
    assert all(a.is_whole for a in found)
    assert {a.text for a in found} == {"".join(words)}
    assert sum(len(r.seen) for r in stage.replicas) == 40


async def test_a_long_whole_answer_that_is_lost_is_cut_not_ended(stage):
    async def loses(seen, wire):
        del seen
        await wire.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9000000\r\n\r\n" + b"x" * 3_000_000
        )
        wire.die()

    await stage.add("r1", loses)
    answer = await stage.ask()
    assert answer.broke


@pytest.mark.parametrize("max_wait_s", [0.5, 1800.0])
async def test_a_stream_that_no_replica_of_its_lane_could_continue_ends_at_once(max_wait_s):
    async with Stage(lanes=(replace(CHAT, max_wait_s=max_wait_s),)) as stage:
        await stage.add("tgi-1", answers(WORDS, die_after=2, gap_s=0.05), continues=False)
        asking = asyncio.create_task(stage.ask(stream=True))
        await until(lambda: stage.replicas[0].seen)
        beside = await stage.add("tgi-2", continues=False)
        async with asyncio.timeout(2.0):  # a displaced request may wait 5 s on this stage
            answer = await asking
        assert answer.text == "one two "
        assert answer.events[-1]["error"]["type"] == "server_error"
        assert not answer.is_whole
        assert not beside.seen
        assert stage.window().breached == {"incomplete": 1}


async def test_a_stream_waiting_to_go_on_ends_when_its_lanes_engines_no_longer_can(stage):
    await stage.add("lost", answers(WORDS, die_after=2))
    asking = asyncio.create_task(stage.ask(stream=True))
    await until(lambda: stage.frontend.snapshot(1).lanes[0].queued == 1)
    lost = stage.replicas.pop()
    stage.apply()
    assert not asking.done()  # a replacement may be of the same kind
    await stage.add("tgi", continues=False)
    async with asyncio.timeout(2.0):
        answer = await asking
    assert "error" in answer.events[-1]
    assert not answer.is_whole
    await lost.stop()


async def test_a_lost_stream_of_unreadable_bytes_ends_with_an_error(stage):
    async def garbles(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("one "))
        await wire.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n')
        wire.die()

    await stage.add("r1", garbles)
    await stage.add("r2", garbles)
    async with asyncio.timeout(2.0):
        answer = await stage.ask(stream=True)
    assert b'"error"' in answer.body
    assert b"[DONE]" not in answer.body
