"""The process's life: bind, start up, serve, and end as the engine it plays does.

The port is bound at once, so that a taken one is known at once, and listens only when start-up is over: before that
connections are refused, as with vLLM, and with TGI, whose router binds when its shards are warm. SGLang listens a little
earlier and says 503 on /health while it warms up.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.core.perf.frontend import FRONTEND_S
from fleetctl.errors import ConfigError
from fleetctl_emulator.admin import AdminRoutes
from fleetctl_emulator.engine_core import EngineCore
from fleetctl_emulator.fault_injector import FaultInjector
from fleetctl_emulator.group import GroupLeader
from fleetctl_emulator.instance import limits, shutdown_behaviour
from fleetctl_emulator.middleware import UNAUTHORIZED, EmulatorMiddleware
from fleetctl_emulator.scheduler import Scheduler
from fleetctl_emulator.service import EmulatorService

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl_emulator.instance import EmulatedInstance
    from fleetctl_emulator.options import EmulatorOptions
    from fleetctl_emulator.surface import PlayedEngine

_BODY_BYTES_MAX = 64 * 1024 * 1024
_BACKLOG = 2048  # uvicorn's
_WARM_UP_SHARE = 0.1  # of start-up, with the port open
_CLOSING_S = 2.0  # for the last bytes of aborted responses


class Server:
    """One emulated engine: its listener, its service and its end. `run` returns the exit status."""

    def __init__(
        self, options: EmulatorOptions, instance: EmulatedInstance, played: PlayedEngine, clock: Clock
    ) -> None:
        options = replace(options, engine_version=options.engine_version or played.version)
        self._options, self._played, self._clock = options, played, clock
        scheduler = Scheduler(limits(options, instance, played.capabilities), instance.timer.duration_s)
        metrics = played.surface.metrics(scheduler, options, instance, started_s=clock.now().timestamp())
        self._engine = EngineCore(scheduler, metrics, loop=asyncio.get_running_loop(), clock=clock)
        self._injector = FaultInjector(self._engine, instance.timer)
        self._shutdown = shutdown_behaviour(options, played.capabilities)
        self._service = EmulatorService(
            self._engine,
            played.surface.dialect(options, instance),
            self._injector,
            max_model_len=instance.max_model_len,
            vocabulary=instance.model.vocab_size,
            refuses_new=self._shutdown.refuses_new,
            stream_interval=options.stream_interval,
            stream_burst_s=options.stream_burst_s,
            frontend_s=FRONTEND_S / options.speed,
            clock=clock,
        )
        self._stop_requested = asyncio.Event()
        self._lost = ""  # what of its group has gone, and the engine with it
        self._group = GroupLeader(options, self._lose)
        self._site: web.SockSite | None = None
        self._runner = self._make_runner()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Serve until asked to stop. Raises ConfigError if the port is taken."""
        self._injector.put(self._options.faults)
        self._injector.watch(self._faults_changed)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        listener = _bind(self._options.host, self._options.port)
        with listener:
            await self._runner.setup()
            try:
                if await self._start_up(listener):
                    await self._stop_requested.wait()
                    await self._drain()
            finally:
                await self._group.end()
                await self._runner.cleanup()
        return 1 if self._lost else 0

    def _lose(self, what: str) -> None:
        """End, as a stage of the model is missing."""
        if not self._stop_requested.is_set():
            self._lost = what
            sys.stderr.write(f"error: {what}: the engine ends\n")
            self._stop_requested.set()

    def _make_runner(self) -> web.AppRunner:
        app = web.Application(
            middlewares=[EmulatorMiddleware(self._service, api_key=self._options.api_key).middleware],
            client_max_size=_BODY_BYTES_MAX,
        )
        app.add_routes(self._played.surface.routes(self._service, self._options))
        app.add_routes(AdminRoutes(self._service, self._played.name, self._options.engine_version).routes())
        app.router.add_get("/metrics", self._metrics)
        app.on_response_prepare.append(self._sign)
        # A client that goes away takes its request along at once.
        return web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_CLOSING_S)

    async def _metrics(self, _: web.Request) -> web.Response:
        page = self._injector.metrics(lambda as_nan: self._engine.metrics.page(as_nan=as_nan))
        return web.Response(body=page.encode(), headers={"Content-Type": self._service.dialect.metrics_type})

    async def _sign(self, _: web.Request, response: web.StreamResponse) -> None:
        """Give a response the headers that the played engine's server adds."""
        dialect = self._service.dialect
        if dialect.server:
            response.headers["Server"] = dialect.server
        else:
            del response.headers["Server"]
        if dialect.vary and response.status != UNAUTHORIZED:
            response.headers["Vary"] = dialect.vary

    async def _start_up(self, listener: socket.socket) -> bool:
        """Take the time that loading weights takes; False if asked to stop meanwhile."""
        startup_s, dialect = self._options.startup_s, self._service.dialect
        if "never-ready" in self._injector:
            await self._stop_requested.wait()
            return False
        if not await self._has_group():
            return False
        warm_up_s = startup_s * _WARM_UP_SHARE if dialect.warms_up_listening else 0.0
        if await self._stop_requested_within(startup_s - warm_up_s):
            return False
        self._service.is_warm = not warm_up_s
        await self._listen(listener)
        if warm_up_s and await self._stop_requested_within(warm_up_s):
            return False
        self._service.is_warm = True
        host, port = listener.getsockname()[:2]
        sys.stdout.write(f"{self._played.name} look-alike ready on http://{host}:{port}\n")
        sys.stdout.flush()
        return True

    async def _has_group(self) -> bool:
        """Wait for the replica's further machines, if it has any; False if asked to stop meanwhile."""
        if self._options.nodes == 1:
            return True
        await self._group.listen()
        gathering, stopped = asyncio.create_task(self._group.gather()), asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait((gathering, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not gathering.done():
            gathering.cancel()
            return False
        if gathering.exception() is not None:
            self._lose("a machine of the group has not joined in time")
        return not self._lost

    async def _stop_requested_within(self, seconds: float) -> bool:
        if seconds <= 0:
            return self._stop_requested.is_set()
        try:
            async with asyncio.timeout(seconds):
                await self._stop_requested.wait()
        except TimeoutError:
            return False
        return True

    async def _listen(self, listener: socket.socket) -> None:
        if self._injector.refuses_connections:
            return
        self._site = web.SockSite(self._runner, listener, backlog=_BACKLOG)
        await self._site.start()

    async def _drain(self) -> None:
        """End what runs, as the engine it plays does. A second signal changes nothing."""
        self._service.is_draining = True
        if not self._shutdown.keeps_listening:
            await self._stop_listening()
        if self._shutdown.drain_s == 0 or self._lost:
            self._service.abort_all()
            return
        try:
            async with asyncio.timeout(self._shutdown.drain_s):
                await self._service.idle.wait()
        except TimeoutError:
            # A real vLLM leaves its clients hanging here and its front end alive. This one ends, and their
            # connections with it: nothing that was started is left behind.
            self._service.cut_all()

    async def _stop_listening(self) -> None:
        if self._site is not None:
            site, self._site = self._site, None
            await site.stop()

    def _faults_changed(self) -> None:
        if self._injector.refuses_connections:
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
