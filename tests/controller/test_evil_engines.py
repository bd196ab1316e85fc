"""What the controller reads of an engine is bounded in bytes and in time, whatever the engine sends."""

from __future__ import annotations

import asyncio
import gzip
import resource
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.controller import http
from fleetctl.controller.http import HttpEngineClient
from fleetctl.engine_kit import reading
from fleetctl.errors import UnavailableError
from fleetctl.model.slo import Validity
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
GROWTH_KIB_MAX = 100 * 1024
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"content-type: text/plain; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = 64 * 1024
LONG_LINE = b"x" * PIECE
METRIC_LINES = b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % number for number in range(2000))

ENDLESS = {
    "one header": (OK + b"x-long: ", LONG_LINE),
    "headers": (OK, b"x-one-of-many: 1\r\n" * 4000),
    "status line": (b"HTTP/1.1 200 ", LONG_LINE),
    "interim responses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000),
    "a body": (CHUNKED, b"%x\r\n%b\r\n" % (PIECE, LONG_LINE)),
    "a body until the connection ends": (b"HTTP/1.0 200 OK\r\n\r\n", LONG_LINE),
    "metrics": (CHUNKED, b"%x\r\n%b\r\n" % (len(METRIC_LINES), METRIC_LINES)),
    "chunk extensions": (CHUNKED + b"5;", LONG_LINE),
    "trailers": (CHUNKED + b"0\r\n", b"x-one-of-many: 1\r\n" * 4000),
    "no body of a long one": (OK + b"content-length: 1000000000\r\n\r\n", LONG_LINE),
}


@asynccontextmanager
async def serving(head: bytes, piece: bytes = b"", *, pause_s: float = 0.0) -> AsyncIterator[int]:
    """Serve the same bytes on every connection: a head, then the piece for ever."""
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while piece:
                writer.write(piece)
                await writer.drain()
                await SYSTEM_CLOCK.sleep(pause_s)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if piece else writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HEALTH_S", "_METRICS_S", "_COMPLETION_S"):
        monkeypatch.setattr(http, name, 1.0)


async def call_engine(client: HttpEngineClient, call: str, port: int) -> None:
    if call == "health":
        await client.is_healthy(HOST, port, "/health")
    elif call == "metrics":
        await client.get(HOST, port, "/metrics")
    else:
        await client.complete(HOST, port, "/v1/completions", b"{}")


@pytest.mark.parametrize("call", ["health", "metrics", "completion"])
@pytest.mark.parametrize("what", ENDLESS)
async def test_an_answer_without_end_is_no_answer_and_takes_no_memory(what, call):
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with serving(*ENDLESS[what]) as port, HttpEngineClient() as client:
        began_s = SYSTEM_CLOCK.monotonic_s()
        with pytest.raises(UnavailableError):
            await call_engine(client, call, port)
        assert SYSTEM_CLOCK.monotonic_s() - began_s < 30.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX


@pytest.mark.parametrize("head", [OK, CHUNKED])
async def test_an_answer_that_drips_is_given_up_at_the_deadline_of_the_whole(head):
    piece = b"x: 1\r\n" if head is OK else b"1\r\nx\r\n"
    async with serving(head, piece, pause_s=0.05) as port, HttpEngineClient() as client:
        began_s = SYSTEM_CLOCK.monotonic_s()
        with pytest.raises(UnavailableError):
            await client.is_healthy(HOST, port, "/health")
        assert SYSTEM_CLOCK.monotonic_s() - began_s < 15.0


async def test_a_compressed_page_is_not_unpacked():
    packed = gzip.compress(b"0" * 50_000_000)
    head = OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with serving(head + packed) as port, HttpEngineClient() as client:
        with pytest.raises(UnavailableError, match="no text"):
            await client.get(HOST, port, "/metrics")


async def test_a_redirect_is_not_followed():
    async with (
        serving(OK + b"content-length: 0\r\n\r\n") as elsewhere,
        serving(
            b"HTTP/1.1 302 Found\r\nlocation: http://%b:%d/\r\ncontent-length: 0\r\n\r\n" % (HOST.encode(), elsewhere)
        ) as port,
        HttpEngineClient() as client,
    ):
        assert not await client.is_healthy(HOST, port, "/health")


def test_a_name_with_too_many_samples_has_no_total():
    many = "".join(f'running{{engine="{number}"}} 1\n' for number in range(100_000))
    assert parse(many).total("running") != parse(many).total("running")  # not a number


@pytest.mark.parametrize("figure", [1e300, float("inf"), -1.0, float("nan"), 2.0**60])
def test_figures_that_nobody_could_count_to_are_invalid(figure):
    read = reading.signals(
        running=figure, waiting=0.0, kv_usage=0.5, preemptions=0.0, prompt_tokens=1.0, output_tokens=1.0
    )
    assert read.validity is Validity.INVALID
