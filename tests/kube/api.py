"""The API server as the tests' own kubelet speaks to it: JSON over one connection pool, watches as streams."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Object = dict[str, Any]
_MERGE = "application/merge-patch+json"
_CALL = aiohttp.ClientTimeout(total=20)
_WATCH = aiohttp.ClientTimeout(total=None, sock_connect=10)
_AGAIN_S = 0.2
_GIVEN_UP_S = 300.0  # a kubelet never does: a pod whose end it could not report would stay for ever


@dataclass(frozen=True)
class Api:
    """One API server and who speaks to it."""

    url: str
    session: aiohttp.ClientSession

    @classmethod
    def to(cls, url: str, token: str, authority: Path) -> Api:
        trusted = ssl.create_default_context(cafile=str(authority))
        connector = aiohttp.TCPConnector(ssl=trusted, limit=32)
        headers = {"Authorization": f"Bearer {token}"}
        return cls(url, aiohttp.ClientSession(connector=connector, headers=headers, timeout=_CALL))

    async def get(self, path: str) -> Object | None:
        """Return an object; None: there is none."""
        return await self._call("GET", path)

    async def post(self, path: str, body: Object) -> Object | None:
        return await self._call("POST", path, body)

    async def merge(self, path: str, body: Object) -> Object | None:
        """Patch an object; None: it has gone."""
        return await self._call("PATCH", path, body, content_type=_MERGE)

    async def delete(self, path: str, body: Object) -> Object | None:
        return await self._call("DELETE", path, body)

    async def answers(self) -> bool:
        try:
            async with self.session.get(f"{self.url}/readyz") as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def watched(self, path: str, selector: str = "") -> AsyncIterator[tuple[str, Object]]:
        """Yield every object and then each change, for ever, whatever becomes of connections. Types as in a watch."""
        while True:
            try:
                async for event in self._watched_once(path, selector):
                    yield event
            except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError):
                pass  # the API server is being restarted: all is listed anew
            await SYSTEM_CLOCK.sleep(_AGAIN_S)

    async def _watched_once(self, path: str, selector: str) -> AsyncIterator[tuple[str, Object]]:
        listed = await self.get(f"{path}?{selector}")
        if listed is None:
            return
        for item in listed["items"]:
            yield "ADDED", item
        version = listed["metadata"]["resourceVersion"]
        url = f"{self.url}{path}?watch=true&resourceVersion={version}&{selector}"
        # A line is an object: a pod's is some KB, aiohttp's own limit for a line is half a megabyte.
        async with self.session.get(url, timeout=_WATCH) as response:
            if response.status != 200:
                return
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return  # too old: listed anew
                yield event["type"], event["object"]

    async def _call(
        self, method: str, path: str, body: Object | None = None, *, content_type: str = "application/json"
    ) -> Object | None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        end_s = SYSTEM_CLOCK.monotonic_s() + _GIVEN_UP_S
        while SYSTEM_CLOCK.monotonic_s() < end_s:
            try:
                async with self.session.request(method, self.url + path, data=data, headers=headers) as response:
                    if response.status not in (429, 500, 503):
                        return await _answer_of(response, f"{method} {path}")
            except (aiohttp.ClientError, TimeoutError, OSError):
                # Busy, or being restarted. Every call may be made twice, and who makes it has no other: a kubelet whose
                # renewal of a lease had ended by this lost all its nodes.
                pass
            await SYSTEM_CLOCK.sleep(_AGAIN_S)
        raise TimeoutError(f"{method} {path} was refused for {_GIVEN_UP_S:g} s")


async def _answer_of(response: aiohttp.ClientResponse, call: str) -> Object | None:
    if response.status == 404:
        return None
    answer: Object = await response.json()
    # Of 409: there is one already, or it is another by now; the next event tells.
    if response.status >= 400 and response.status != 409:
        raise AssertionError(f"{call}: {response.status} {answer.get('message')}")
    return answer


async def gathered(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
