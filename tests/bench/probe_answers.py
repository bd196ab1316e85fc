"""Answers many engines' probes as one emulated engine answered the first of each kind: python -m tests.bench.probe_answers PORT ENGINE_PORT.

An emulated engine is a process of its own kind of work; a thousand addresses' health checks and metrics, a second apart, are
more than one answers. Here a probe costs a look into a dictionary.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import aiohttp
import uvloop

_EVERYWHERE = "0.0.0.0"  # noqa: S104  # the addresses of all pods are this machine's
_END = b"\r\n\r\n"


class Known:
    """What the engine has answered, by method and path."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        # One question at a time: what an engine answers while it works would be told for ever, and of every replica.
        self._turn = asyncio.Lock()
        self.answers: dict[bytes, bytes] = {}

    async def learn(self, request: bytes, body: bytes) -> bytes:
        """Return the engine's own answer while it has nothing else to do; it is given to every later request of the kind."""
        async with self._turn:
            known = self.answers.get(request)
            return known if known is not None else await self._exchange(request, body)

    async def _exchange(self, request: bytes, body: bytes) -> bytes:
        method, path = request.decode().split(" ")
        headers = {"content-type": "application/json"} if body else {}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self._engine + path, data=body or None, headers=headers) as response,
        ):
            content = await response.read()
            kind = response.headers.get("content-type", "text/plain")
            head = f"HTTP/1.1 {response.status} {response.reason}\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}"
        answer = head.encode() + _END + content
        if response.status == 200:
            self.answers[request] = answer
        return answer


class Connection(asyncio.Protocol):
    """One client's requests, one after the other."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._received = b""
        self._learning: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self._learning is None and (end := self._received.find(_END)) >= 0:
            head = self._received[:end]
            whole = end + len(_END) + _length(head)
            if len(self._received) < whole:
                return
            body, self._received = self._received[end + len(_END) : whole], self._received[whole:]
            request = head[: head.index(b" HTTP/")]
            answer = self._known.answers.get(request)
            if answer is None:
                self._learning = asyncio.create_task(self._learn(request, body))
            else:
                self._transport.write(answer)

    async def _learn(self, request: bytes, body: bytes) -> None:
        try:
            answer = await self._known.learn(request, body)
        except aiohttp.ClientError:  # it does not listen yet, nor does this
            self._transport.abort()
            return
        if self._transport.is_closing():
            return  # whoever was waiting has given up
        self._transport.write(answer)
        self._learning = None
        self.data_received(b"")


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def main(port: int, engine_port: int) -> None:
    """Answer until ended."""
    known = Known(f"http://127.0.0.1:{engine_port}")
    server = await asyncio.get_running_loop().create_server(lambda: Connection(known), _EVERYWHERE, port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
