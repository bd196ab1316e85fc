"""What a client gets when everything works."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.gateway.exchange import Exchange
from fleetctl.model.profile import LaneMatch
from tests.gateway.rig import CHAT, GatewayRig
from tests.gateway.scripted import answers, completion, delta, usage_event


async def test_a_stream_arrives_as_the_replica_sent_it(rig):
    await rig.add("r1", answers(["Hel", "lo", " world"], usage=True))
    answer = await rig.post(stream=True)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-fleetctl-lane"] == "chat"
    assert answer.headers["x-fleetctl-replica"] == "r1"
    assert answer.headers["x-engine"] == "scripted"
    assert answer.text == "Hello world"
    assert answer.is_whole


async def test_an_answer_sent_whole_arrives_whole(rig):
    await rig.add("r1")
    answer = await rig.post()
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == "Hello world"
    assert answer.headers["x-fleetctl-replica"] == "r1"


async def test_the_request_reaches_the_replica_unchanged(rig):
    replica = await rig.add("r1")
    await rig.post(
        headers={"x-request-id": "abc", "authorization": "Bearer mine", "x-fleetctl-lane": "chat"}, temperature=0.5
    )
    seen = replica.seen[0]
    assert seen.target == "/v1/chat/completions"
    assert seen.body["temperature"] == 0.5
    assert seen.headers["x-request-id"] == "abc"
    assert "authorization" not in seen.headers  # a client's key is the gateway's business
    assert "x-fleetctl-lane" not in seen.headers
    assert "accept-encoding" not in seen.headers


async def test_a_hundred_requests_share_a_few_upstream_connections(rig):
    replica = await rig.add("r1")
    for index in range(100):
        answer = await rig.post(stream=index % 2 == 0)
        assert answer.status == 200
    assert len(replica.seen) == 100
    assert replica.connections <= 2


async def test_an_ended_request_is_freed_without_the_garbage_collector(rig):
    await rig.add("r1")
    gc.collect()
    gc.disable()
    try:
        await rig.post()
        await rig.post(stream=True)
        # By its type: isinstance() asks every object for its __class__, and what loads lazily would load for that.
        found = [each for each in gc.get_objects() if type(each) in (ActiveRequest, Exchange)]
        # What is told of the last requests is all that is kept of them, and nothing of what their clients wrote.
        assert {id(each) for each in found} == {id(each) for each in rig.frontend.ended.kept("chat")}
        assert len(found) == 2
    finally:
        gc.enable()


async def test_events_split_over_reads_and_joined_in_one_arrive_complete(rig):
    async def script(seen, wire):
        del seen
        await wire.begin_events()
        one = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
        await wire.chunk(one[:20])
        await SYSTEM_CLOCK.sleep(0.02)
        await wire.chunk(one[20:] + one + one[:5])
        await wire.chunk(one[5:] + b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        await wire.end()

    await rig.add("r1", script)
    answer = await rig.post(stream=True)
    assert answer.text == "aaa"
    assert answer.is_whole
    assert rig.window().output_tokens == 3


async def test_lanes_are_chosen_by_header_hint_and_size():
    lanes = (
        replace(CHAT, name="short", match=LaneMatch(uncached_prompt_tokens_max=120, stream=True)),
        replace(CHAT, name="long", match=LaneMatch()),
        replace(CHAT, name="batch", match=LaneMatch(batch=True)),
    )
    async with GatewayRig(lanes=lanes) as rig:
        for lane in lanes:
            await rig.add(f"{lane.name}-1", lane=lane.name)
        long_prompt = [{"role": "user", "content": "word " * 200}]

        async def lane_of(**kwargs: Any) -> str:
            return (await rig.post(**kwargs)).headers["x-fleetctl-lane"]

        assert await lane_of(stream=True) == "short"
        assert await lane_of() == "long"
        assert await lane_of(stream=True, messages=long_prompt) == "long"
        parts = [{"type": "text", "text": "word " * 200}, {"type": "image_url", "image_url": {"url": "data:x"}}]
        assert await lane_of(stream=True, messages=[{"role": "user", "content": parts}]) == "long"
        url = {"url": "data:" + "x" * 9000, "detail": "low"}
        image = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": url}]
        assert await lane_of(stream=True, messages=[{"role": "user", "content": image}]) == "short"
        assert await lane_of(service_tier="flex") == "batch"
        assert await lane_of(headers={"x-fleetctl-batch": "true"}) == "batch"
        assert await lane_of(headers={"x-fleetctl-lane": "batch"}) == "batch"
        unknown = await rig.post(headers={"x-fleetctl-lane": "nope"})
        assert unknown.status == 400
        assert unknown.headers["x-fleetctl-reason"] == "unknown-lane"


async def test_a_prompt_goes_where_its_prefix_is_cached(rig):
    await rig.add("r1")
    await rig.add("r2")
    system = {"role": "system", "content": "You are a patient librarian. " * 100}
    replicas = set()
    for question in ("a", "b", "c", "d", "e", "f"):
        answer = await rig.post(messages=[system, {"role": "user", "content": question}])
        replicas.add(answer.headers["x-fleetctl-replica"])
    assert len(replicas) == 1


async def test_concurrent_requests_spread_over_replicas(rig):
    left = asyncio.Barrier(30)  # nobody's answer ends before everybody's request is there

    async def script(seen, wire):
        await left.wait()
        await answers(["x"])(seen, wire)

    replicas = [await rig.add(f"r{i}", script) for i in range(3)]
    await asyncio.gather(*(rig.post(stream=True) for _ in range(30)))
    # Each goes where its first token is predicted first: how late those before it are moves that by a millisecond.
    assert all(7 <= len(r.seen) <= 13 for r in replicas)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/", "/v1/chat/completions/x"])
async def test_other_routes_are_404_in_openai_shape(rig, path):
    await rig.add("r1")
    answer = await rig.post(path)
    assert answer.status == 404
    assert answer.json["error"]["type"] == "invalid_request_error"


async def test_wrong_methods_are_405(rig):
    assert (await rig.get("/v1/chat/completions")).status == 405


async def test_models_health_and_metrics_are_answered_here(rig):
    assert (await rig.get("/health")).status == 503
    await rig.add("r1")
    await rig.post(stream=True)
    health = await rig.get("/health")
    assert health.status == 200
    assert health.json["replicas_in_rotation"] == {"chat": 1}
    assert [m["id"] for m in (await rig.get("/v1/models")).json["data"]] == ["m"]
    page = (await rig.get("/metrics")).body.decode()
    assert 'fleetctl_gateway_requests_total{fleet="rig",lane="chat",ending="complete"} 1' in page
    assert 'fleetctl_gateway_ttft_seconds_count{fleet="rig",lane="chat"} 1' in page
    assert 'fleetctl_gateway_replicas_in_rotation{fleet="rig",lane="chat"} 1' in page


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"stream": "yes"}', b"\xff\xfe"])
async def test_bodies_that_are_no_requests_are_400(rig, body):
    await rig.add("r1")
    async with rig.http.post(rig.url + "/v1/chat/completions", data=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_a_400_of_the_engine_is_passed_on(rig):
    async def script(seen, wire):
        del seen
        await wire.whole(400, {"error": {"message": "max_tokens is too large", "code": 400}})

    await rig.add("r1", script)
    answer = await rig.post(stream=True)
    assert answer.status == 400
    assert answer.json["error"]["message"] == "max_tokens is too large"
    assert rig.window().finished == 0


async def test_an_error_event_of_the_clients_making_becomes_a_real_status(rig):
    async def script(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event({"error": {"message": "bad request", "type": "BadRequestError", "param": None, "code": 400}})
        await wire.done()

    await rig.add("r1", script)
    answer = await rig.post(stream=True)
    assert answer.status == 400
    assert answer.json["error"]["message"] == "bad request"


async def test_figures_are_those_the_client_saw(rig):
    await rig.add("r1", answers(["a", "b", "c", "d"], gap_s=0.05, usage=True))
    await rig.post(stream=True)
    window = rig.window()
    assert (window.offered, window.finished, window.good) == (1, 1, 1)
    assert (window.prompt_tokens, window.output_tokens) == (7, 4)
    assert window.ttft.count == 1
    assert window.itl.count == 3
    assert 0.04 < window.itl.p50_s < 2.0
    assert window.e2e.max_s >= window.ttft.max_s >= 0.04


async def test_tokens_of_whole_answers_come_from_their_usage(rig):
    async def script(seen, wire):
        del seen
        await wire.whole(200, completion("x" * 50_000, prompt_tokens=11, completion_tokens=900))

    await rig.add("r1", script)
    await rig.post()
    window = rig.window()
    assert (window.prompt_tokens, window.output_tokens) == (11, 900)
    assert window.ttft.count == 0


async def test_prompt_tokens_are_estimated_where_nobody_reports_them(rig):
    await rig.add("r1", answers(["a"]))
    await rig.post(stream=True, messages=[{"role": "user", "content": "x" * 398}])
    assert rig.window().prompt_tokens == 110  # ten of them the chat template


async def test_the_ratio_of_bytes_to_tokens_is_learned(rig):
    async def script(seen, wire):
        del seen
        await wire.whole(200, completion("x", prompt_tokens=210))

    await rig.add("r1", script)
    for _ in range(100):
        await rig.post(messages=[{"role": "user", "content": "x" * 398}])
    assert 2.0 <= rig.frontend.dispatcher.routes.ratio.bytes_per_token < 2.1


async def test_the_first_token_is_the_first_content_not_the_role(rig):
    async def script(seen, wire):
        del seen
        await wire.begin_events()
        await wire.event(delta(role=True))
        await SYSTEM_CLOCK.sleep(0.2)
        await wire.event(delta("late"))
        await wire.event(delta(finish="stop"))
        await wire.event(usage_event(5, 1))
        await wire.done()

    await rig.add("r1", script)
    await rig.post(stream=True)
    assert rig.window().ttft.max_s >= 0.19
    assert rig.window().output_tokens == 1


async def test_an_endless_error_body_is_not_kept(rig):
    async def script(seen, wire):
        del seen
        await wire.whole(400, b"x" * 5_000_000)

    await rig.add("r1", script)
    answer = await rig.post()
    assert answer.status == 400
    assert len(answer.body) <= rig.limits.whole_bytes_max


async def test_completions_stream_too(rig):
    async def script(seen, wire):
        await wire.begin_events()
        for word in ("one", " two"):
            await wire.event(
                {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": word, "finish_reason": None}]}
            )
        await wire.event(
            {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
        )
        await wire.done()
        assert seen.body["prompt"] == "Count"

    await rig.add("r1", script)
    answer = await rig.post("/v1/completions", prompt="Count", stream=True)
    assert answer.text == "one two"
    assert rig.window().output_tokens == 2


async def test_a_long_answer_without_events_is_passed_on_before_it_ends(rig):
    big = b"x" * 3_000_000

    async def script(seen, wire):
        del seen
        await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3000000\r\n\r\n" + big)

    await rig.add("r1", script)
    answer = await rig.post()
    assert answer.body == big
