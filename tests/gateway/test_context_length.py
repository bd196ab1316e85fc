"""A request goes to an engine that can hold it, and is refused only where none can."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import openai
import pytest

from fleetctl.core.admission.tokens import PromptSize
from fleetctl.core.dispatch.routes import RoutingState
from fleetctl.core.routing.prefix_index import block_hashes
from fleetctl.model.profile import LaneMatch
from tests.emulator.engine_process import NAME, EngineProcess
from tests.gateway.rig import CHAT, GatewayRig, Response
from tests.gateway.scripted import Scripted, rejects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHORT = replace(CHAT, name="short", match=LaneMatch(uncached_prompt_tokens_max=1500), max_model_len=4096)
LONG = replace(CHAT, name="long", max_model_len=16_384)
LANES = (SHORT, LONG)
TOO_LONG = rejects(400, "This model's maximum context length is 4096 tokens.")


def prompt_of(tokens: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": "word" * tokens}]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EngineProcess]]:
    started: list[EngineProcess] = []

    def one(max_model_len: int, *arguments: str) -> EngineProcess:
        length = ("--max-model-len", str(max_model_len))
        started.append(EngineProcess(tmp_path, *length, "--startup-s", "0", "--speed", "50", *arguments))
        return started[-1]

    yield one
    for process in started:
        process.close()


def serve(rig: GatewayRig, engine: EngineProcess, lane: str, max_model_len: int) -> None:
    rig.replicas.append(Scripted(f"{lane}-{engine.port}", lane=lane, port=engine.port, max_model_len=max_model_len))
    rig.apply()


async def served_by(response: Response) -> tuple[int, str]:
    return response.status, response.headers.get("x-fleetctl-replica", "").partition("-")[0]


@pytest.mark.parametrize("flavour", ["vllm", "tgi", "sglang"])
async def test_emulated_engines_get_what_they_hold(start, flavour):
    async with GatewayRig(lanes=LANES) as rig:
        # A vLLM takes tools only with a parser for their calls; the others have no such flag.
        flags = ("--flavour", flavour, *(("--tool-call-parser", "llama3_json") if flavour == "vllm" else ()))
        serve(rig, start(4096, *flags), "short", 4096)
        serve(rig, start(16_384, *flags), "long", 16_384)

        async def chat(**body: Any) -> tuple[int, str]:
            return await served_by(await rig.post(**{"model": NAME, "max_tokens": 8, "stream": True, **body}))

        assert await chat() == (200, "short")
        assert await chat(max_tokens=5000) == (200, "long")
        assert await chat(messages=prompt_of(12_000)) == (200, "long")
        tools = [{"type": "function", "function": {"name": "f", "description": "x" * 29_000}}]
        assert await chat(tools=tools) == (200, "long")
        # Twelve turns of a chat, of which all but the last is cached: its short lane, until that cannot hold it.
        turns: list[dict[str, str]] = []
        found = []
        for _ in range(12):
            turns += prompt_of(350)
            found.append(await chat(messages=turns))
        assert found == [(200, "short")] * 11 + [(200, "long")]


@pytest.mark.parametrize(("caches", "turns_of_short"), [(True, 8), (False, 4)])
async def test_nothing_of_a_prompt_is_taken_for_cached_where_engines_cache_none(caches, turns_of_short):
    async with GatewayRig(lanes=LANES) as rig:
        for lane, held in (("short", 4096), ("long", 16_384)):
            await rig.add(f"{lane}-1", lane=lane, max_model_len=held, caches_prefixes=caches)
        turns: list[dict[str, str]] = []
        found = []
        for _ in range(8):
            turns += prompt_of(350)
            found.append((await served_by(await rig.post(messages=turns)))[1])
        assert found == ["short"] * turns_of_short + ["long"] * (8 - turns_of_short)


def test_the_template_around_cached_messages_is_cached_with_them():
    routes = RoutingState(random.Random(1))
    routes.ratio.bytes_per_token = 4.0
    size = PromptSize(4000, messages=40)
    hashes = block_hashes(b"x" * 4000)
    routes.prefixes.record(hashes, "r1")
    assert routes.prompt_load(size, hashes).uncached("r1") < 0.3 * routes.prompt_load(size, []).prompt_tokens


async def test_an_engine_that_finds_a_prompt_too_long_hands_it_on():
    async with GatewayRig(lanes=LANES) as rig:
        short = await rig.add("short-1", TOO_LONG, lane="short", max_model_len=4096)
        long = await rig.add("long-1", lane="long", max_model_len=16_384)
        # Estimated at a third of what it is: 3 bytes of text a token would be 5,300.
        answer = await rig.post(messages=prompt_of(2000), headers={}, stream=True)
        assert (await served_by(answer))[1] == "long"
        rig.change_lane("short", match=LaneMatch(uncached_prompt_tokens_max=8000))
        answer = await rig.post(messages=prompt_of(2000), stream=True)
        assert await served_by(answer) == (200, "long")
        assert (len(short.seen), len(long.seen)) == (1, 2)
        assert rig.window("short").finished == 1
        named = await rig.post(messages=prompt_of(2000), headers={"x-fleetctl-lane": "short"})
        assert named.status == 400  # its client has named the lane, so the engine's word stands
        malformed = await rig.post(temperature="hot")
        assert malformed.status == 400
        assert len(long.seen) == 2  # it cannot be too long, so nobody else is asked


async def test_replicas_of_one_lane_with_unlike_lengths_get_what_each_holds():
    async with GatewayRig(lanes=(LONG,)) as rig:
        old = await rig.add("old-1", lane="long", max_model_len=4096)
        new = await rig.add("new-1", lane="long", max_model_len=16_384)
        for _ in range(6):
            assert await served_by(await rig.post(messages=prompt_of(6000))) == (200, "new")
        for _ in range(20):
            await rig.post()
        assert len(new.seen) > 6
        assert old.seen


async def test_what_no_engine_holds_is_refused_in_openais_shape_before_it_reaches_one():
    async with GatewayRig(lanes=LANES) as rig:
        for lane, held in (("short", 4096), ("long", 16_384)):
            await rig.add(f"{lane}-1", lane=lane, max_model_len=held)
        async with openai.AsyncOpenAI(base_url=rig.url + "/v1", api_key="x", max_retries=0) as client:
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "Hi"}], max_tokens=20_000
                )
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "max_tokens"
        assert "maximum context length is 16384 tokens" in refused.value.message
        assert refused.value.response.headers["x-fleetctl-reason"] == "context-length"
        long = await rig.post(messages=prompt_of(70_000))
        assert (long.status, long.json["error"]["param"]) == (400, "messages")
        plain = await rig.post("/v1/completions", prompt="word" * 70_000)
        assert (plain.status, plain.json["error"]["param"]) == (400, "prompt")
        named = await rig.post(max_tokens=5000, headers={"x-fleetctl-lane": "short"})
        assert named.json["error"]["code"] == "context_length_exceeded"
        assert "4096 tokens in lane short" in named.json["error"]["message"]
        assert "Lanes that hold it: long (16384)" in named.json["error"]["message"]
        assert not any(replica.seen for replica in rig.replicas)


async def test_near_the_limit_the_engine_decides():
    async with GatewayRig(lanes=(replace(SHORT, match=LaneMatch()),)) as rig:
        replica = await rig.add("short-1", lane="short", max_model_len=4096)
        assert (await rig.post(messages=prompt_of(4500))).status == 200  # it may be that the text is cheap
        assert (await rig.post(messages=prompt_of(3000), max_tokens=2000)).status == 200  # vLLM shortens the answer
        assert len(replica.seen) == 2
