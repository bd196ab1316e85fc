"""Bounds of answers, through real sockets: what replicas are asked for, how answers end, and what clients are told."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.admission.keys import scrypt_hash
from fleetctl.gateway.running import running_answers
from fleetctl.model.generation import BoundReason, CappedIs, GenerationSpec
from fleetctl.model.ladder import LadderStep
from fleetctl.model.request_trace import TraceQuery
from fleetctl.model.tiers import TierSpec, route_tiers
from tests.gateway.rig import CHAT, GatewayRig, until
from tests.gateway.scripted import answers, completion, delta, hangs, usage_event

if TYPE_CHECKING:
    from tests.gateway.scripted import Seen, Wire

TIMED = GenerationSpec(max_duration_s=0.3)
COUNTED = {"include_usage": True, "continuous_usage_stats": True}


async def endless(seen: Seen, wire: Wire) -> None:
    """Streams until it is told to stop, and says nothing to who asked for no stream."""
    if seen.body.get("stream"):
        await wire.begin_events()
        await wire.event(delta(role=True))
        while not wire.writer.transport.is_closing():
            await wire.event(delta("w"))
            await SYSTEM_CLOCK.sleep(0.01)
    await asyncio.Event().wait()


def bounded(spec: GenerationSpec, **changes: Any) -> GatewayRig:
    return GatewayRig(lanes=(replace(CHAT, generation=spec, **changes),))


def counts(rig: GatewayRig) -> dict[str, int]:
    lane = rig.frontend.dispatcher.routes.lanes["chat"]
    return {reason.value: count for reason, count in lane.bounded.items()}


async def sent(rig: GatewayRig, path: str = "/v1/chat/completions", **body: Any) -> tuple[Any, Any]:
    """Return what the replica was asked for, and the answer."""
    answer = await rig.post(path, **body)
    return rig.replicas[0].seen[-1].body, answer


# Lengths.


@pytest.mark.parametrize("given", [{}, {"max_tokens": None}, {"max_completion_tokens": None, "max_tokens": None}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_request_that_names_no_length_gets_the_default(given, path):
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096)) as rig:
        await rig.add("r1")
        body, answer = await sent(rig, path, prompt="Hi", **given)
        assert body["max_tokens"] == 512
        assert answer.headers["x-fleetctl-limit"] == "default_max_tokens=512"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_tokens": 9000}, {"max_tokens": 4096}),
        ({"max_completion_tokens": 9000}, {"max_completion_tokens": 4096}),
        ({"max_completion_tokens": 9000, "max_tokens": 70}, {"max_completion_tokens": 4096, "max_tokens": 70}),
        ({"max_tokens": 9000, "min_tokens": 5000}, {"max_tokens": 4096, "min_tokens": 4096}),
        ({"max_tokens": 9000, "n": 2}, {"max_tokens": 4096, "n": 2}),
    ],
)
async def test_a_request_for_more_than_the_maximum_is_answered_up_to_it(given, expected):
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096)) as rig:
        await rig.add("r1")
        body, answer = await sent(rig, **given)
        assert {key: body[key] for key in expected} == expected
        assert answer.headers["x-fleetctl-limit"] == "max_tokens=4096"


async def test_a_request_within_the_maximum_is_sent_on_as_it_came():
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096)) as rig:
        await rig.add("r1")
        body, answer = await sent(rig, max_tokens=4096)
        assert body["max_tokens"] == 4096
        assert "x-fleetctl-limit" not in answer.headers


async def test_without_a_default_the_maximum_is_one():
    async with bounded(GenerationSpec(max_tokens=64)) as rig:
        await rig.add("r1")
        body, answer = await sent(rig)
        assert body["max_tokens"] == 64
        assert answer.headers["x-fleetctl-limit"] == "max_tokens=64"


async def test_what_a_client_insists_on_raises_the_default_up_to_the_maximum():
    async with bounded(GenerationSpec(default_max_tokens=16, max_tokens=40)) as rig:
        await rig.add("r1")
        assert (await sent(rig, min_tokens=30))[0]["max_tokens"] == 30
        assert (await sent(rig, min_tokens=90))[0]["max_tokens"] == 40


async def test_a_default_that_the_prompt_leaves_no_room_for_is_left_to_the_engine():
    async with bounded(GenerationSpec(default_max_tokens=512), max_model_len=600) as rig:
        await rig.add("r1", max_model_len=600)
        body, answer = await sent(rig, messages=[{"role": "user", "content": "word " * 160}])
        assert "max_tokens" not in body
        assert "x-fleetctl-limit" not in answer.headers


@pytest.mark.parametrize("wrong", [0, -5, 5000.5, 1e12, "x", True, [3]])
@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
async def test_what_is_no_length_is_refused_before_an_engine_could_take_it_for_none(key, wrong):
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096)) as rig:
        await rig.add("r1")
        answer = await rig.post(**{key: wrong})
        assert answer.status == 400
        assert f"`{key}` must be a whole number of tokens" in answer.json["error"]["message"]
        assert rig.replicas[0].seen == []
        assert "x-request-id" in answer.headers


@pytest.mark.parametrize("body", [
    b'"max_tokens": 2.5', b'"max_tokens": 5.0', b'"max_tokens": 2e1', b'"max_tokens": "5"', b'"max_tokens": false',
    b'"max_tokens": 5, "max_completion_tokens": 0', b'"max_tokens": 5, "max_completion_tokens": false',
    b'"max_completion_tokens": 5, "max_tokens": 0', b'"max_completion_tokens": 5, "max_tokens": "many"',
    b'"max_tokens": 5, "max_completion_t\\u006fkens": 0', b'"max_tokens": 5, "max_tokens": 0',
])  # fmt: skip
async def test_a_length_within_the_bounds_that_is_no_whole_number_passes_neither_by_itself_nor_beside_another(body):
    async with bounded(GenerationSpec(max_tokens=4096)) as rig:
        await rig.add("r1")
        payload = b'{"messages": [{"role": "user", "content": "Hi"}], %b}' % body
        async with rig.http.post(f"{rig.url}/v1/chat/completions", data=payload) as answer:
            assert answer.status == 400
            message = (await answer.json())["error"]["message"]
        assert "must be a whole number of tokens, 1 or more, not " in message
        assert rig.replicas[0].seen == []


async def test_the_refusal_of_a_length_names_what_it_is_and_cuts_it_short():
    async with bounded(GenerationSpec(max_tokens=64)) as rig:
        await rig.add("r1")
        message = (await rig.post(max_tokens="5" * 500)).json["error"]["message"]
        assert (
            f'`max_tokens` must be a whole number of tokens, 1 or more, not "{"5" * 39}...: send such a number'
            in message
        )


async def test_two_lengths_within_the_bounds_are_sent_on_as_they_came():
    async with bounded(GenerationSpec(max_tokens=64)) as rig:
        await rig.add("r1")
        body, answer = await sent(rig, max_tokens=7, max_completion_tokens=9)
        assert (body["max_tokens"], body["max_completion_tokens"]) == (7, 9)
        assert "x-fleetctl-limit" not in answer.headers


async def test_lanes_without_bounds_leave_everything_to_the_engine(rig):
    await rig.add("r1")
    body, answer = await sent(rig, max_tokens=0, stop="x")
    assert (body["max_tokens"], body["stop"]) == (0, "x")
    assert "x-fleetctl-limit" not in answer.headers


async def test_a_request_enters_the_lane_that_holds_it_as_it_is_bounded():
    async with bounded(GenerationSpec(max_tokens=100), max_model_len=600) as rig:
        await rig.add("r1", max_model_len=600)
        body, answer = await sent(rig, max_tokens=100_000)
        assert (answer.status, body["max_tokens"]) == (200, 100)


async def test_routing_expects_the_bounded_length():
    given: tuple[dict[str, Any], ...] = ({}, {"max_tokens": 9000}, {"max_tokens": 7})
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096)) as rig:
        await rig.add("r1")
        for each in given:
            await rig.post(**each)
        traces = rig.frontend.ended.find(TraceQuery()).requests
        assert [trace.output_tokens_max for trace in traces] == [512, 4096, 7]
        assert [trace.limited for trace in traces] == ["default_max_tokens=512", "max_tokens=4096", ""]


async def test_a_ladder_step_cuts_further_and_both_are_told():
    async with bounded(GenerationSpec(max_tokens=400), step=LadderStep.CAP_TOKENS, max_tokens_cap=100) as rig:
        await rig.add("r1", length_limited)
        body, answer = await sent(rig, max_tokens=9000)
        assert body["max_tokens"] == 100
        assert answer.headers["x-fleetctl-limit"] == "max_tokens=400"
        assert "max_tokens=100" in answer.headers["x-fleetctl-degraded"]
        assert counts(rig) == {}  # it is the step that ended it


async def length_limited(seen: Seen, wire: Wire) -> None:
    """Ends as an engine does that has generated all it may."""
    if seen.body.get("stream"):
        await wire.begin_events()
        await wire.event(delta("a"))
        await wire.event(delta(finish="length"))
        await wire.done()
        return
    body = completion("a")
    body["choices"][0]["finish_reason"] = "length"
    await wire.whole(200, body)


@pytest.mark.parametrize("stream", [True, False])
async def test_answers_are_counted_that_a_length_of_the_servers_ended(stream):
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096)) as rig:
        await rig.add("r1", length_limited)
        await rig.post(stream=stream)
        await rig.post(stream=stream, max_tokens=9000)
        await rig.post(stream=stream, max_tokens=9)  # its own
        assert counts(rig) == {"default_max_tokens": 1, "max_tokens": 1}
        traces = rig.frontend.ended.find(TraceQuery()).requests
        assert [trace.bounded_by for trace in traces] == ["default_max_tokens", "max_tokens", ""]
        page = (await rig.get("/metrics")).body.decode()
        assert "# HELP fleetctl_gateway_bounded_total " in page
        assert 'fleetctl_gateway_bounded_total{fleet="rig",lane="chat",reason="max_tokens"} 1' in page
        assert 'fleetctl_gateway_bounded_total{fleet="rig",lane="chat",reason="max_duration"} 0' in page


# Stop sequences.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["###", "</s>"]),
        ({"stop": None}, ["###", "</s>"]),
        ({"stop": "END"}, ["END", "###", "</s>"]),
        ({"stop": ["a", "b", "c", "d"]}, ["a", "b", "c", "d", "###", "</s>"]),
        ({"stop": ["###"]}, ["###", "</s>"]),
        ({"stop": {"odd": 1}}, [{"odd": 1}, "###", "</s>"]),  # for the engine to refuse
    ],
)
async def test_the_servers_stop_sequences_come_on_top_of_the_clients(given, expected):
    async with bounded(GenerationSpec(stop=("###", "</s>"))) as rig:
        await rig.add("r1")
        assert (await sent(rig, **given))[0]["stop"] == expected


async def test_an_answer_is_counted_that_an_engine_says_the_servers_stop_sequence_ended():
    async def stopped(seen: Seen, wire: Wire) -> None:
        body = completion("a")
        body["choices"][0]["stop_reason"] = "#\n" if seen.body["max_tokens"] == 1 else "END"
        await wire.whole(200, body)

    async with bounded(GenerationSpec(stop=("#\n",))) as rig:
        await rig.add("r1", stopped)
        await rig.post(max_tokens=1)
        await rig.post(max_tokens=2, stop="END")
        assert counts(rig) == {"stop": 1}


# Keys.


@pytest.mark.parametrize("key", ["k" * 40, "short"])
async def test_the_stricter_of_a_lanes_and_a_keys_bounds_holds(key):
    own = "sha256:" + hashlib.sha256(key.encode()).hexdigest() if len(key) > 32 else scrypt_hash(key, salt=b"s" * 16)
    other = "sha256:" + hashlib.sha256(b"o" * 40).hexdigest()
    async with bounded(GenerationSpec(default_max_tokens=512, max_tokens=4096, stop=("#",))) as rig:
        rig.options |= {
            "api_key_hashes": (own, other),
            "key_generation": {own: GenerationSpec(max_tokens=100, stop=("!",))},
        }
        await rig.add("r1")
        mine = {"authorization": f"Bearer {key}"}
        body, answer = await sent(rig, headers=mine, max_tokens=9000)
        assert (body["max_tokens"], body["stop"]) == (100, ["#", "!"])
        assert answer.headers["x-fleetctl-limit"] == "max_tokens=100"
        assert (await sent(rig, headers=mine))[0]["max_tokens"] == 100
        theirs = {"authorization": "Bearer " + "o" * 40}
        body, _ = await sent(rig, headers=theirs, max_tokens=9000)
        assert (body["max_tokens"], body["stop"]) == (4096, ["#"])


@pytest.mark.parametrize("of_tier", [False, True])
async def test_a_request_longer_than_any_context_is_cut_to_what_its_key_may_have(of_tier):
    key = "sha256:" + hashlib.sha256(b"k" * 40).hexdigest()
    spec = GenerationSpec(max_tokens=64)
    async with GatewayRig(lanes=(replace(CHAT, max_model_len=4096),)) as rig:
        rig.options |= {"api_key_hashes": (key,)}
        rig.options |= (
            {"tiers": route_tiers([TierSpec(name="tin", generation=spec)]), "key_tiers": {key: "tin"}}
            if of_tier
            else {"key_generation": {key: spec}}
        )
        await rig.add("r1")
        body, answer = await sent(rig, headers={"authorization": "Bearer " + "k" * 40}, max_tokens=200_000)
        assert body["max_tokens"] == 64
        assert answer.headers["x-fleetctl-limit"] == "max_tokens=64"


# The clock.


async def test_a_stream_ends_by_the_clock_with_what_there_is_and_its_replica_stops():
    async with bounded(TIMED) as rig:
        replica = await rig.add("r1", endless)
        answer = await rig.post(stream=True, stream_options={"include_usage": True})
        *_, end, usage, done = answer.events
        assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length", "stop_reason": "max_duration"}]
        assert (end["id"], end["object"], end["created"], end["model"]) == (
            "c1",
            "chat.completion.chunk",
            1700000000,
            "m",
        )
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] == len(answer.text) > 5
        assert usage["usage"]["prompt_tokens"] > 0
        assert done == "[DONE]"
        await until(lambda: replica.broken_off)
        assert rig.window().good == 1
        assert counts(rig) == {"max_duration": 1}
        [trace] = rig.frontend.ended.find(TraceQuery()).requests
        assert (trace.bounded_by, trace.ending, trace.verdict) == ("max_duration", "complete", "good")
        assert rig.frontend.dispatcher.is_idle


async def test_no_usage_is_given_to_who_did_not_ask_for_it():
    async with bounded(TIMED) as rig:
        await rig.add("r1", endless)
        answer = await rig.post(stream=True)
        assert answer.is_whole
        assert not any(isinstance(event, dict) and event.get("usage") for event in answer.events)


async def test_the_clock_starts_with_the_first_token():
    async def late(seen: Seen, wire: Wire) -> None:
        await SYSTEM_CLOCK.sleep(0.6)
        await answers(["a", "b"])(seen, wire)

    async with bounded(TIMED) as rig:
        await rig.add("r1", late)
        answer = await rig.post(stream=True)
        assert answer.text == "ab"
        assert counts(rig) == {}


async def test_a_completion_ends_by_the_clock_as_a_completion():
    async def words(seen: Seen, wire: Wire) -> None:
        await wire.begin_events()
        for _ in range(1000):
            await wire.event({"id": "t1", "object": "text_completion", "created": 3, "model": "m",
                              "choices": [{"index": 0, "text": "x", "finish_reason": None}]})  # fmt: skip
            await SYSTEM_CLOCK.sleep(0.01)

    async with bounded(TIMED) as rig:
        await rig.add("r1", words)
        answer = await rig.post("/v1/completions", prompt="Hi", stream=True)
        assert answer.events[-2] == {
            "id": "t1", "object": "text_completion", "created": 3, "model": "m",
            "choices": [{"index": 0, "text": "", "finish_reason": "length", "stop_reason": "max_duration"}],
        }  # fmt: skip


async def test_of_several_choices_only_those_end_by_the_clock_that_had_not_ended():
    async def choices(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        for index in range(3):
            await wire.event(
                delta("a") | {"choices": [{"index": index, "delta": {"content": "a"}, "finish_reason": None}]}
            )
        await wire.event(delta() | {"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]})
        await asyncio.Event().wait()

    async with bounded(TIMED) as rig:
        await rig.add("r1", choices)
        answer = await rig.post(stream=True, n=3)
        ends = [c for e in answer.events[:-1] for c in e["choices"] if c["finish_reason"]]
        assert [(c["index"], c["finish_reason"]) for c in ends] == [(1, "stop"), (0, "length"), (2, "length")]
        assert answer.is_whole
        assert answer.events[-2]["id"] == "c1"


async def test_a_stream_that_has_lost_its_replica_ends_by_the_clock_all_the_same():
    async with bounded(TIMED) as rig:
        await rig.add("r1", answers(["a"] * 100, gap_s=0.01, die_after=5))
        rig.replicas[0].in_rotation = False
        await rig.add("r2", hangs)
        rig.replicas[0].in_rotation, rig.replicas[1].in_rotation = True, False
        rig.apply()
        pending = asyncio.create_task(rig.post(stream=True))
        await until(lambda: rig.replicas[0].seen)
        rig.replicas[1].in_rotation = True
        rig.apply()
        answer = await pending
        assert answer.text == "aaaaa"
        assert answer.events[-2]["choices"][0]["stop_reason"] == "max_duration"
        assert answer.is_whole


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_whole_answer_ends_by_the_clock_with_what_there_is(path):
    async def words(seen: Seen, wire: Wire) -> None:
        assert seen.body["stream"] is True
        await wire.begin_events()
        for number in count():
            if wire.writer.transport.is_closing():
                await asyncio.Event().wait()
            event = delta("w\u00e4\n") | {"usage": {"prompt_tokens": 11, "completion_tokens": number + 1}}
            if "chat" not in path:
                event["choices"] = [{"index": 0, "text": "w\u00e4\n", "finish_reason": None}]
            await wire.event(event)
            await SYSTEM_CLOCK.sleep(0.01)

    async with bounded(TIMED) as rig:
        replica = await rig.add("r1", words)
        answer = await rig.post(path, prompt="Hi")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.headers["x-fleetctl-limit"] == "max_duration=0.3s"
        [choice] = answer.json["choices"]
        text = choice["message"]["content"] if "chat" in path else choice["text"]
        usage = answer.json["usage"]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "max_duration")
        assert text == "w\u00e4\n" * usage["completion_tokens"]
        assert usage["prompt_tokens"] == 11
        assert usage["total_tokens"] == 11 + usage["completion_tokens"] > 15
        assert answer.json["object"] == ("chat.completion" if "chat" in path else "text_completion")
        assert replica.seen[0].body["stream_options"] == COUNTED
        await until(lambda: replica.broken_off)
        assert counts(rig) == {"max_duration": 1}
        assert rig.frontend.dispatcher.is_idle


async def test_a_whole_answer_that_ends_in_time_is_what_its_engine_would_have_given():
    async def thinks(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        await wire.event(delta(role=True))
        thought = delta()
        thought["choices"][0]["delta"] = {"reasoning_content": "hm"}
        await wire.event(thought)
        for word in ("Hello", ' "world"'):
            await wire.event(delta(word))
        last = delta(finish="stop")
        last["choices"][0]["stop_reason"] = None
        await wire.event(last)
        await wire.event(usage_event(7, 4))
        await wire.done()

    async with bounded(TIMED) as rig:
        replica = await rig.add("r1", thinks, continues=False)
        answer = await rig.post()
        assert replica.seen[0].body["stream_options"] == {"include_usage": True}
        assert answer.json["choices"] == [
            {
                "index": 0,
                "message": {"role": "assistant", "content": 'Hello "world"', "reasoning_content": "hm"},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ]
        assert answer.json["usage"] == {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
        assert "x-fleetctl-limit" not in answer.headers
        window = rig.window()
        assert (window.finished, window.good, window.finished_output_tokens) == (1, 1, 4)
        assert window.ttft.count == 0  # its client saw no token


@pytest.mark.parametrize("die_after", [0, 3])
async def test_a_whole_answer_is_expected_anew_where_its_replica_dies(die_after):
    async with bounded(replace(TIMED, max_duration_s=20.0)) as rig:
        await rig.add("r1", answers(["a"] * 6, die_after=die_after))
        rig.replicas[0].in_rotation = True
        await rig.add("r2", answers(["b"] * 6, die_after=die_after))
        dying = rig.replicas[0]

        async def once(seen: Seen, wire: Wire) -> None:
            for replica in rig.replicas:
                replica.script = answers(["c", "d"])
            await answers(["a"] * 6, die_after=die_after)(seen, wire)

        dying.script = rig.replicas[1].script = once
        answer = await rig.post()
        assert answer.json["choices"][0]["message"]["content"] == "cd"
        assert rig.window().good == 1


@pytest.mark.parametrize("given", [{"n": 2}, {"logprobs": True}, {"tools": [{"type": "function"}]}])
async def test_a_whole_answer_that_events_would_not_tell_is_expected_as_it_is(given):
    async with bounded(TIMED) as rig:
        await rig.add("r1")
        body, answer = await sent(rig, **given)
        assert "stream" not in body
        assert answer.json["choices"][0]["message"]["content"] == "Hello world"


async def test_errors_of_a_replica_that_is_expected_a_stream_reach_who_expected_none():
    async def refuses(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.whole(400, {"error": {"message": "no such model", "type": "x", "param": None, "code": 400}})

    async def refuses_in_stream(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        await wire.event({"error": {"message": "bad", "type": "BadRequestError", "param": None, "code": 400}})
        await wire.done()

    async with bounded(TIMED) as rig:
        replica = await rig.add("r1", refuses)
        answer = await rig.post()
        assert (answer.status, answer.json["error"]["message"]) == (400, "no such model")
        replica.script = refuses_in_stream
        answer = await rig.post()
        assert (answer.status, answer.json["error"]["message"]) == (400, "bad")


@pytest.mark.parametrize("stream", [True, False])
async def test_answers_that_a_bound_ended_are_bad_where_the_lane_says_so(stream):
    async with bounded(replace(TIMED, capped_is=CappedIs.BAD)) as rig:
        await rig.add("r1", endless)
        answer = await rig.post(stream=stream)
        assert answer.status == 200
        window = rig.window()
        assert (window.good, window.breached) == (0, {"capped": 1})
        [trace] = rig.frontend.ended.find(TraceQuery()).requests
        assert (trace.bounded_by, trace.verdict) == ("max_duration", "capped")


async def test_whoever_finds_that_an_answer_has_gone_on_for_long_enough_may_end_it():
    async with bounded(GenerationSpec(max_tokens=9000)) as rig:
        replica = await rig.add("r1", endless)
        pending = asyncio.create_task(rig.post(stream=True))
        await until(lambda: rig.frontend.dispatcher.routes.lanes["chat"].in_flight and replica.seen)
        await SYSTEM_CLOCK.sleep(0.1)
        [request] = rig.frontend.dispatcher.endings.active
        now, now_s = SYSTEM_CLOCK.now(), rig.frontend.clock()
        [running] = running_answers([request], TraceQuery(running=5), now=now, now_s=now_s)
        assert (running.lane, running.replica, running.at) == ("chat", "r1", now - timedelta(seconds=running.total_s))
        assert running.output_tokens == request.stopwatch.token_count > 0
        assert running_answers([request], TraceQuery(lane="other", running=5), now=now, now_s=now_s) == ()
        assert running_answers([request], TraceQuery(), now=now, now_s=now_s) == ()
        rig.frontend.dispatcher.early.end(request, BoundReason.LOOP)
        answer = await pending
        assert answer.is_whole
        assert answer.events[-2]["choices"][0]["stop_reason"] == "loop"
        assert counts(rig) == {"loop": 1}
        await until(lambda: replica.broken_off)


async def test_a_timed_stream_is_passed_on_byte_for_byte_until_its_end():
    async with bounded(replace(TIMED, max_duration_s=20.0)) as rig:
        await rig.add("r1", answers(["Hello", " world"]))
        timed = await rig.post(stream=True)
        rig.change_lane("chat", generation=GenerationSpec())
        assert timed.body == (await rig.post(stream=True)).body
        assert json.loads(timed.body.split(b"\n\n")[0][5:])["id"] == "c1"
