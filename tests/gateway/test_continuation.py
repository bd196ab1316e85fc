"""Streams whose replica dies under them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.dispatch.limits import DispatchLimits
from tests.gateway.rig import CHAT, LIMITS, GatewayRig, until
from tests.gateway.scripted import Script, answers, delta, rejects, usage_event

WORDS = ["one ", "two ", "three ", "four ", "five "]


def goes_on(*, usage: bool = False) -> Script:
    """Is an engine that knows continue_final_message: sends the words that were not sent yet."""

    async def script(seen, wire):
        last = seen.body["messages"][-1]
        already_sent = last["content"] if last["role"] == "assistant" else ""
        assert bool(already_sent) is bool(seen.body.get("continue_final_message"))
        rest = [("" if i or not already_sent else " ") + w for i, w in enumerate(WORDS[len(already_sent.split()) :])]
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


async def stream_and_lose(rig: GatewayRig, *, after: int = 2, other: Script | None = None, **body: Any) -> Any:
    """Ask so that the first replica is taken, and lose it after so many words."""
    await rig.add("lost", answers(WORDS, die_after=after))
    response = asyncio.create_task(rig.post(stream=True, **body))
    await until(lambda: rig.replicas[0].seen)
    if other is not None:
        await rig.add("other", other)
    return await response


async def test_a_lost_stream_goes_on_elsewhere_as_one_answer(rig):
    answer = await stream_and_lose(
        rig, other=goes_on(usage=True), max_tokens=50, stream_options={"include_usage": True}
    )
    assert answer.status == 200
    assert answer.text == "one two three four five "
    assert answer.is_whole
    events = [e for e in answer.events if e != "[DONE]"]
    assert {e["id"] for e in events} == {"c1"}
    roles = [c for e in events for c in e["choices"] if "role" in c["delta"]]
    assert len(roles) == 1
    assert events[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    body = rig.replicas[1].seen[0].body
    assert body["messages"][-1] == {"role": "assistant", "content": "one two"}
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
    assert body["max_tokens"] == 48
    window = rig.window()
    assert (window.finished, window.good, window.output_tokens) == (1, 1, 5)


async def test_a_stream_lost_twice_goes_on_twice_and_not_more():
    async with GatewayRig(limits=replace(LIMITS, dispatch=DispatchLimits(continuations_max=1))) as rig:
        answer = await stream_and_lose(rig, other=answers(["three "], die_after=1))
        assert answer.text == "one two three "
        assert not answer.is_whole
        assert "error" in answer.events[-1]
        assert rig.window().breached == {"incomplete": 1}


async def test_a_stream_lost_before_its_first_word_starts_over_without_a_second_role(rig):
    answer = await stream_and_lose(rig, after=0, other=goes_on())
    assert answer.text == "".join(WORDS)
    assert answer.is_whole
    assert "continue_final_message" not in rig.replicas[1].seen[0].body
    assert sum("role" in c["delta"] for e in answer.events[:-1] for c in e["choices"]) == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"n": 2},
        {"logprobs": True},
        {"guided_regex": "a+"},
    ],
)
async def test_whatever_is_lost_before_its_first_word_starts_over(rig, options):
    answer = await stream_and_lose(rig, after=0, other=answers(WORDS), **options)
    assert (answer.status, answer.text, answer.is_whole) == (200, "".join(WORDS), True)
    assert answer.headers["x-fleetctl-replica"] == "other"
    assert sum("role" in c["delta"] for e in answer.events[:-1] for c in e["choices"]) == 1
    assert rig.window().good == 1


async def test_a_lost_stream_waits_for_a_replica_to_come(rig):
    await rig.add("lost", answers(WORDS, die_after=2))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 1)
    await rig.add("new", goes_on())
    answer = await response
    assert answer.text == "".join(WORDS)
    assert answer.is_whole


async def test_only_engines_that_can_are_asked_to_go_on(rig):
    await rig.add("lost", answers(WORDS, die_after=2, gap_s=0.05))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.replicas[0].seen)
    tgi = await rig.add("tgi", goes_on(), continues=False)
    await rig.add("vllm", goes_on())
    assert (await response).is_whole
    assert not tgi.seen


@pytest.mark.parametrize(
    "unlawful",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"logprobs": True},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"guided_regex": "a+"},
        {"include_stop_str_in_output": True, "stop": "five"},
    ],
)
async def test_where_going_on_is_unlawful_the_stream_ends_with_an_error_and_no_done(rig, unlawful):
    answer = await stream_and_lose(rig, other=goes_on(), **unlawful)
    assert answer.status == 200
    assert answer.text == "one two "
    error = answer.events[-1]["error"]
    assert error["type"] == "server_error"
    assert (
        f"cannot go on elsewhere: its request has {'a ' * ('response_format' in unlawful)}`{next(iter(unlawful))}`"
        in (error["message"])
    )
    assert not answer.is_whole
    assert not answer.broke
    assert not rig.replicas[1].seen
    assert rig.window().breached == {"incomplete": 1}


async def test_too_long_a_stream_to_remember_is_not_continued():
    async with GatewayRig(limits=replace(LIMITS, text_bytes_per_token_max=2, output_tokens_max=4)) as rig:
        answer = await stream_and_lose(rig, after=4, other=goes_on())
        assert not answer.is_whole


async def test_what_is_kept_of_a_stream_follows_what_its_lane_holds():
    lane = replace(CHAT, max_model_len=8)
    async with GatewayRig(lanes=(lane,), limits=replace(LIMITS, text_bytes_per_token_max=2)) as rig:
        answer = await stream_and_lose(rig, after=4, other=goes_on())
        assert "more of it than is kept" in answer.events[-1]["error"]["message"]


async def test_an_abort_that_ends_with_done_but_no_finish_reason_is_a_loss(rig):
    async def aborts(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta(role=True))
        await wire.event(delta("one "))
        await wire.done()

    await rig.add("stopping", aborts)
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("other", goes_on())
    answer = await response
    assert answer.text == "".join(WORDS)
    assert answer.events.count("[DONE]") == 1


async def test_an_error_event_in_mid_stream_is_a_loss(rig):
    async def breaks(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("one "))
        await wire.event(
            {"error": {"message": "engine dead", "type": "InternalServerError", "param": None, "code": 500}}
        )
        await wire.done()

    await rig.add("breaking", breaks)
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("other", goes_on())
    answer = await response
    assert answer.text == "".join(WORDS)
    assert not any("error" in e for e in answer.events)


async def test_a_stall_in_mid_stream_is_a_loss(rig):
    async def stalls(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("one "))
        await asyncio.Event().wait()

    await rig.add("stalling", stalls)
    rig.apply(stall_timeout_s=0.3)
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("other", goes_on())
    assert (await response).text == "".join(WORDS)


async def test_a_finished_answer_that_lacks_only_its_end_is_whole(rig):
    async def nearly(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("all"))
        await wire.event(delta(finish="stop"))
        wire.die()

    await rig.add("r1", nearly)
    answer = await rig.post(stream=True)
    assert answer.text == "all"
    assert answer.is_whole
    assert rig.window().good == 1


async def test_an_answer_lost_at_its_very_length_is_ended_here(rig):
    answer = await stream_and_lose(rig, after=3, other=goes_on(), max_tokens=3)
    assert answer.text == "one two three "
    assert answer.events[-2]["choices"][0]["finish_reason"] == "length"
    assert answer.is_whole
    assert not rig.replicas[1].seen


async def test_a_refused_continuation_is_offered_to_the_next(rig):
    attempts = []

    async def refuses_first(seen, wire):
        attempts.append(seen)
        await (rejects(503) if len(attempts) == 1 else goes_on())(seen, wire)

    await rig.add("lost", answers(WORDS, die_after=2, gap_s=0.1))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("r1", refuses_first)
    await rig.add("r2", refuses_first)
    answer = await response
    assert answer.text == "".join(WORDS)
    assert answer.is_whole
    assert [len(r.seen) for r in rig.replicas] == [1, 1, 1]


async def test_a_lost_completion_goes_on_from_its_text(rig):
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

    await rig.add("lost", loses)
    response = asyncio.create_task(rig.post("/v1/completions", prompt="Say: ", stream=True))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("other", goes)
    answer = await response
    assert answer.text == "abc"
    assert {e["id"] for e in answer.events[:-1]} == {"p1"}
    assert answer.is_whole


async def test_every_stream_of_a_killed_replica_survives(rig):
    words = [f"w{i} " for i in range(40)]

    async def slow_continuer(seen, wire):
        last = seen.body["messages"][-1]
        already_sent = last["content"].split() if last["role"] == "assistant" else []
        await wire.begin_events()
        await wire.event(delta(role=True))
        for word in words[len(already_sent) :]:
            await wire.event(delta(word))
            await SYSTEM_CLOCK.sleep(0.01)
        await wire.event(delta(finish="stop"))
        await wire.done()

    for i in range(3):
        await rig.add(f"r{i}", slow_continuer)
    responses = [asyncio.create_task(rig.post(stream=True)) for _ in range(30)]
    await until(lambda: rig.window().output_tokens > 200)
    await rig.replicas[0].stop()
    found = await asyncio.gather(*responses)
    assert all(a.is_whole for a in found)
    assert {a.text for a in found} == {"".join(words)}
    lost = len(rig.replicas[0].seen)
    assert 8 <= lost <= 12
    assert sum(len(r.seen) for r in rig.replicas) == 30 + lost


async def test_a_long_whole_answer_that_is_lost_is_cut_not_ended(rig):
    async def loses(seen, wire):
        del seen
        await wire.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9000000\r\n\r\n" + b"x" * 3_000_000
        )
        wire.die()

    await rig.add("r1", loses)
    answer = await rig.post()
    assert answer.broke


@pytest.mark.parametrize("max_wait_s", [0.5, 1800.0])
async def test_a_stream_that_no_replica_of_its_lane_could_continue_ends_at_once(max_wait_s):
    async with GatewayRig(lanes=(replace(CHAT, max_wait_s=max_wait_s),)) as rig:
        await rig.add("tgi-1", answers(WORDS, die_after=2, gap_s=0.05), continues=False)
        response = asyncio.create_task(rig.post(stream=True))
        await until(lambda: rig.replicas[0].seen)
        beside = await rig.add("tgi-2", continues=False)
        async with asyncio.timeout(2.0):  # a displaced request may wait 5 s in this rig
            answer = await response
        assert answer.text == "one two "
        assert answer.events[-1]["error"]["type"] == "server_error"
        assert not answer.is_whole
        assert not beside.seen
        assert rig.window().breached == {"incomplete": 1}


async def test_a_stream_waiting_to_go_on_ends_when_its_lanes_engines_no_longer_can(rig):
    await rig.add("lost", answers(WORDS, die_after=2))
    response = asyncio.create_task(rig.post(stream=True))
    await until(lambda: rig.frontend.snapshot(1).lanes[0].queued == 1)
    lost = rig.replicas.pop()
    rig.apply()
    assert not response.done()  # a replacement may be of the same kind
    await rig.add("tgi", continues=False)
    async with asyncio.timeout(2.0):
        answer = await response
    assert "error" in answer.events[-1]
    assert not answer.is_whole
    await lost.stop()


async def test_a_lost_stream_of_unreadable_bytes_ends_with_an_error(rig):
    async def garbles(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta("one "))
        await wire.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n')
        wire.die()

    await rig.add("r1", garbles)
    await rig.add("r2", garbles)
    async with asyncio.timeout(2.0):
        answer = await rig.post(stream=True)
    assert b'"error"' in answer.body
    assert b"[DONE]" not in answer.body


def counts(event: Any, tokens: int, *, prompt: int = 7) -> Any:
    """An event with the engine's own count of all tokens so far."""
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return event | {"usage": usage}


