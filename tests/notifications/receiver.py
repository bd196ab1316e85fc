"""A receiver of notifications on this machine that does as it is told: answers, refuses, hangs, closes, never ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HANG = b"hang"
CLOSE = b"close"
ENDLESS = b"endless"


def reply(status: int, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return an answer as it goes over the wire."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Receiver:
    """What came, and what is done about it: one of `script` a request, the last one again and again."""

    script: Sequence[bytes]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                self.bodies.append(json.loads(await reader.readexactly(length)))
                if await self._answer(writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> bool:
        """Return whether the connection is over."""
        act = self.script[min(len(self.bodies), len(self.script)) - 1]
        if act == CLOSE:
            return True
        if act == HANG:
            await asyncio.get_running_loop().create_future()
        if act == ENDLESS:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
        writer.write(act)
        await writer.drain()
        return False


@asynccontextmanager
async def receiving(*script: bytes) -> AsyncIterator[Receiver]:
    """Have a receiver for a block."""
    receiver = Receiver(script=script)
    serving: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.get_running_loop().create_task(receiver.serve(reader, writer)))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/services/T0/B0/secretpath"
    try:
        yield receiver
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
