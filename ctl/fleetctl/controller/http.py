"""The real clients: keep-alive HTTP to replicas over loopback and to the gateway over its Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

import aiohttp
import msgspec

from fleetctl.codec import decode, encode
from fleetctl.core.gateway_merge import GatewayParts
from fleetctl.errors import UnavailableError
from fleetctl.model.allotment import Allotment, GatewayHoldings
from fleetctl.model.gateway import GatewaySnapshot, RoutingTable, SignalFeed
from fleetctl.model.gateway_process import EPOCH_HEADER, TOKEN_HEADER
from fleetctl.ports.runtime import GatewayAddress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.model.slo_feed import SloFeed
    from fleetctl.paths import FleetPaths
    from fleetctl.ports.runtime import RemoteGateways

_Reply = TypeVar("_Reply")

_HEALTH_S = 2.0
_METRICS_S = 2.0
_COMPLETION_S = 60.0  # a cold engine may compile kernels for its first prompt
_GATEWAY_S = 1.0
_KEEPALIVE_S = 30.0  # longer than any probing interval, so that a probe costs no connect
_ERROR_BYTES_SHOWN = 200
# What an engine may answer. A vLLM page has 50 KB, and as much again for each of its models and ranks.
_HEALTH_BYTES_MAX = 64 * 1024
_METRICS_BYTES_MAX = 4 * 1024 * 1024
_COMPLETION_BYTES_MAX = 1024 * 1024
# The gateway's snapshot has some kilobytes a lane and half of one a replica.
_GATEWAY_BYTES_MAX = 64 * 1024 * 1024


class HttpEngineClient:
    """Implements EngineClient."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            # Probes take turns among themselves, and each replica has one warm-up at most. In a pool of them all, hundreds of
            # warm-ups, of a minute each, would keep every probe waiting beyond its deadline.
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEPALIVE_S, limit=0, limit_per_host=4),
            # Nothing compressed is asked for, and nothing is unpacked: a few kilobytes may hold gigabytes.
            auto_decompress=False,
            headers={"accept-encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def is_healthy(self, host: str, port: int, path: str) -> bool:
        """Return whether the health route answers 200."""
        async with self._request("GET", host, port, path, deadline_s=_HEALTH_S) as response:
            await _read(response, _HEALTH_BYTES_MAX)
            return response.status == 200

    async def get(self, host: str, port: int, path: str) -> str:
        """Return what a GET of a path answers with 200."""
        try:
            async with self._request("GET", host, port, path, deadline_s=_METRICS_S) as response:
                text = (await _read(response, _METRICS_BYTES_MAX)).decode()
        except UnicodeDecodeError as exc:
            raise UnavailableError(f"http://{host}:{port}{path} is no text: {exc}") from exc
        if response.status != 200:
            raise UnavailableError(f"http://{host}:{port}{path} answered {response.status}")
        return text

    async def complete(self, host: str, port: int, path: str, body: bytes) -> None:
        """Send a completion and read it whole."""
        async with self._request("POST", host, port, path, deadline_s=_COMPLETION_S, body=body) as response:
            answer = await _read(response, _COMPLETION_BYTES_MAX)
        if response.status != 200 or not answer:
            body_shown = answer[:_ERROR_BYTES_SHOWN].decode(errors="replace")
            raise UnavailableError(f"http://{host}:{port}{path} answered {response.status}: {body_shown}")

    def _request(
        self, method: str, host: str, port: int, path: str, *, deadline_s: float, body: bytes | None = None
    ) -> _Response:
        headers = {"content-type": "application/json"} if body is not None else {}
        request = self._session.request(
            method,
            f"http://{host}:{port}{path}",
            data=body,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=deadline_s),
        )
        return _Response(request, f"http://{host}:{port}{path}", deadline_s)


