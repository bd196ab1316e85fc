"""A proxy before the API server that answers some requests with a fault, or cuts them before or after their effect."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable  # a dataclass's field
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_BODY_BYTES_MAX = 4 * 2**20
_HOP = {"host", "content-length", "transfer-encoding", "content-encoding", "connection", "accept-encoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What becomes of one request: an answer of the proxy's own, or none; `after`: the API server has done it all the same."""

    method: str = "POST"
    path: str = "/pods"  # the end of it
    status: int = 0  # 0: the connection is cut
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "a fault of the test's"
    after: bool = False
    until: threading.Event | None = None  # the request is held until then, and passed on after all


@dataclass
class FaultProxy:
    """Passes requests on, but for those that a fault waits for."""

    upstream: str
    session: aiohttp.ClientSession
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)  # by method and path
    held: dict[str, threading.Event] = field(default_factory=dict)  # by path, what was held until when
    answers: list[tuple[str, str, int]] = field(default_factory=list)  # of what was passed on, in order
    # By method (WATCH for a watch) and path, for what no fault waits for.
    choose: Callable[[str, str], Fault | None] = lambda *_: None
    _watches: set[asyncio.Transport] = field(default_factory=set)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; a fault strikes once."""
        self.calls[request.method, request.path] += 1
        verb = "WATCH" if "watch" in request.query else request.method
        fault = next((f for f in self.faults if f.method == verb and request.path.endswith(f.path)), None)
        if fault is not None:
            self.faults.remove(fault)
        else:
            fault = self.choose(verb, request.path)
        if fault is None:
            return await self._passed_on(request)
        if fault.until is not None:
            await request.read()
            self.held[request.path] = fault.until
            await asyncio.to_thread(fault.until.wait, 300)
            return await self._passed_on(request)
        if fault.after:
            await self._passed_on(request)
        if not fault.status:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        status = {"kind": "Status", "status": "Failure", "code": fault.status, "message": fault.message}
        return web.json_response(status, status=fault.status, headers=fault.headers)

    async def _passed_on(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url, body = f"{self.upstream}{request.path_qs}", await request.read()
        async with self.session.request(request.method, url, headers=headers, data=body) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            if "watch" in request.query:
                assert request.transport is not None
                self._watches.add(request.transport)
                try:
                    return await _streamed(request, answer, kept)
                finally:
                    self._watches.discard(request.transport)
            body = await answer.read()
            self.answers.append((request.method, request.path, answer.status))
            return web.Response(status=answer.status, headers=kept, body=body)

    def cut_watches(self) -> None:
        """Cut every watch that is open."""
        for each in tuple(self._watches):
            each.abort()


async def _streamed(
    request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    try:
        async for part in answer.content.iter_any():
            await response.write(part)
    except ConnectionError:
        pass  # whoever watched has gone
    return response


@asynccontextmanager
async def fault_proxy(upstream: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    """Run a proxy before an API server, and yield it with its address."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False), timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
    ) as session:
        proxy = FaultProxy(upstream, session)
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield proxy, f"http://{host}:{port}"
        finally:
            await runner.cleanup()


@contextmanager
def proxy_thread(
    upstream: str, choose: Callable[[str, str], Fault | None] = lambda *_: None
) -> Iterator[tuple[FaultProxy, str]]:
    """Run one on a thread of its own, for tests that have no loop."""
    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[tuple[FaultProxy, str]] = []

    async def serve() -> None:
        async with fault_proxy(upstream) as (proxy, url):
            proxy.choose = choose
            found.append((proxy, url))
            started.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(20)
        yield found[0]
    finally:
        for proxy, _ in found:
            for event in proxy.held.values():
                event.set()
        loop.call_soon_threadsafe(ended.set)
        thread.join(timeout=20)
        loop.close()