async def lose_counted(rig: GatewayRig, events: list[Any], other: Script, **body: Any) -> Any:
    """Ask so that a replica sends these events and dies; another one goes on."""

    async def loses(seen, wire):
        assert seen.body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
        await wire.begin_events()
        for event in events:
            await wire.event(event)
        await SYSTEM_CLOCK.sleep(0.1)
        wire.die()

    await rig.add("lost", loses)
    response = asyncio.create_task(rig.post(stream=True, **body))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("other", other)
    return await response


async def test_tokens_are_counted_as_the_engine_counts_them_not_by_events(rig):
    """Eleven tokens came in three events, two of them bytes of a character that is not whole yet."""
    sent = [
        counts(delta(role=True), 0), counts(delta("several words "), 8), counts(delta("日"), 9), counts(delta(""), 11)
    ]  # fmt: skip

    async def goes(seen, wire):
        assert (seen.body["max_tokens"], seen.body["min_tokens"]) == (9, 4)
        assert seen.body["messages"][-1]["content"] == "several words 日"
        await wire.begin_events()
        await wire.event(counts(delta(role=True, id_="c2"), 0, prompt=15))
        await wire.event(counts(delta("本", id_="c2"), 4, prompt=15))
        await wire.event(counts(delta("", finish="length", id_="c2"), 9, prompt=15))
        await wire.event(usage_event(15, 9, id_="c2"))
        await wire.done()

    options = {"include_usage": True}
    answer = await lose_counted(rig, sent, goes, max_tokens=20, min_tokens=15, stream_options=options)
    assert answer.text == "several words 日本"
    assert answer.is_whole
    events = answer.events[:-1]
    assert {event["id"] for event in events} == {"c1"}
    assert [event["usage"] for event in events if event.get("usage")] == [
        {"prompt_tokens": 7, "completion_tokens": 20, "total_tokens": 27}
    ]
    assert [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]] == ["length"]
    assert rig.window().output_tokens == 20


