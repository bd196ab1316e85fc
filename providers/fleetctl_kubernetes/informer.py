"""All objects of a path and every change of them, as the API server tells: a listing, then watches that go on from it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fleetctl.errors import CredentialsError, ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.clock import Clock
    from fleetctl_kubernetes.connection import ClusterConnection

Object = dict[str, Any]
# The API server ends a watch after this; one that says nothing for longer was cut without our being told.
_WATCH_S = 120
_SILENT_S = _WATCH_S + 30.0
_LINE_BYTES_MAX = 4 * 2**20  # an object of etcd has 1.5 MiB at most
# A watch that ended sooner than this was not ended by its own time: the next one waits, each time for twice as long.
_SHORT_S = 5.0
_PAUSE_S_MIN = 0.5
_PAUSE_S_MAX = 30.0
_GONE = 410


class ForbiddenError(CredentialsError):
    """The objects may not be listed or watched by whom we are."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All there is now. Whatever was there before and is not in it has gone meanwhile."""

    items: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """One object has come, changed or gone."""

    kind: str  # ADDED, MODIFIED or DELETED
    item: Object


class Informer:
    """A listing of one path and its watches; it is listed anew only where the API server has forgotten where we were."""

    def __init__(self, connection: ClusterConnection, path: str, query: dict[str, str], clock: Clock) -> None:
        self.path: Final = path
        self._connection, self._query, self._clock = connection, query, clock
        self._version = ""  # the last change seen; "": all is to be listed

    async def changes(self) -> AsyncIterator[Listed | Changed]:
        """Yield a listing, and each change from then on, for ever.

        Raises ForbiddenError, and ProviderError where the connection broke or the API server refused.
        """
        pause_s = 0.0
        while True:
            began_s = self._clock.monotonic_s()
            async for change in self._once():
                yield change
            lasted_s = self._clock.monotonic_s() - began_s
            pause_s = 0.0 if lasted_s >= _SHORT_S else min(_PAUSE_S_MAX, max(_PAUSE_S_MIN, 2.0 * pause_s))
            if pause_s:
                await self._clock.sleep(pause_s)

    async def _once(self) -> AsyncIterator[Listed | Changed]:
        """Yield what one connection tells, until the API server ends its watch in due form."""
        import aiohttp

        target = await asyncio.to_thread(self._connection.target)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=_SILENT_S)
        connector = aiohttp.TCPConnector(ssl=target.tls if target.tls is not None else False)
        try:
            async with aiohttp.ClientSession(
                connector=connector, headers=target.headers, timeout=timeout, read_bufsize=_LINE_BYTES_MAX
            ) as session:
                get = partial(
                    session.get, target.url + self.path, proxy=target.proxy, server_hostname=target.server_name
                )
                if not self._version:
                    async with get(params=self._query) as response:
                        listing = await self._checked(response)
                    self._version = listing["metadata"]["resourceVersion"]
                    yield Listed(tuple(listing["items"]))
                watch = {
                    **self._query, "watch": "true", "allowWatchBookmarks": "true",
                    "resourceVersion": self._version, "timeoutSeconds": str(_WATCH_S),
                }  # fmt: skip
                async with get(params=watch) as response:
                    async for change in self._watched(response):
                        yield change
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, msgspec.DecodeError) as exc:
            raise ProviderError(f"the watch of {self.path} broke: {exc}", hint="it is opened again") from exc

    async def _watched(self, response: Any) -> AsyncIterator[Changed]:  # noqa: ANN401  # aiohttp's, imported late
        if response.status == _GONE:
            self._version = ""
            return
        if response.status != 200:
            await self._checked(response)
        try:
            async for line in response.content:
                event = msgspec.json.decode(line)
                kind, item = event["type"], event["object"]
                if kind == "ERROR":
                    if item.get("code") != _GONE:
                        raise ProviderError(f"the watch of {self.path} broke: {item.get('message')}")
                    self._version = ""  # what came since is not kept any more
                    return
                self._version = item["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    yield Changed(kind, item)
        finally:
            # A polite end would wait for a server that has more to say.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()

    async def _checked(self, response: Any) -> Object:  # noqa: ANN401  # aiohttp's, imported late
        """Return an answer's JSON. Raises CredentialsError, ProviderError."""
        if response.status in (401, 403):
            error = ForbiddenError if response.status == 403 else CredentialsError
            verb = "watch" if "watch" in response.url.query else "list"
            raise error(f"not allowed: {verb} {self.path} ({response.status})", hint="see `fleetctl doctor`")
        if response.status != 200:
            raise ProviderError(f"{self.path}: {response.status} {(await response.text())[:200]}")
        found: Object = msgspec.json.decode(await response.read())
        return found
