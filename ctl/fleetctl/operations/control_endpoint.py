"""Answers for a fleet's processes over TCP, where their Unix sockets are out of reach: in a pod, to who has its token.

What it passes on is what commands ask: the controller's status, a wake, the gateway's memory of requests, logs. The gateway's
own admin socket stays closed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from fleetctl.codec import encode
from fleetctl.errors import FleetctlError, UnavailableError
from fleetctl.model.gateway_process import LIVEZ, READYZ, TOKEN_HEADER
from fleetctl.model.request_trace import TraceQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from fleetctl.operations.site import Site

_log = logging.getLogger("fleetctl.control_endpoint")
_LOG_BYTES_MAX = 4 << 20
_STATUS_S = 5.0
_START_S, _END_S = 20.0, 5.0
_PROCESS_CHARS_MAX = 20


class ControlEndpoint:
    """Serves one fleet on a thread of its own, from `start` until `close`."""

    def __init__(self, site: Site, fleet: str, *, token: Path, is_alive: Callable[[], bool]) -> None:
        self._site = site
        self._fleet = fleet
        self._token = token  # read with every request: whoever replaces it is followed
        self._is_alive = is_alive
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._is_serving = False
        self._addresses: Sequence[str] = ()
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="control-endpoint", daemon=True)

    def start(self, addresses: Sequence[str], port: int) -> None:
        """Listen at each address that is to be had. Raises UnavailableError where none is."""
        self._addresses, self._port = addresses, port
        self._thread.start()
        if not self._started.wait(_START_S) or not self._is_serving:
            raise UnavailableError(f"nothing can listen at port {port}: {self._failure or 'no answer'}")

    def close(self) -> None:
        """Answer no more."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            for address in self._addresses:
                try:
                    await web.TCPSite(runner, address, self._port).start()
                except OSError as exc:
                    _log.warning("nothing listens at %s port %d: %s", address, self._port, exc.strerror)
                    self._failure = exc
            if not runner.addresses:
                return
            self._is_serving = True
            self._started.set()
            await self._ended.wait()
        finally:
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guarded], client_max_size=64 * 1024)
        router = application.router
        router.add_get(LIVEZ, self._livez)
        router.add_get(READYZ, self._readyz)
        router.add_get("/v1/status", self._status)
        router.add_post("/v1/wake", self._wake)
        router.add_get("/v1/requests", self._requests)
        router.add_get("/v1/logs/{process}", self._logs)
        return application

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer who has the token; whether we live is said to everybody, as kubelet has none."""
        if request.path in (LIVEZ, READYZ):
            return await handler(request)
        given = request.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), (await asyncio.to_thread(self._wanted)).encode()):
            return web.Response(status=401, text="no such token")
        try:
            return await handler(request)
        except UnavailableError as exc:
            return web.Response(status=503, text=exc.message)
        except FleetctlError as exc:
            return web.Response(status=500, text=exc.message)

    def _wanted(self) -> str:
        """Return the token; one that cannot be read lets nobody in."""
        try:
            found = self._token.read_text().strip()
        except OSError as exc:
            raise web.HTTPServiceUnavailable(text=f"the token cannot be read: {exc.strerror}") from exc
        if not found:
            raise web.HTTPServiceUnavailable(text="the token is empty")
        return found

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok") if self._is_alive() else web.Response(status=503, text="stands still")

    async def _readyz(self, _: web.Request) -> web.Response:
        """Say whether a controller is at work here: one that stands by, as another's lease holds, is not."""
        found = await asyncio.to_thread(self._site.host.processes, self._fleet)
        return web.Response(text="ok") if found.has_controller else web.Response(status=503, text="no controller here")

    async def _status(self, _: web.Request) -> web.Response:
        found = await asyncio.to_thread(self._site.host.status, self._fleet, deadline_s=_STATUS_S)
        return _json(encode(found))

    async def _wake(self, _: web.Request) -> web.Response:
        if not await asyncio.to_thread(self._site.host.wake, self._fleet):
            return web.Response(status=503, text=f"the controller of {self._fleet} does not answer")
        return _json(b"{}")

    async def _requests(self, request: web.Request) -> web.Response:
        try:
            query = msgspec.convert(dict(request.query), TraceQuery, strict=False)
        except msgspec.ValidationError as exc:
            return web.Response(status=400, text=str(exc))
        return _json(encode(await asyncio.to_thread(self._site.host.request_traces, self._fleet, query)))

    async def _logs(self, request: web.Request) -> web.Response:
        process = request.match_info["process"]
        try:
            after = int(request.query["after"]) if "after" in request.query else None
            most = min(int(request.query.get("bytes_max", _LOG_BYTES_MAX)), _LOG_BYTES_MAX)
        except ValueError as exc:
            return web.Response(status=400, text=str(exc))
        # It becomes a file's name.
        if not process.replace("-", "").isalnum() or len(process) > _PROCESS_CHARS_MAX or (after or 0) < 0 or most < 0:
            return web.Response(status=400, text="no such log")
        read = self._site.host.read_log
        return _json(encode(await asyncio.to_thread(read, self._fleet, process, after=after, bytes_max=most)))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
