"""The process's life: bind, start up, serve, and end as the engine it looks like would.

The port is bound at once, so that a taken one is known at once, and listens only when start-up is over: before that
connections are refused, as with vLLM, and with TGI, whose router binds when its shards are warm. SGLang listens a little
earlier and says 503 on /health while it warms up.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.emulator.admin import AdminRoutes
from fleetctl.emulator.board import FaultBoard
from fleetctl.emulator.doorway import Doorway
from fleetctl.emulator.engine import Engine
from fleetctl.emulator.flavours import make_parts, make_routes
from fleetctl.emulator.front import Front
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.emulator.cards import Instance
    from fleetctl.emulator.options import Options

_BODY_BYTES_MAX = 64 * 1024 * 1024
_BACKLOG = 2048  # uvicorn's
_WARM_UP_SHARE = 0.1  # of start-up, with the port open
_CLOSING_S = 2.0  # for the last bytes of aborted responses


class Server:
    """Is one emulated engine. `run` returns the exit status."""

    def __init__(self, options: Options, instance: Instance, clock: Clock) -> None:
        self._options, self._clock = options, clock
        started_s = clock.now().timestamp()
        parts = make_parts(options, instance, started_s=started_s)
        self._engine = Engine(parts.scheduler, parts.metrics, loop=asyncio.get_running_loop(), clock=clock)
        self._board = FaultBoard(self._engine, instance.timer)
        self._front = Front(self._engine, parts.dialect, self._board, max_model_len=instance.max_model_len, clock=clock)
        self._told_to_end = asyncio.Event()
        self._site: web.SockSite | None = None
        self._runner = self._make_runner()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Serve until told to end. Raises ConfigError if the port is taken."""
        self._board.put(self._options.faults)
        self._board.watch(self._faults_changed)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_end.set)
        listener = _bind(self._options.host, self._options.port)
        with listener:
            await self._runner.setup()
            try:
                if await self._start_up(listener):
                    await self._told_to_end.wait()
                    await self._drain()
            finally:
                await self._runner.cleanup()
        return 0

    def _make_runner(self) -> web.AppRunner:
        app = web.Application(
            middlewares=[Doorway(self._front, api_key=self._options.api_key).through], client_max_size=_BODY_BYTES_MAX
        )
        app.add_routes(make_routes(self._front, self._options).routes())
        app.add_routes(AdminRoutes(self._front).routes())
        app.router.add_get("/metrics", self._metrics)
        # A client that goes away takes its request along at once.
        return web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_CLOSING_S)

    async def _metrics(self, _: web.Request) -> web.Response:
        page = self._board.metrics(lambda as_nan: self._engine.metrics.page(as_nan=as_nan))
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _start_up(self, listener: socket.socket) -> bool:
        """Take the time that loading weights takes; False if told to end meanwhile."""
        startup_s, dialect = self._options.startup_s, self._front.dialect
        if "never-ready" in self._board:
            await self._told_to_end.wait()
            return False
        warm_up_s = startup_s * _WARM_UP_SHARE if dialect.warms_up_listening else 0.0
        if await self._told_within(startup_s - warm_up_s):
            return False
        self._front.is_warm = not warm_up_s
        await self._listen(listener)
        if warm_up_s and await self._told_within(warm_up_s):
            return False
        self._front.is_warm = True
        host, port = listener.getsockname()[:2]
        sys.stdout.write(f"{dialect.name} look-alike ready on http://{host}:{port}\n")
        sys.stdout.flush()
        return True

    async def _told_within(self, seconds: float) -> bool:
        if seconds <= 0:
            return self._told_to_end.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._told_to_end.wait()
        except TimeoutError:
            return False
        return True

    async def _listen(self, listener: socket.socket) -> None:
        if self._board.refuses_connections:
            return
        self._site = web.SockSite(self._runner, listener, backlog=_BACKLOG)
        await self._site.start()

    async def _drain(self) -> None:
        """End what runs, as the flavour does. A second signal changes nothing."""
        manners = self._front.dialect.manners
        self._front.is_draining = True
        if not manners.keeps_listening:
            await self._stop_listening()
        if manners.drain_s == 0:
            self._front.abort_all()
            return
        try:
            async with asyncio.timeout(manners.drain_s):
                await self._front.idle.wait()
        except TimeoutError:
            # A real vLLM leaves its clients hanging here and its front end alive. This one ends, and their
            # connections with it: nothing that was started is left behind.
            self._front.cut_all()

    async def _stop_listening(self) -> None:
        if self._site is not None:
            site, self._site = self._site, None
            await site.stop()

    def _faults_changed(self) -> None:
        if self._board.refuses_connections:
            task = asyncio.ensure_future(self._stop_listening())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound but not listening: connections to it are refused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"{host}:{port} cannot be bound: {error.strerror}", hint="is another engine running there?"
        ) from error
    return listener
