"""The gateway in front of emulated engines: real processes, killed and stopped under load."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.emulator.engine_process import NAME, EngineProcess, emitted
from tests.gateway.rig import GatewayRig, Response, until
from tests.gateway.scripted import Scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EngineProcess]]:
    started: list[EngineProcess] = []

    def one(*arguments: str) -> EngineProcess:
        started.append(EngineProcess(tmp_path, "--max-model-len", "4096", "--startup-s", "0", *arguments))
        return started[-1]

    yield one
    for process in started:
        process.close()


def stand_for(rig: GatewayRig, engine: EngineProcess, id_: str, **options: Any) -> Scripted:
    """Put an engine into the table."""
    replica = Scripted(id_, port=engine.port, **options)
    rig.replicas.append(replica)
    rig.apply()
    return replica


async def chat(rig: GatewayRig, tokens: int, **body: Any) -> Response:
    options = {"include_usage": True} if body.get("stream") else None
    messages = [{"role": "user", "content": "What is a lane?"}]
    return await rig.post(model=NAME, messages=messages, max_tokens=tokens, stream_options=options, **body)


@pytest.mark.parametrize("flavour", ["vllm", "tgi", "sglang"])
async def test_every_flavour_streams_and_counts_its_tokens(rig, start, flavour):
    stand_for(rig, start("--flavour", flavour, "--speed", "20"), flavour)
    answer = await chat(rig, 40, stream=True)
    assert answer.status == 200
    assert answer.is_whole
    assert answer.text.strip()
    whole = await chat(rig, 40)
    assert whole.json["usage"]["completion_tokens"] == 40
    window = rig.window()
    assert (window.good, window.finished) == (2, 2)
    assert window.output_tokens == 80
    assert window.ttft.count == 1
    assert window.itl.count in (38, 39)


async def test_a_killed_engine_loses_no_stream(rig, start):
    engines = [start("--speed", "4") for _ in range(3)]
    for index, engine in enumerate(engines):
        stand_for(rig, engine, f"r{index}")
    responses = [asyncio.create_task(chat(rig, 120, stream=True)) for _ in range(24)]
    waiting = [asyncio.create_task(chat(rig, 60)) for _ in range(6)]
    await until(lambda: rig.window().output_tokens > 300, wait_s=20)
    engines[0].send_signal(signal.SIGKILL)
    streams = await asyncio.gather(*responses)
    wholes = await asyncio.gather(*waiting)
    assert [a.status for a in (*streams, *wholes)] == [200] * 30
    assert all(a.is_whole for a in streams)
    assert {a.text for a in streams} == {emitted(120)}
    usages = [e["usage"] for a in streams for e in a.events if e != "[DONE]" and e.get("usage")]
    assert len(usages) == 24
    assert {u["completion_tokens"] for u in usages} == {120}
    assert rig.window().breached == {}


# What a client may ask to be told of its tokens.
USAGE_OPTIONS: tuple[dict[str, bool] | None, ...] = (
    None,
    {"include_usage": True},
    {"include_usage": True, "continuous_usage_stats": True},
)
TOKENS = 2500  # twice what 256 KiB of events are


@pytest.mark.parametrize(("flavour", "interval"), [("vllm", 1), ("vllm", 7), ("sglang", 3), ("tgi", 1)], ids=str)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_long_streams_of_a_killed_engine_go_on_and_are_counted_exactly(rig, start, flavour, interval, path):
    engines = [start("--flavour", flavour, "--speed", "30", "--stream-interval", str(interval)) for _ in range(2)]
    for index, engine in enumerate(engines):
        stand_for(rig, engine, f"r{index}")
    question = "What is a lane? "
    chat = {"messages": [{"role": "user", "content": question}]}
    body = {"model": NAME, "max_tokens": TOKENS, "min_tokens": TOKENS, "ignore_eos": True, "stream": True}
    body |= chat if "chat" in path else {"prompt": question}
    streams = [asyncio.create_task(rig.post(path, stream_options=options, **body)) for options in USAGE_OPTIONS * 2]
    await until(lambda: rig.window().output_tokens > len(streams) * 1300 / interval, wait_s=25)
    engines[0].send_signal(signal.SIGKILL)
    found = await asyncio.gather(*streams)
    assert {answer.text for answer in found} == {emitted(TOKENS)}
    for answer, options in zip(found, USAGE_OPTIONS * 2, strict=True):
        assert answer.is_whole
        events = [event for event in answer.events if event != "[DONE]"]
        assert [c["finish_reason"] for e in events for c in e["choices"] if c["finish_reason"]] == ["length"]
        usages = [event["usage"] for event in events if event.get("usage")]
        if options is None:
            assert not usages
        else:
            prompt_tokens = 14 if "chat" in path else 4
            assert {usage["prompt_tokens"] for usage in usages} == {prompt_tokens}
            last = {"prompt_tokens": prompt_tokens, "completion_tokens": TOKENS, "total_tokens": prompt_tokens + TOKENS}
            assert {key: usages[-1][key] for key in last} == last
            counted = [usage["completion_tokens"] for usage in usages]
            assert counted == sorted(counted)
            if "continuous_usage_stats" not in options:
                assert len(usages) == 1


async def test_an_engine_told_to_stop_aborts_and_its_streams_go_on(rig, start):
    engines = [start("--speed", "4") for _ in range(2)]
    for index, engine in enumerate(engines):
        stand_for(rig, engine, f"r{index}")
    responses = [asyncio.create_task(chat(rig, 120, stream=True)) for _ in range(12)]
    await until(lambda: rig.window().output_tokens > 100, wait_s=20)
    engines[0].send_signal(signal.SIGTERM)
    found = await asyncio.gather(*responses)
    assert all(a.is_whole for a in found)
    assert {a.text for a in found} == {emitted(120)}


async def test_a_full_engine_sends_the_overflow_to_the_others(rig, start):
    full = start("--speed", "4", "--max-num-seqs", "1", "--max-queued-requests", "1")
    free = start("--speed", "4")
    stand_for(rig, full, "full")
    stand_for(rig, free, "free")
    found = await asyncio.gather(*(chat(rig, 30, stream=True) for _ in range(16)))
    assert [a.status for a in found] == [200] * 16
    assert {a.text for a in found} == {emitted(30)}


async def test_a_disconnect_frees_the_engine(rig, start):
    engine = start("--speed", "1")
    stand_for(rig, engine, "r1")
    response = asyncio.create_task(chat(rig, 2000, stream=True))
    await until(lambda: rig.window().output_tokens > 2, wait_s=20)
    response.cancel()
    await until(lambda: engine.metric("vllm:num_requests_running") == 0)
