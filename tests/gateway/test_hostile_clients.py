"""Clients that send too much, too slowly or without a key: the gateway's memory and everybody else's requests stay."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace

import pytest

from fleetctl.core.admission.keys import sha256_hash
from tests.gateway.rig import LIMITS, GatewayRig, raw_post, until
from tests.gateway.scripted import Seen, Wire, answers, delta, hangs

GROWTH_KIB_MAX = 100 * 1024
CONNECTIONS = 24
LONG = "k" * 48
PIECE = b"x" * 65536
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


async def push(rig: GatewayRig, head: bytes, piece: bytes, *, pieces: int) -> bytes:
    """Send a head and then a piece again and again, and return what comes back."""
    reader, writer = await rig.connect()
    try:
        writer.write(head)
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(20):
            return await reader.read(4096)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("authorization", [b"", b"authorization: Bearer wrong\r\n"])
async def test_bodies_without_a_key_are_not_held(rig, authorization):
    await rig.add("r1")
    rig.apply(api_key_hashes=(sha256_hash(LONG),))
    head = POST + authorization + b"content-length: 16000000\r\n\r\n"
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pushes = [push(rig, head, PIECE, pieces=240) for _ in range(CONNECTIONS)]
    answers = await asyncio.gather(*pushes)
    # One that goes on sending may be reset before it reads.
    assert all(answer[:12] in (b"HTTP/1.1 401", b"") for answer in answers)
    assert any(answers)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX
    answer = await rig.post(
        headers={"authorization": f"Bearer {LONG}"}, messages=[{"role": "user", "content": "x" * 900_000}]
    )
    assert answer.status == 200


@pytest.mark.parametrize(
    ("head", "piece", "status"),
    [
        (b"GET /" + b"x" * 100, PIECE, b"414"),
        (b"GET / HTTP/1.1\r\nx: ", PIECE, b"431"),
        (b"GET / HTTP/1.1\r\n", b"x: 1\r\n" * 1000, b"431"),
        (POST + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n", b"413"),
        (POST + b"content-length: 99999999999\r\n\r\n", PIECE, b"413"),
        (b"\x16\x03\x01\x02\x00", PIECE, b"400"),
    ],
)
async def test_what_has_no_end_is_refused_and_forgotten(rig, head, piece, status):
    await rig.add("r1")
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = await push(rig, head, piece, pieces=400)
    assert not answer or answer.startswith(b"HTTP/1.1 " + status)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX
    assert (await rig.post()).status == 200


async def test_slow_heads_and_slow_bodies_are_ended_while_others_are_served():
    limits = replace(LIMITS, header_timeout_s=0.5, body_timeout_s=0.5, connections_max=100)
    async with GatewayRig(limits=limits) as rig:
        await rig.add("r1")
        slow = [POST + b"x: 1\r\n", POST + b"content-length: 10\r\n\r\nx", b""]
        pending = [asyncio.create_task(rig.send_raw(slow[n % 3])) for n in range(60)]
        assert (await rig.post()).status == 200
        for answer in await asyncio.gather(*pending):
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


BODY = b'{"messages":[{"role":"user","content":"Hi"}]}'


async def test_connections_over_the_bound_are_told_so_and_leave_room_again():
    async with GatewayRig(limits=replace(LIMITS, connections_max=8)) as rig:
        await rig.add("r1", hangs)
        held = [await rig.connect() for _ in range(8)]
        for _, writer in held:
            writer.write(raw_post(BODY))
        await until(lambda: len(rig.replicas[0].seen) == 8)
        assert b"503" in (await rig.send_raw(raw_post(b"{}")))[:20]
        for _, writer in held:
            writer.transport.abort()
        await asyncio.gather(*(rig.get("/health") for _ in range(4)))


async def test_idle_connections_make_room_for_whoever_asks():
    async with GatewayRig(limits=replace(LIMITS, connections_max=50)) as rig:
        await rig.add("r1")
        for _ in range(10):
            held = [await rig.connect() for _ in range(100)]
            held[-1][1].write(b"GET /slowly")
            for _ in range(3):
                assert (await rig.send_raw(raw_post(BODY, b"connection: close\r\n"))).startswith(b"HTTP/1.1 200")
            for _, writer in held:
                writer.transport.abort()
        page = (await rig.get("/metrics")).body.decode()
        assert float(page.split('\nfleetctl_gateway_connections_displaced_total{fleet="rig"} ')[1].split("\n")[0]) > 100


async def test_a_flood_of_connections_holds_no_more_than_a_share_beyond_the_bound():
    async with GatewayRig(limits=replace(LIMITS, connections_max=16)) as rig:
        await rig.add("r1", hangs)
        held = [await rig.connect() for _ in range(16)]
        for _, writer in held:
            writer.write(raw_post(BODY))
        await until(lambda: len(rig.replicas[0].seen) == 16)
        more = [await rig.connect() for _ in range(100)]
        await until(lambda: rig.frontend.connections <= 32)
        for _, writer in held + more:
            writer.transport.abort()
        await until(lambda: rig.frontend.connections == 0)


async def test_a_stream_that_nobody_reads_holds_little_and_ends_by_a_deadline():
    async def streams(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        while True:
            await wire.event(delta("x" * 4000))

    async with GatewayRig(limits=replace(LIMITS, client_stall_s=1.0)) as rig:
        replica = await rig.add("r1", streams)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clients = [await rig.connect() for _ in range(8)]
        for _, writer in clients:
            writer.write(raw_post(BODY[:-1] + b',"stream":true}'))
        await until(lambda: len(replica.seen) == 8)
        await until(lambda: rig.frontend.snapshot(1).replicas[0].in_flight == 0)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX
        replica.script = answers(["fine"])
        assert (await rig.post()).status == 200
        for _, writer in clients:
            writer.transport.abort()


SMUGGLED = raw_post(b'{"messages":[{"role":"user","content":"smuggled"}]}')


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        b"content-length: 0\r\ncontent-length: 500\r\n\r\n",
        b"content-length: 0, 500\r\n\r\n",
        b"content-length: +0\r\n\r\n",
        b"content-length: -1\r\n\r\n",
        b"content-length: 0x0\r\n\r\n",
        b"content-length:\r\n\r\n",
        b"content-length : 0\r\n\r\n",
        b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n0x0\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n0\n\n",
        b"x: y\r\n content-length: 0\r\n\r\n",
        b"x: y\rcontent-length: 0\r\n\r\n",
        b"x\x00: y\r\n\r\n",
    ],
)
async def test_a_request_whose_end_is_in_doubt_carries_no_second_one(rig, framing):
    replica = await rig.add("r1")
    answer = await rig.send_raw(POST + framing + SMUGGLED)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400")
    assert replica.seen == []


async def test_junk_behind_a_request_leaves_its_answer(rig):
    await rig.add("r1")
    for junk in (b"\x00" * 1000, b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01" * 100):
        answer = await rig.send_raw(raw_post(BODY) + junk)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1 ") == 2
        assert b"HTTP/1.1 400" in answer


async def test_more_pipelined_than_may_wait_is_refused_and_what_came_before_is_answered(rig):
    await rig.add("r1")
    answer = await rig.send_raw(raw_post(BODY) * 200)
    assert 1 <= answer.count(b"HTTP/1.1 200") <= 200
    assert (await rig.post()).status == 200


ODD = {
    "duplicate keys": b'{"messages":[{"role":"user","content":"a"}],"stream":true,"stream":false,"messages":[]}',
    "a huge integer": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":%b}' % (b"9" * 4000),
    "a huge float": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1e999999}',
    "a negative length": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":-9223372036854775809}',
    "a lone surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}],"model":"\\udfff"}',
    "no UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
    "unicode names": '{"messages":[{"role":"user","name":"\u202e\U0001f600","content":"a"}]}'.encode(),
    "a NUL": b'{"messages":[{"role":"user","content":"\x00"}]}',
    "deep in a message": b'{"messages":[{"role":"user","content":' + b"[" * 100_000 + b"]}]}",
    "deep in tools": b'{"messages":[],"tools":' + b'{"a":' * 100_000,
    "deep in a part": b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":' + b"[" * 50_000,
    "a million messages": b'{"messages":[' + b'{"content":""},' * 60_000 + b'{"content":""}]}',
    "prompts in prompts": b'{"prompt":' + b"[" * 50_000,
    "NaN": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":NaN}',
    "a bare value": b'"text"',
    "nothing": b"",
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions"])
async def test_bodies_of_any_shape_are_answered_and_harm_nobody(rig, what, path):
    await rig.add("r1")
    broken: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    request = raw_post(ODD[what], b"connection: close\r\n").replace(b"/v1/chat/completions", path, 1)
    answer = await rig.send_raw(request)
    assert answer[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 400")
    assert not broken
    assert (await rig.post()).status == 200


async def test_a_body_nested_without_end_is_a_400(rig):
    await rig.add("r1")
    body = b'{"messages": ' + b"[" * 200_000
    assert (await rig.send_raw(raw_post(body, b"connection: close\r\n"))).startswith(b"HTTP/1.1 400")
