"""A port of a pod as a port of this machine, through the API server: what `kubectl port-forward` does, for one command's time.

The protocol is kubelet's over WebSockets (v4.channel.k8s.io): two channels, data and errors, each of which begins with the port's
number; a connection here is a WebSocket there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import threading
from typing import TYPE_CHECKING

from fleetctl.errors import CredentialsError, UnavailableError

if TYPE_CHECKING:
    from typing import Self

    import aiohttp

    from fleetctl_kubernetes.connection import ClusterConnection

_log = logging.getLogger("fleetctl_kubernetes")
_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERRORS = 0, 1
_PIECE_BYTES = 64 * 1024
_CONNECT_S, _START_S, _END_S = 10.0, 15.0, 5.0
_LOOPBACK = "127.0.0.1"


class PortForward:
    """Listens on a free port of this machine's loopback from `__enter__` to `__exit__`, on a thread of its own."""

    def __init__(self, connection: ClusterConnection, namespace: str, pod: str, port: int) -> None:
        self._connection = connection
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward"
        self._pod, self._there = pod, port
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="port-forward", daemon=True)
        self.port = 0  # here

    def __enter__(self) -> Self:
        """Return once it listens, and a first connection was let through. Raises CredentialsError, UnavailableError."""
        self._thread.start()
        if not self._ready.wait(_START_S):
            self.__exit__()
            raise UnavailableError(f"no port-forward to pod {self._pod} within {_START_S:g} s")
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more, and end every connection."""
        # It ends by itself too, where its connection failed: a loop that is closed by then has nothing to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as exc:  # noqa: BLE001  # raised again where it is waited for
            self._failure = exc
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        import aiohttp

        target = await asyncio.to_thread(self._connection.target)
        connector = aiohttp.TCPConnector(ssl=target.tls if target.tls is not None else False, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        async with aiohttp.ClientSession(connector=connector, headers=target.headers, timeout=timeout) as session:
            way = _Way(session, f"{target.url}{self._path}", self._there, target.server_name, target.proxy)
            await (await way.open()).close()  # whether it is allowed is told now, and not by a connection that breaks
            server = await asyncio.start_server(way.begin, _LOOPBACK, 0)
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._ended.wait()
            server.close()
            for task in way.tasks:
                task.cancel()
            await asyncio.gather(*way.tasks, return_exceptions=True)


class _Way:
    """Carries connections to one port of one pod."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, port: int, server_name: str | None, proxy: str | None
    ) -> None:
        self._session = session
        self._url = url
        self._port = port
        self._server_name = server_name
        self._proxy = proxy
        self.tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> aiohttp.ClientWebSocketResponse:
        """Return a WebSocket of its own. Raises CredentialsError where that is not allowed, UnavailableError."""
        import aiohttp

        try:
            async with asyncio.timeout(_CONNECT_S):
                return await self._session.ws_connect(
                    self._url, params={"ports": str(self._port)}, protocols=(_PROTOCOL,), max_msg_size=0,
                    server_hostname=self._server_name, proxy=self._proxy,
                )  # fmt: skip
        except aiohttp.WSServerHandshakeError as exc:
            kind = CredentialsError if exc.status in (401, 403) else UnavailableError
            raise kind(f"no port-forward: the API server answered {exc.status}") from exc
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            raise UnavailableError(f"no port-forward: {str(exc) or type(exc).__name__}") from exc

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it, as a task of its own."""
        task = asyncio.create_task(self._carry(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await self.open()
        except (CredentialsError, UnavailableError) as exc:
            _log.warning("%s", exc.message)
            writer.transport.abort()
            return
        pumps = [asyncio.create_task(_sent(reader, socket)), asyncio.create_task(_received(socket, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await socket.close()
            writer.close()


async def _sent(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        await socket.send_bytes(bytes((_DATA,)) + piece)


async def _received(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Write what comes; the first frame of each channel is the port's number."""
    begun: set[int] = set()
    async for message in socket:
        frame = message.data
        if not isinstance(frame, bytes) or not frame:
            continue
        channel, content = frame[0], frame[1:]
        if channel not in begun:
            begun.add(channel)
            if len(content) == struct.calcsize("<H"):
                continue
        if channel == _ERRORS and content:
            _log.warning("port-forward: %s", content.decode(errors="replace")[:400])
            return
        if channel == _DATA and content:
            writer.write(content)
            await writer.drain()
