"""A proxy before the API server that answers some requests with a fault, or cuts them before or after their effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable  # noqa: TC003  # a dataclass's field
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


@dataclass
class FaultProxy:
    """Passes requests on, but for those that a fault waits for."""

    upstream: str
    session: aiohttp.ClientSession
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)  # by method and path
    choose: Callable[[str, str], Fault | None] = lambda *_: None  # by method and path, for what no fault waits for

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; a fault strikes once."""
        self.calls[request.method, request.path] += 1
        fault = next((f for f in self.faults if f.method == request.method and request.path.endswith(f.path)), None)
        if fault is not None:
            self.faults.remove(fault)
        else:
            fault = self.choose(request.method, request.path)
        if fault is None:
            return await self._passed_on(request)
        if fault.after:
            await self._passed_on(request)
        if not fault.status:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        status = {"kind": "Status", "status": "Failure", "code": fault.status, "message": fault.message}
        return web.json_response(status, status=fault.status, headers=fault.headers)

    async def _passed_on(self, request: web.Request) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url, body = f"{self.upstream}{request.path_qs}", await request.read()
        async with self.session.request(request.method, url, headers=headers, data=body) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())


@asynccontextmanager
async def fault_proxy(upstream: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    """Run a proxy before an API server, and yield it with its address."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
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
