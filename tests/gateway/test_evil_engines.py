"""Engines that break HTTP, lie about lengths, or never end: each costs its own exchange and nothing else."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.gateway.rig import LIMITS, GatewayRig, until
from tests.gateway.scripted import Script, Seen, Wire, answers, completion, delta, usage_event

GROWTH_KIB_MAX = 100 * 1024
PIECE = 64 * 1024
MUCH = 64 * 1024 * 1024  # bytes that an engine sends before this suite believes that it could go on for ever
OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"content-type: application/json\r\n"
SSE = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def sends(head: bytes, piece: bytes = b"", *, much: int = MUCH) -> Script:
    """Sends a head, then the same piece over and over."""

    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.raw(head)
        for _ in range(much // len(piece) if piece else 0):
            await wire.raw(piece)
        wire.writer.close()

    return script


LONG_LINE = b"x" * PIECE
HEADERS = b"".join(b"x-%d: %b\r\n" % (i, b"v" * 100) for i in range(500))
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 1000

ENDLESS = {
    "one header": (OK + b"x-long: ", LONG_LINE),
    "headers": (OK, HEADERS),
    "status line": (b"HTTP/1.1 200 ", LONG_LINE),
    "interim responses": (b"", INTERIM),
    "chunk extension": (SSE + b"5;", LONG_LINE),
    "chunk extensions of a stream": (SSE + b'd\r\ndata: {"a":1}\r\n5;', LONG_LINE),
    "trailers": (SSE + b"0\r\n", HEADERS),
    "one trailer": (SSE + b"0\r\nx: ", LONG_LINE),
    "chunk size": (SSE, b"0" * PIECE),
    "an event": (SSE, b"%x\r\n%b\r\n" % (PIECE, LONG_LINE)),
    "a line of comments": (SSE, b"%x\r\n:%b\r\n" % (PIECE + 1, LONG_LINE)),
    "blank lines before the answer": (b"", b"\r\n" * 1000),
}


async def add_evil(rig: GatewayRig, script: Script) -> None:
    """Add as many evil replicas as a request may visit, so that it ends with what the last one did."""
    for name in ("evil", "worse", "worst"):
        await rig.add(name, script)


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_has_no_end_ends_as_502_and_is_counted(rig, what):
    await add_evil(rig, sends(*ENDLESS[what]))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = await rig.post(stream=True)
    assert answer.status == 502
    assert answer.json["error"]["type"] == "server_error"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX
    assert any(replica.failures for replica in rig.frontend.snapshot(1).replicas)


@pytest.mark.parametrize(
    "what", ["one header", "headers", "status line", "interim responses", "trailers", "chunk extension"]
)
async def test_endless_heads_and_tails_are_on_the_metrics_page_and_the_next_replica_answers(rig, what):
    await rig.add("evil", sends(*ENDLESS[what]))
    good = await rig.add("good")
    for _ in range(3):
        answer = await rig.post()
        assert answer.status == 200
        assert answer.headers["x-fleetctl-replica"] == "good"
    assert len(good.seen) == 3
    page = (await rig.get("/metrics")).body.decode()
    line = 'fleetctl_gateway_replica_protocol_errors_total{fleet="rig",replica="evil",lane="chat"} '
    assert float(page.split(line)[1].split("\n")[0]) >= 1


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02 not HTTP at all\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        OK + b"content-length: nine\r\n\r\n",
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        OK + b"bad header\r\n\r\n",
        OK + b"x: a\x00b\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nPRI * HTTP/2.0",
        OK + JSON + b"content-length: 1000\r\n\r\n{}",
        OK + JSON + b"transfer-encoding: chunked\r\n\r\n100\r\nshort",
        OK + b"content-length: 18446744073709551616\r\n\r\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_no_http_or_ends_early_is_a_502(rig, raw, stream):
    await add_evil(rig, sends(raw))
    answer = await rig.post(stream=stream)
    assert answer.status == 502
    assert answer.json["error"]["type"] == "server_error"


WHOLE = b'{"choices":[{"message":{"content":"hi"}}]}'


@pytest.mark.parametrize(
    "surplus",
    [
        b"garbage",
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
        b"HTTP/1.1 500 Oops\r\nx-forged: 1\r\ncontent-length: 6\r\n\r\nforged",
        b"\x00" * 100,
        b"a" * PIECE,
    ],
)
async def test_what_follows_a_whole_answer_is_dropped_with_its_connection(rig, surplus):
    evil = await rig.add("evil", sends(OK + JSON + b"content-length: %d\r\n\r\n%b%b" % (len(WHOLE), WHOLE, surplus)))
    for number in range(1, 3):
        answer = await rig.post()
        assert (answer.status, answer.body) == (200, WHOLE)
        assert "x-forged" not in answer.headers
        assert evil.connections == number


async def test_bytes_that_nobody_asked_for_close_the_idle_connection(rig):
    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.whole(200, completion("hi"))
        await SYSTEM_CLOCK.sleep(0.05)
        await wire.raw(OK + b"content-length: 6\r\n\r\nforged")

    await rig.add("evil", script)
    assert (await rig.post()).json["choices"][0]["message"]["content"] == "hi"
    await until(lambda: len(rig.frontend.upstreams["evil"]) == 0)
    assert (await rig.post()).json["choices"][0]["message"]["content"] == "hi"


async def test_trailers_are_dropped(rig):
    whole = b'{"choices":[{"index":0}]}'
    body = b"%x\r\n%b\r\n0\r\nx-late: 1\r\n\r\n" % (len(whole), whole)
    await rig.add("r1", sends(OK + JSON + b"transfer-encoding: chunked\r\n\r\n" + body))
    answer = await rig.post()
    assert (answer.status, answer.body) == (200, whole)
    assert "x-late" not in answer.headers


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308, 399])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_redirect_reaches_no_client(rig, status, stream):
    head = b"HTTP/1.1 %d Elsewhere\r\nlocation: http://169.254.169.254/latest/meta-data/\r\ncontent-length: 0\r\n\r\n"
    await add_evil(rig, sends(head % status))
    answer = await rig.post(stream=stream)
    assert answer.status == 502
    assert "location" not in answer.headers


async def test_an_engine_cannot_speak_for_the_gateway(rig):
    forged = b"x-fleetctl-replica: r999\r\nX-Fleetctl-Degraded: forged\r\n"
    await rig.add("r1", sends(OK + JSON + forged + b"content-length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE)))
    answer = await rig.post()
    assert (answer.status, answer.headers["x-fleetctl-replica"]) == (200, "r1")
    assert "x-fleetctl-degraded" not in answer.headers


async def test_http_1_0_ends_its_answer_with_the_connection(rig):
    await rig.add("old", sends(b"HTTP/1.0 200 OK\r\n" + JSON + b"\r\n" + WHOLE))
    answer = await rig.post()
    assert (answer.status, answer.body) == (200, WHOLE)


async def test_an_endless_error_ends_with_what_is_held_of_it():
    limits = replace(LIMITS, whole_bytes_max=256 * 1024)
    async with GatewayRig(limits=limits) as rig:
        evil = await rig.add(
            "evil",
            sends(b"HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n" % (PIECE, LONG_LINE)),
        )
        answer = await rig.post()
        assert answer.status == 400
        assert len(answer.body) <= limits.whole_bytes_max
        await until(lambda: evil.broken_off)


async def test_headers_that_drip_are_given_up_after_the_stall_limit(rig):
    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.raw(OK)
        while True:
            await wire.raw(b"x-drip: 1\r\n")
            await SYSTEM_CLOCK.sleep(0.02)

    rig.apply(stall_timeout_s=0.3)
    await rig.add("evil", script)
    assert (await rig.post(stream=True)).status in (502, 503, 504)


async def test_a_compressed_stream_is_no_stream_and_no_answer(rig):
    await add_evil(
        rig,
        sends(
            OK
            + b"content-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\n\x1f\x8b\x08\x00\x00"
        ),
    )
    assert (await rig.post(stream=True)).status == 502


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"GZIP, identity", b"zstd"])
async def test_a_compressed_answer_reaches_no_client_that_would_unpack_it(rig, coding):
    head = b"content-encoding: %b\r\ncontent-length: 5\r\n\r\n\x1f\x8b\x08\x00\x00" % coding
    await add_evil(rig, sends(OK + JSON + head))
    assert (await rig.post()).status == 502


async def test_an_answer_may_say_that_it_is_not_compressed(rig):
    await rig.add(
        "r1", sends(OK + JSON + b"content-encoding: identity\r\ncontent-length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE))
    )
    assert (await rig.post()).body == WHOLE


NESTED = b"[" * 100_000
EVENTS = {
    "a deep event": b'{"choices":' + NESTED,
    "a deep error": b'{"error":{"message":' + NESTED,
    "an error with a strange code": '{"error":{"message":"no","code":"²"}}'.encode(),
    "an error with a long code": b'{"error":{"message":"no","code":"%b"}}' % (b"9" * 5000),
    "choices that are numbers": b'{"choices":[1]}',
    "a delta that is a list": b'{"choices":[{"index":0,"delta":[1]}]}',
    "text that is a list": b'{"choices":[{"index":0,"delta":{"content":[1,2]}}]}',
    "tokens without number": b'{"choices":[],"usage":{"prompt_tokens":%b,"completion_tokens":%b}}' % (b"9" * 400, b"9" * 6000),
}  # fmt: skip


ERRORS = [what for what in EVENTS if "error" in what]  # a stream that could go on would wait for a better replica


@pytest.mark.parametrize("what", EVENTS)
async def test_events_of_any_shape_harm_no_other_request_and_no_figure(rig, what):
    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        await wire.event(delta("hi"))
        await wire.chunk(b"data: " + EVENTS[what] + b"\n\n")
        await wire.event(delta(finish="stop"))
        await wire.event(usage_event(10**30, 10**30))
        await wire.done()

    for name in ("evil", "worse", "worst"):
        await rig.add(name, script, continues=name == "evil" and what not in ERRORS)
    broken: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    answer = await rig.post(stream=True)
    assert answer.status in (200, 502)
    assert not broken
    assert rig.window().output_tokens < 100
    for replica in rig.replicas:
        replica.script = answers(["fine"])
    assert (await rig.post(stream=True)).text == "fine"


async def test_an_answer_before_the_end_of_its_request_costs_its_connection_at_most(rig):
    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.whole(200, completion("early"))

    await rig.add("r1", script)
    for _ in range(3):
        answer = await rig.post(messages=[{"role": "user", "content": "x" * 900_000}])
        assert answer.json["choices"][0]["message"]["content"] == "early"
