"""HTTP as clients speak it, well or badly."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.admission.keys import scrypt_hash, sha256_hash
from fleetctl.gateway.frontend import Frontend
from tests.gateway.rig import LIMITS, GatewayRig, raw_post, until
from tests.gateway.scripted import answers

BODY = b'{"messages":[{"role":"user","content":"Hi"}]}'
CLOSE = b"connection: close\r\n"


def statuses(data: bytes) -> list[int]:
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]


async def test_pipelined_requests_are_answered_in_order(rig):
    await rig.add("r1", answers(["x"], gap_s=0.05))
    stream = b'{"messages":[],"stream":true}'
    data = await rig.send_raw(
        raw_post(stream) + raw_post(BODY) + b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" + raw_post(b"{", extra=CLOSE)
    )
    assert statuses(data) == [200, 200, 200, 400]
    assert data.index(b"[DONE]") < data.index(b'"message"') < data.index(b'"owned_by"')


async def test_too_many_pipelined_requests_are_refused_after_those_before(rig):
    await rig.add("r1", answers(["x"], gap_s=0.05))
    data = await rig.send_raw(raw_post(BODY) * 30)
    found = statuses(data)
    assert found[-1] == 400
    assert set(found[:-1]) == {200}
    assert len(found) - 2 <= LIMITS.pipelined_max  # One may be at work while the others wait.


async def test_expect_100_continue_is_answered(rig):
    await rig.add("r1")
    reader, writer = await rig.connect()
    head, body = raw_post(BODY, extra=b"expect: 100-continue\r\n" + CLOSE).split(b"\r\n\r\n", 1)
    writer.write(head + b"\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert b"HTTP/1.1 200 OK" in await reader.read()
    writer.transport.abort()


async def test_an_encoded_body_is_415(rig):
    assert statuses(await rig.send_raw(raw_post(BODY, extra=b"content-encoding: gzip\r\n"))) == [415]


@pytest.mark.parametrize("extra", [b"", b"content-type: text/plain\r\n", b"content-encoding: identity\r\n"])
async def test_engines_are_told_json_whatever_a_client_calls_its_body(rig, extra):
    replica = await rig.add("r1")
    assert statuses(await rig.send_raw(raw_post(BODY, extra=extra + CLOSE))) == [200]
    headers = replica.seen[-1].headers
    assert headers["content-type"] == "application/json"
    assert "content-encoding" not in headers


async def test_another_expectation_is_417(rig):
    assert statuses(await rig.send_raw(raw_post(BODY, extra=b"expect: miracles\r\n"))) == [417]


async def test_chunked_request_bodies_are_accepted(rig):
    replica = await rig.add("r1")
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (BODY[:10], BODY[10:]))
    data = await rig.send_raw(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        + pieces
        + b"0\r\n\r\n"
    )
    assert statuses(data) == [200]
    assert replica.seen[0].body["messages"][0]["content"] == "Hi"
    assert replica.seen[0].headers["content-length"] == str(len(BODY))


async def test_trailers_overrule_nothing(rig):
    replica = await rig.add("r1")
    data = await rig.send_raw(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\nx-fleetctl-lane: nope\r\nx-evil: 1\r\n\r\n" % (len(BODY), BODY)
    )
    assert statuses(data) == [200]
    assert "x-evil" not in replica.seen[0].headers


@pytest.mark.parametrize("stream", [b"true", b"false"])
async def test_http_1_0_is_served_and_closed(rig, stream):
    await rig.add("r1")
    body = b'{"messages":[],"stream":%b}' % stream
    data = await rig.send_raw(b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    head, _, rest = data.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert b"Hello" in rest
    assert not rest.startswith(b"1")


async def test_an_unknown_protocol_upgrade_is_answered_as_the_request_it_is(rig):
    replica = await rig.add("r1")
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEA\r\nx-mine: 1\r\n"
    data = await rig.send_raw(raw_post(BODY, extra=upgrade) + raw_post(BODY, extra=CLOSE))
    assert statuses(data) == [200, 200]
    assert replica.seen[0].body["messages"][0]["content"] == "Hi"
    assert replica.seen[0].headers["x-mine"] == "1"
    assert "upgrade" not in replica.seen[0].headers
    assert statuses(await rig.send_raw(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n")) == [400]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nbig: " + b"x" * 200_000, 431),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00 tls hello", 400),
        (b"NONSENSE\r\n\r\n", 400),
    ],
)
async def test_what_is_too_big_or_not_http_is_refused(rig, data, status):
    await rig.add("r1")
    answer = await rig.send_raw(data)
    assert statuses(answer) == [status]
    assert b"connection: close" in answer
    assert b'"error"' in answer


async def test_a_chunked_body_over_the_limit_is_413(rig):
    await rig.add("r1")
    rig.apply(body_bytes_max=1000)
    data = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    assert statuses(await rig.send_raw(data + (b"200\r\n" + b"x" * 512 + b"\r\n") * 4)) == [413]


async def test_headers_that_trickle_in_are_cut_off():
    async with GatewayRig(limits=replace(LIMITS, header_timeout_s=0.3)) as rig:
        reader, writer = await rig.connect()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n")
        async with asyncio.timeout(10):
            data = b""
            while b"408" not in data:
                writer.write(b"a: b\r\n")
                await SYSTEM_CLOCK.sleep(0.05)
                data += await _whatever(reader)
        writer.transport.abort()


async def _whatever(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(0.01):
            return await reader.read(4096)
    except TimeoutError:
        return b""


async def test_a_body_that_never_comes_is_408():
    async with GatewayRig(limits=replace(LIMITS, body_timeout_s=0.2)) as rig:
        assert statuses(await rig.send_raw(raw_post(BODY)[:-5])) == [408]


async def test_idle_connections_are_closed():
    async with GatewayRig(limits=replace(LIMITS, idle_timeout_s=0.2, header_timeout_s=0.2)) as rig:
        await rig.add("r1")
        assert await rig.send_raw(b"") == b""
        assert statuses(await rig.send_raw(raw_post(BODY))) == [200]


async def test_a_kept_connection_serves_again(rig):
    await rig.add("r1")
    reader, writer = await rig.connect()
    for _ in range(3):
        writer.write(b"\r\n" + raw_post(BODY))  # A stray empty line between requests is allowed.
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b'"completion_tokens": 3}}')
    writer.transport.abort()


async def test_connections_over_the_limit_are_refused():
    async with GatewayRig(limits=replace(LIMITS, connections_max=2)) as rig:
        held = [await rig.connect() for _ in range(2)]
        for _, writer in held:  # one that sends nothing would make room
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        await until(lambda: len([c for c in rig.frontend._clients if not c.is_idle]) == 2)
        answer = await rig.send_raw(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert statuses(answer) == [503]
        assert b"x-fleetctl-reason: connections" in answer
        for _, writer in held:
            writer.transport.abort()
        await until(lambda: rig.frontend.connections == 0)
        await rig.add("r1")
        assert (await rig.post()).status == 200


KEYS = {"fast": sha256_hash("sk-right"), "slow": scrypt_hash("sk-right", salt=b"0123456789abcdef")}


@pytest.mark.parametrize("kind", ["fast", "slow"])
async def test_only_the_right_key_gets_in(rig, kind):
    await rig.add("r1")
    rig.apply(api_key_hashes=(sha256_hash("another"), KEYS[kind]))
    for _ in range(2):
        assert (await rig.post(headers={"authorization": "Bearer sk-right"})).status == 200
        refused = await rig.post(headers={"authorization": "Bearer sk-wrong"})
        assert refused.status == 401
        assert refused.json["error"]["code"] == "invalid_api_key"
    assert (await rig.post()).status == 401
    assert (await rig.post(headers={"authorization": "Basic sk-right"})).status == 401
    assert (await rig.get("/v1/models")).status == 401
    assert (await rig.get("/health")).status == 200
    assert (await rig.get("/metrics")).status == 200


async def test_a_port_others_can_reach_is_never_open_to_all(rig):
    await rig.add("r1")
    frontend = Frontend("rig", SYSTEM_CLOCK, random.Random(1), LIMITS, is_loopback=False)
    frontend.apply(rig.table())
    rig.frontend = frontend  # Connections made from here on.
    assert (await rig.post()).status == 401
    rig.apply(api_key_hashes=(KEYS["fast"],))
    assert (await rig.post(headers={"authorization": "Bearer sk-right"})).status == 200


async def test_a_revoked_key_is_out_at_once(rig):
    await rig.add("r1")
    rig.apply(api_key_hashes=(KEYS["slow"],))
    assert (await rig.post(headers={"authorization": "Bearer sk-right"})).status == 200
    rig.apply(api_key_hashes=(sha256_hash("new"),))
    assert (await rig.post(headers={"authorization": "Bearer sk-right"})).status == 401


PIECES = [
    raw_post(BODY), raw_post(b'{"messages":[],"stream":true}'), raw_post(b"{"), b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n",
    b"\r\n", b"expect: 100-continue\r\n", b"content-length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
    raw_post(BODY, extra=b"connection: upgrade\r\nupgrade: h2c\r\n"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET http://x/health HTTP/1.1\r\nhost: x\r\n\r\n", b"HEAD /health HTTP/1.0\r\n\r\n",
]  # fmt: skip
fuzz = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=60)), min_size=1, max_size=8).map(b"".join)


@given(data=fuzz, cut=st.integers(0, 400))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_crash_the_gateway(data, cut):
    asyncio.run(_survives(data, cut))


async def _survives(data: bytes, cut: int) -> None:
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with GatewayRig() as rig:
        await rig.add("r1")
        reader, writer = await rig.connect()
        writer.write(data[:cut])
        await SYSTEM_CLOCK.sleep(0)
        writer.write(data[cut:])
        writer.write_eof()
        async with asyncio.timeout(10):
            try:
                while await reader.read(65_536):
                    pass
            except ConnectionError:
                pass
        writer.transport.abort()
        assert (await rig.post()).status == 200
        assert rig.frontend.snapshot(1).lanes[0].in_flight == 0
    assert faults == []
