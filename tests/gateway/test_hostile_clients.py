"""Clients that send too much, too slowly or without a key: the gateway's memory and everybody else's requests stay."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace

import pytest

from fleetctl.core.admission.keys import sha256_hash
from tests.gateway.rig import LIMITS, GatewayRig, raw_post

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


async def test_connections_over_the_bound_are_told_so_and_leave_room_again():
    async with GatewayRig(limits=replace(LIMITS, connections_max=8)) as rig:
        await rig.add("r1")
        held = [await rig.connect() for _ in range(8)]
        assert b"503" in (await rig.send_raw(raw_post(b"{}")))[:20]
        for _, writer in held:
            writer.transport.abort()
        await asyncio.gather(*(rig.get("/health") for _ in range(4)))


async def test_a_body_nested_without_end_is_a_400(rig):
    await rig.add("r1")
    body = b'{"messages": ' + b"[" * 200_000
    assert (await rig.send_raw(raw_post(body, b"connection: close\r\n"))).startswith(b"HTTP/1.1 400")