async def test_an_answer_lost_at_its_very_length_is_ended_with_its_usage(rig):
    sent = [counts(delta("all of it"), 5)]
    options = {"include_usage": True}
    answer = await lose_counted(rig, sent, goes_on(), max_tokens=5, stream_options=options)
    assert answer.events[-3]["choices"][0]["finish_reason"] == "length"
    assert answer.events[-2]["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert answer.is_whole
    assert not rig.replicas[1].seen


async def test_an_answer_that_lacks_only_its_usage_gets_it(rig):
    sent = [counts(delta("all"), 2), counts(delta("", finish="stop"), 3)]
    answer = await lose_counted(rig, sent, goes_on(), stream_options={"include_usage": True})
    assert answer.events[-2]["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert answer.is_whole


@pytest.mark.parametrize("has_finish", [True, False])
async def test_a_usage_that_only_the_end_would_have_told_is_counted_by_another_replica(rig, has_finish):
    """As of an engine that counts at the end alone: its last event has the last token and, if it came, the finish."""

    async def nearly(seen, wire):
        del seen
        await wire.begin_events()
        for word in WORDS[:-1]:
            await wire.event(delta(word))
        await wire.event(delta(WORDS[-1], finish="length" if has_finish else None))
        wire.die()

    async def counts_prompt(seen, wire):
        assert seen.body["max_tokens"] == 1
        assert "min_tokens" not in seen.body
        assert seen.body["messages"][-1]["role"] == "user"
        await wire.begin_events()
        await wire.event(delta("other", finish="length", id_="c2"))
        await wire.event(usage_event(7, 1, id_="c2"))
        await wire.done()

    await rig.add("lost", nearly)
    body = {"max_tokens": 5, "min_tokens": 5, "stream_options": {"include_usage": True}}
    response = asyncio.create_task(rig.post(stream=True, **body))
    await until(lambda: rig.replicas[0].seen)
    await rig.add("other", counts_prompt)
    answer = await response
    assert answer.text == "".join(WORDS)
    events = answer.events[:-1]
    assert answer.events.count("[DONE]") == 1
    assert [e["usage"] for e in events if e.get("usage")] == [
        {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    ]
    assert [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]] == ["length"]
    assert {e["id"] for e in events} == {"c1"}
    assert rig.window().good == 1


async def test_a_stop_string_across_the_seam_ends_the_answer(rig):
    cancelled = asyncio.Event()

    async def runs_past(seen, wire):
        await wire.begin_events()
        await wire.event(counts(delta(role=True), 0, prompt=9))
        for number, piece in enumerate(["\n", "\n", "User", ":", " more", " and more"]):
            await wire.event(counts(delta(piece), number + 1, prompt=9))
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    sent = [counts(delta("Bye."), 2), counts(delta("\n"), 3)]
    options = {"include_usage": True}
    async with asyncio.timeout(5.0):
        answer = await lose_counted(rig, sent, runs_past, stop=["END", "\n\nUser:"], stream_options=options)
        await cancelled.wait()
    # The first line break had gone out before anybody knew that it begins a stop string; the engine says it again.
    assert answer.text == "Bye.\n"
    assert answer.events[-3]["choices"][0]["finish_reason"] == "stop"
    assert answer.is_whole


async def test_a_stream_that_is_not_kept_has_the_usage_its_client_with_usage(rig):
    await rig.add("r1", answers(["a", "b"], usage=True))
    with_usage = {"include_usage": True}
    answer = await rig.post(
        stream=True, stream_options=with_usage, tools=[{"type": "function", "function": {"name": "f"}}]
    )
    assert [e["usage"]["completion_tokens"] for e in answer.events if e != "[DONE]" and e.get("usage")] == [2]