class HttpGatewayClient:
    """Implements GatewayClient, over a Unix socket or over TCP: `way` says where it is now, and raises UnavailableError."""

    def __init__(self, way: Callable[[], Path | GatewayAddress], *, epoch: int = 0) -> None:
        self._way_of = way
        self._epoch = epoch  # of the lease that its calls are made under
        self._way: Path | GatewayAddress | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections."""
        if self._session is not None:
            await self._session.close()

    async def snapshot(self) -> GatewaySnapshot:
        """Return the gateway's figures."""
        request = (await self._current()).get("/v1/snapshot")
        async with _Response(request, "the gateway", _GATEWAY_S) as response:
            raw = await _read(response, _GATEWAY_BYTES_MAX)
        if response.status != 200:
            raise UnavailableError(f"the gateway answered {response.status} to a snapshot")
        try:
            return decode(GatewaySnapshot, raw)
        except msgspec.DecodeError as exc:
            raise UnavailableError(f"the gateway's snapshot cannot be read: {exc}") from exc

    async def parts(self) -> GatewayParts:
        """Return the gateway's figures and what they were made of, to be merged with others'."""
        return await self._get("parts", GatewayParts)

    async def holdings(self, epoch: int) -> GatewayHoldings:
        """Return what it has of the limits, and fence controllers older than this epoch."""
        return await self._get(f"holdings?epoch={epoch}", GatewayHoldings)

    async def allot(self, allotment: Allotment) -> GatewayHoldings:
        """Hand over its part of the limits; one that already has a newer one answers 409 with what it has."""
        request = (await self._current()).put("/v1/allotment", data=encode(allotment))
        async with _Response(request, "the gateway", _GATEWAY_S) as response:
            raw = await _read(response, _GATEWAY_BYTES_MAX)
        if response.status not in (200, 409):
            raise UnavailableError(f"the gateway answered {response.status} to an allotment")
        return _decoded(raw, GatewayHoldings)

    async def _get(self, name: str, kind: type[_Reply]) -> _Reply:
        request = (await self._current()).get(f"/v1/{name}")
        async with _Response(request, "the gateway", _GATEWAY_S) as response:
            raw = await _read(response, _GATEWAY_BYTES_MAX)
        if response.status != 200:
            raise UnavailableError(f"the gateway answered {response.status} to {name}")
        return _decoded(raw, kind)

    async def put_table(self, table: RoutingTable) -> int:
        """Hand over a table; a gateway that already has a newer one answers 409 with its version."""
        request = (await self._current()).put("/v1/table", data=encode(table))
        async with _Response(request, "the gateway", _GATEWAY_S) as response:
            raw = await _read(response, _GATEWAY_BYTES_MAX)
        if response.status not in (200, 409):
            body_shown = raw[:_ERROR_BYTES_SHOWN].decode(errors="replace")
            raise UnavailableError(f"the gateway answered {response.status} to a table: {body_shown}")
        try:
            return int(msgspec.json.decode(raw)["version"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as exc:
            raise UnavailableError(f"the gateway's answer to a table cannot be read: {exc}") from exc

    async def put_signals(self, feed: SignalFeed) -> None:
        """Hand over what engines said of themselves."""
        await self._put("signals", encode(feed), "engine figures")

    async def put_slo(self, feed: SloFeed) -> None:
        """Hand over the readings of budgets and alerts."""
        await self._put("slo", encode(feed), "readings of budgets")

    async def _put(self, name: str, body: bytes, what: str) -> None:
        request = (await self._current()).put(f"/v1/{name}", data=body)
        async with _Response(request, "the gateway", _GATEWAY_S) as response:
            await _read(response, _GATEWAY_BYTES_MAX)
        if response.status != 200:
            raise UnavailableError(f"the gateway answered {response.status} to {what}")

    async def _current(self) -> aiohttp.ClientSession:
        """Return a session with where it is now: a socket is made anew elsewhere when its directory vanishes."""
        way = self._way_of()
        if self._session is None or way != self._way:
            await self.close()
            self._way, self._session = way, _session(way, self._epoch)
        return self._session


class GatewayClients:
    """One client for each of a fleet's gateways, made when it is first asked for; remote ones are called over TCP."""

    def __init__(self, paths: FleetPaths, *, remote: RemoteGateways | None = None, epoch: int = 0) -> None:
        self._paths = paths
        self._remote = remote
        self._epoch = epoch
        self._clients: dict[int, HttpGatewayClient] = {}

    def of(self, number: int) -> HttpGatewayClient:
        """Return the client of one of them; called in the event loop."""
        if number not in self._clients:
            self._clients[number] = HttpGatewayClient(lambda: self._way_to(number), epoch=self._epoch)
        return self._clients[number]

    def _way_to(self, number: int) -> Path | GatewayAddress:
        return self._paths.gateway_socket_of(number) if self._remote is None else self._remote.address_of(number)

    async def close(self) -> None:
        """End every connection."""
        for client in self._clients.values():
            await client.close()


def _decoded(raw: bytes, kind: type[_Reply]) -> _Reply:
    try:
        return decode(kind, raw)
    except msgspec.DecodeError as exc:
        raise UnavailableError(f"the gateway's answer cannot be read: {exc}") from exc


def _session(way: Path | GatewayAddress, epoch: int) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_GATEWAY_S)
    if isinstance(way, GatewayAddress):
        host = f"[{way.host}]" if ":" in way.host else way.host
        return aiohttp.ClientSession(
            f"http://{host}:{way.port}",
            connector=aiohttp.TCPConnector(keepalive_timeout=_KEEPALIVE_S, limit=4),
            headers={TOKEN_HEADER: way.token, EPOCH_HEADER: str(epoch)},
            timeout=timeout,
        )
    connector = aiohttp.UnixConnector(path=str(way), keepalive_timeout=_KEEPALIVE_S, limit=4)
    return aiohttp.ClientSession("http://gateway", connector=connector, timeout=timeout)


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return a body of at most `bytes_max`, within the deadline of its request. Raises UnavailableError."""
    pieces = bytearray()
    async for piece in response.content.iter_any():
        pieces += piece
        if len(pieces) > bytes_max:
            response.close()
            raise UnavailableError(f"{response.url} answers more than {bytes_max:,} bytes")
    return bytes(pieces)


class _Response:
    """Opens a response as a context; every failure, in the head or the body, is raised as UnavailableError."""

    def __init__(
        self, request: aiohttp.client._RequestContextManager, what: str, deadline_s: float
    ) -> None:  # aiohttp gives its request contexts no public name
        self._request = request
        self._what = what
        self._deadline_s = deadline_s

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            return await self._request.__aenter__()
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unavailable(exc) from exc

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        await self._request.__aexit__(kind, exc, None)
        del trace
        if isinstance(exc, aiohttp.ClientError | OSError):
            raise self._unavailable(exc) from exc

    def _unavailable(self, exc: BaseException) -> UnavailableError:
        # aiohttp's timeouts are TimeoutErrors, and those are OSErrors.
        why = (
            f"no answer in {self._deadline_s:g} s" if isinstance(exc, TimeoutError) else str(exc) or type(exc).__name__
        )
        return UnavailableError(f"{self._what}: {why}")
