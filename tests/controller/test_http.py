"""The clients over real sockets: every way not to answer is one error."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from fleetctl.codec import encode
from fleetctl.controller import http
from fleetctl.controller.http import HttpEngineClient, HttpGatewayClient
from fleetctl.errors import UnavailableError
from fleetctl.model.gateway import GatewaySnapshot, ReplicaSignals, RoutingTable, SignalFeed
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
SNAPSHOT = GatewaySnapshot(fleet="demo", at=EPOCH, started_at=EPOCH, table_version=3, pid=1, lanes=(), replicas=())
TABLE = RoutingTable(fleet="demo", version=4, model="m", lanes=(), replicas=())

HANGING: asyncio.Queue[str] = asyncio.Queue()  # whom requests that wait for ever were sent to


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer as the path says."""
    match request.path:
        case "/ok":
            return web.Response(text="fine")
        case "/hang":
            HANGING.put_nowait(request.host)
            await asyncio.Event().wait()
        case "/cut":
            response = web.StreamResponse(headers={"content-length": "100"})
            await response.prepare(request)
            await response.write(b"half")
            assert request.transport is not None
            request.transport.close()
            return response
        case "/binary":
            return web.Response(body=b"\xff\xfe\xfd", content_type="text/plain", charset="utf-8")
        case "/empty":
            return web.Response(status=200)
        case _:
            pass
    return web.Response(status=503, text="overloaded")


@pytest.fixture
async def application() -> AsyncIterator[web.AppRunner]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    yield runner
    await runner.cleanup()


@pytest.fixture
async def port(application: web.AppRunner) -> int:
    return await listening(application)


async def listening(application: web.AppRunner) -> int:
    """Have it listen at another port of its own; return which."""
    await web.TCPSite(application, HOST, 0).start()
    return int(application.addresses[-1][1])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_HEALTH_S", "_METRICS_S", "_COMPLETION_S", "_GATEWAY_S"):
        monkeypatch.setattr(http, name, 0.5)


async def test_warm_ups_of_hundreds_of_replicas_keep_no_health_check_waiting(application, monkeypatch):
    monkeypatch.setattr(http, "_COMPLETION_S", 30.0)
    ports = [await listening(application) for _ in range(40)]
    async with HttpEngineClient() as client:
        warm_ups = [
            asyncio.ensure_future(client.complete(HOST, port, "/hang", b"{}")) for port in ports for _ in range(4)
        ]
        async with asyncio.timeout(20.0):
            await asyncio.gather(*(HANGING.get() for _ in warm_ups))
        assert await client.is_healthy(HOST, await listening(application), "/ok")
        for each in warm_ups:
            each.cancel()
        await asyncio.gather(*warm_ups, return_exceptions=True)


async def test_health_is_200_and_nothing_else(port):
    async with HttpEngineClient() as client:
        assert await client.is_healthy(HOST, port, "/ok")
        assert not await client.is_healthy(HOST, port, "/other")


@pytest.mark.parametrize("path", ["/hang", "/cut"])
async def test_no_answer_is_unavailable(port, path):
    async with HttpEngineClient() as client:
        for call in (client.is_healthy, client.get):
            with pytest.raises(UnavailableError):
                await call(HOST, port, path)
        with pytest.raises(UnavailableError):
            await client.complete(HOST, port, path, b"{}")


async def test_nobody_listening_is_unavailable(unused_port):
    async with HttpEngineClient() as client:
        with pytest.raises(UnavailableError, match=str(unused_port)):
            await client.is_healthy(HOST, unused_port, "/ok")


@pytest.fixture
async def unused_port() -> int:
    server = await asyncio.start_server(lambda *_: None, HOST, 0)
    number: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return number


async def test_a_page_that_is_no_text_or_no_200_is_unavailable(port):
    async with HttpEngineClient() as client:
        assert await client.get(HOST, port, "/ok") == "fine"
        for path in ("/binary", "/other"):
            with pytest.raises(UnavailableError):
                await client.get(HOST, port, path)


async def test_a_completion_must_be_a_200_with_a_body(port):
    async with HttpEngineClient() as client:
        await client.complete(HOST, port, "/ok", b"{}")
        with pytest.raises(UnavailableError, match="503: overloaded"):
            await client.complete(HOST, port, "/other", b"{}")
        with pytest.raises(UnavailableError):
            await client.complete(HOST, port, "/empty", b"{}")


FEED = SignalFeed(replicas=(ReplicaSignals(id="r1", age_s=0.5, running=3, waiting=1, kv_usage=0.25),))


@pytest.fixture
async def gateway() -> AsyncIterator[HttpGatewayClient]:
    root = Path(tempfile.mkdtemp(prefix="fh-"))
    replies = iter([200, 409, 500, -1])

    async def put(request: web.Request) -> web.Response:
        assert await request.read() == encode(TABLE)
        status = next(replies)
        if status < 0:
            return web.Response(text="not json")
        return web.json_response({"version": 4 if status == 200 else 9}, status=status)

    async def take_signals(request: web.Request) -> web.Response:
        return web.Response(status=200 if await request.read() == encode(FEED) else 400)

    async def snapshot(_: web.Request) -> web.Response:
        return web.Response(body=encode(SNAPSHOT))

    application = web.Application()
    application.router.add_put("/v1/table", put)
    application.router.add_get("/v1/snapshot", snapshot)
    application.router.add_put("/v1/signals", take_signals)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(root / "gateway.sock")).start()
    async with HttpGatewayClient(lambda: root / "gateway.sock") as client:
        yield client
    await runner.cleanup()
    shutil.rmtree(root)


async def test_the_gateway_gives_its_snapshot_and_takes_tables(gateway):
    assert await gateway.snapshot() == SNAPSHOT
    assert await gateway.put_table(TABLE) == 4
    assert await gateway.put_table(TABLE) == 9  # it has a newer one
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await gateway.put_table(TABLE)


async def test_the_gateway_takes_engine_figures(gateway):
    await gateway.put_signals(FEED)
    with pytest.raises(UnavailableError, match="400"):
        await gateway.put_signals(SignalFeed(replicas=()))


async def test_a_gateway_without_a_socket_is_unavailable(tmp_path):
    async with HttpGatewayClient(lambda: tmp_path / "none.sock") as client:
        with pytest.raises(UnavailableError, match="the gateway"):
            await client.snapshot()
