"""A lane that coalesces: fewer and evener chunks, the first at once, and not a byte more or less."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.profile import CoalesceSpec
from tests.gateway.rig import CHAT, HELLO, GatewayRig, until
from tests.gateway.scripted import Seen, Wire, answers, delta, usage_event
from tests.gateway.test_continuation import WORDS, goes_on, stream_and_lose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.gateway.scripted import Script

PACED = replace(CHAT, coalesce=CoalesceSpec(tokens=4, within_s=0.02))
PATIENT = replace(CHAT, coalesce=CoalesceSpec(tokens=64, within_s=1.0))  # holds whatever it may


def frames(events: Sequence[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(each, separators=(",", ":")).encode() + b"\n\n" for each in events)


def bursts(count: int, *, each: int, apart_s: float) -> Script:
    """Sends so many tokens at once, again and again."""

    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        await wire.event(delta(role=True))
        for burst in range(count):
            if burst:
                await SYSTEM_CLOCK.sleep(apart_s)
            await wire.chunk(frames([delta(f"w{burst}.{word} ") for word in range(each)]))
        await wire.event(delta(finish="stop"))
        await wire.event(usage_event(7, count * each))
        await wire.done()

    return script


async def chunks_of(rig: GatewayRig, **body: Any) -> list[bytes]:
    """Return what each HTTP chunk of a stream held."""
    found = []
    async with rig.http.post(rig.url + "/v1/chat/completions", json=HELLO | {"stream": True} | body) as response:
        data = b""
        async for piece, is_end in response.content.iter_chunks():
            data += piece
            if is_end:
                found.append(data)
                data = b""
    return found


def tokens(chunk: bytes) -> int:
    return chunk.count(b'"content":"w')


async def test_bursts_leave_in_small_chunks_one_after_the_other_and_whole():
    bodies: dict[CoalesceSpec | None, bytes] = {}
    chunks: list[bytes] = []
    for lane in (CHAT, PACED):
        async with GatewayRig(lanes=(lane,)) as rig:
            await rig.add("r1", bursts(3, each=32, apart_s=0.25))
            chunks = await chunks_of(rig, stream_options={"include_usage": True})
            bodies[lane.coalesce] = b"".join(chunks)
            streams = rig.window().streams
            assert streams.chunks == sum(tokens(data) > 0 for data in chunks)
            assert (streams.tokens, streams.answers) == (96, 1)
    assert bodies[None] == bodies[PACED.coalesce]
    sizes = [tokens(data) for data in chunks if tokens(data)]
    assert sizes[0] == 4  # the first chunk is one too
    assert sorted(sizes)[-2] <= 4  # all but what was left at the end
    # The last burst's end flushes what is left of it; the two before leave in four's, which tests/slo/test_pacing.py times.
    assert len(sizes) >= 2 * 32 // 4


async def test_the_first_token_is_not_held_and_the_end_holds_nothing_up():
    async with GatewayRig(lanes=(PATIENT,)) as rig:
        await rig.add("r1", answers(["wone ", "wtwo ", "wthree "], gap_s=0.01))
        chunks = await chunks_of(rig)
        assert [tokens(data) for data in chunks if tokens(data)] == [1, 2]


async def test_tokens_wait_for_others_no_longer_than_they_may():
    async with GatewayRig(lanes=(PACED,)) as rig:
        await rig.add("r1", answers(["wa "] * 4, gap_s=0.15))
        assert [tokens(data) for data in await chunks_of(rig) if tokens(data)] == [1, 1, 1, 1]


async def test_a_client_that_leaves_gets_nothing_more_and_the_replica_learns_it():
    async with GatewayRig(lanes=(PATIENT,)) as rig:
        replica = await rig.add("r1", bursts(20, each=8, apart_s=0.05))
        async with rig.http.post(rig.url + "/v1/chat/completions", json=HELLO | {"stream": True}) as response:
            await response.content.readany()
        await until(lambda: replica.broken_off)
        await until(lambda: rig.window().streams.answers)
        await SYSTEM_CLOCK.sleep(0.05)
        assert rig.frontend.dispatcher.is_idle
        assert (await rig.post()).status == 200


@pytest.mark.parametrize("after", [1, 3])
async def test_a_lost_stream_goes_on_elsewhere_as_one_answer(after: int) -> None:
    async with GatewayRig(lanes=(PATIENT,)) as rig:
        answer = await stream_and_lose(rig, after=after, other=goes_on(usage=True))
        assert answer.text == "".join(WORDS)
        assert answer.is_whole
        assert sum("role" in c["delta"] for e in answer.events[:-1] for c in e["choices"]) == 1


async def test_a_stream_that_cannot_go_on_ends_with_all_that_had_come_and_its_error():
    async with GatewayRig(lanes=(PATIENT,)) as rig:
        await rig.add("r1", answers(["wone ", "wtwo ", "wthree "], gap_s=0.01, die_after=3), continues=False)
        answer = await rig.post(stream=True)
        assert answer.text == "wone wtwo wthree "
        assert not answer.is_whole
        assert "error" in answer.events[-1]


async def test_many_streams_at_once_are_all_whole():
    async with GatewayRig(lanes=(PACED,)) as rig:
        await rig.add("r1", bursts(4, each=9, apart_s=0.03))
        found = await asyncio.gather(*(rig.post(stream=True) for _ in range(40)))
        wanted = "".join(f"w{burst}.{word} " for burst in range(4) for word in range(9))
        assert {answer.text for answer in found} == {wanted}
        assert all(answer.is_whole for answer in found)
        assert rig.window().itl.count == 40 * 35  # the engine's own gaps, as it made them


async def test_an_answer_that_is_no_stream_is_as_ever():
    async with GatewayRig(lanes=(PACED,)) as rig:
        await rig.add("r1", answers(["a ", "b"]))
        answer = await rig.post()
        assert answer.json["choices"][0]["message"]["content"] == "a b"
        assert rig.window().streams.answers == 0
