"""The controller's way in where it has no socket in common with the gateway: the admin calls over TCP, to who has the token.

Whether figures are for everybody who reaches it, as Prometheus does, says whoever starts it.

What changes something names the epoch of its controller's lease. Once one of a newer epoch has spoken, in whatever call, nothing
of an older one is taken: neither a table nor figures.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl import codec
from fleetctl.errors import ConfigError
from fleetctl.gateway import admin
from fleetctl.gateway.metrics import CONTENT_TYPE
from fleetctl.gateway.pages import METRICS
from fleetctl.gateway.sharing_routes import ALLOTMENT
from fleetctl.model.gateway_process import EPOCH_HEADER, LIVEZ, READYZ, TOKEN_HEADER, GatewayIdentity

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from fleetctl.gateway.frontend import Frontend

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger("fleetctl.gateway")
_PROBES = (READYZ, LIVEZ)
_NUMBER_MAX = 1 << 20


class ControlSurface:
    """Serves one gateway's admin calls at a port of its own, from `start` until `close`."""

    def __init__(
        self, frontend: Frontend, *, token: Path, is_ready: Callable[[], bool], opens_metrics: bool = False
    ) -> None:
        self._frontend = frontend
        self._token = token  # read with every call: whoever replaces it is followed
        self._is_ready = is_ready
        self._open = frozenset((*_PROBES, *((METRICS.decode(),) if opens_metrics else ())))
        self._instance = secrets.token_hex(8)
        self._epoch = 0
        # Which of several it is says the controller that finds it.
        frontend.pages.number = 0
        application = admin.app(frontend, middlewares=(self._guarded,))
        application.router.add_get(READYZ, self._readyz)
        application.router.add_get(LIVEZ, self._livez)
        application.router.add_get(METRICS.decode(), self._metrics)
        application.router.add_get("/v1/identity", self._identity)
        application.router.add_put("/v1/number", self._put_number)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self, addresses: Sequence[str], port: int) -> None:
        """Listen at the first address, and at each other that is to be had. Raises ConfigError."""
        await self._runner.setup()
        for number, address in enumerate(addresses):
            try:
                await web.TCPSite(self._runner, address, port).start()
            except OSError as exc:
                if number == 0:
                    raise ConfigError(
                        f"cannot listen for the controller on {address}:{port}: {exc.strerror}",
                        hint="choose another --control-port, or stop what uses it",
                    ) from exc
                _log.warning("nothing listens for the controller at %s port %d: %s", address, port, exc.strerror)

    async def close(self) -> None:
        """Answer no more."""
        await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in self._open:
            return await handler(request)
        given = request.headers.get(TOKEN_HEADER, "")
        wanted = await asyncio.to_thread(self._read_token)
        if not wanted:
            return web.Response(status=503, text="the token cannot be read")
        if not hmac.compare_digest(given.encode(), wanted):
            return web.Response(status=401, text="no such token")
        if request.method == "GET":
            return await handler(request)
        return self._refused(request) or await handler(request)

    def _refused(self, request: web.Request) -> web.Response | None:
        """Return the answer to a change that is not taken; None: it is its controller's to make."""
        text = request.headers.get(EPOCH_HEADER, "")
        if not text.isdecimal():
            return web.json_response({"error": f"{EPOCH_HEADER} is missing, or no number"}, status=400)
        table, sharing = self._frontend.dispatcher.routes.table, self._frontend.dispatcher.sharing
        self._epoch = max(self._epoch, sharing.epoch, table.epoch if table is not None else 0)
        if request.path == ALLOTMENT:
            sharing.fence(self._epoch)  # it is refused by its own epoch, and answered with what this gateway has
            return None
        if int(text) < self._epoch:
            _log.warning("a controller of epoch %s is refused: one of epoch %d has spoken", text, self._epoch)
            version = table.version if table is not None else 0
            return web.json_response(
                {"error": f"fenced: a controller of epoch {self._epoch} has spoken", "version": version}, status=409
            )
        self._epoch = int(text)
        sharing.fence(self._epoch)
        return None

    def _read_token(self) -> bytes:
        """Return the token; empty: it cannot be read, which lets nobody in."""
        try:
            return self._token.read_bytes().strip()
        except OSError as exc:
            _log.error("the token %s cannot be read: %s", self._token, exc.strerror)
            return b""

    async def _readyz(self, _: web.Request) -> web.Response:
        """Say whether clients are to be sent here: it has a table and its part of the limits."""
        return web.Response(text="ok") if self._is_ready() else web.Response(status=503, text="not ready")

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")  # that the loop turns is all there is to say

    async def _metrics(self, _: web.Request) -> web.Response:
        """Return this gateway's own figures, and the controller's readings."""
        pages = self._frontend.pages
        page = pages.metrics(pages.number) + pages.slo_metrics()
        return web.Response(body=page, headers={"content-type": CONTENT_TYPE.decode()})

    async def _identity(self, _: web.Request) -> web.Response:
        found = GatewayIdentity(instance=self._instance, number=self._frontend.pages.number)
        return web.Response(body=codec.encode(found), content_type="application/json")

    async def _put_number(self, request: web.Request) -> web.Response:
        """Take a number among several; it is kept until the process ends, whichever controller comes after."""
        text = request.query.get("number", "")
        if not text.isdecimal() or not 0 < int(text) <= _NUMBER_MAX:
            return web.json_response({"error": f"no number of a gateway: {text!r}"}, status=400)
        if request.query.get("instance") != self._instance:
            return web.json_response({"error": "another process was meant"}, status=409)
        self._frontend.pages.number = int(text)
        _log.info("this is gateway %s now", text)
        return await self._identity(request)
