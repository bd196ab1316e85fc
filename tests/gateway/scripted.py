"""Replicas that do exactly what a test says, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.clock import SYSTEM_CLOCK


@dataclass
class Seen:
    """A request as the replica got it."""

    target: str
    headers: dict[str, str]
    body: Any
    connection: int
    text: str = ""


@dataclass
class Wire:
    """The replica's end of a connection."""

    writer: asyncio.StreamWriter
    closing: bool = False

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def whole(self, status: int, body: Any, content_type: str = "application/json", extra: str = "") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{extra}content-length: {len(data)}\r\n\r\n"
        await self.raw(head.encode() + data)

    async def begin_events(self) -> None:
        await self.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"x-engine: scripted\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, event: Any) -> None:
        await self.chunk(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")

    async def done(self) -> None:
        await self.chunk(b"data: [DONE]\n\n")
        await self.end()

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def die(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Seen, Wire], Awaitable[None]]


def delta(content: str | None = None, *, role: bool = False, finish: str | None = None, id_: str = "c1") -> Any:
    """A chat chunk as vLLM writes it."""
    inner: dict[str, Any] = {"role": "assistant", "content": ""} if role else {}
    if content is not None:
        inner["content"] = content
    return {
        "id": id_, "object": "chat.completion.chunk", "created": 1700000000, "model": "m",
        "choices": [{"index": 0, "delta": inner, "logprobs": None, "finish_reason": finish}],
    }  # fmt: skip


def usage_event(prompt: int, completion: int, *, id_: str = "c1") -> Any:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {
        "id": id_,
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [],
        "usage": usage,
    }


def answers(
    words: Sequence[str], *, gap_s: float = 0.0, die_after: int | None = None, usage: bool = False, id_: str = "c1"
) -> Script:
    """Streams these words as a chat answer; dies after so many, if told to. Non-streams get them joined."""

    async def script(seen: Seen, wire: Wire) -> None:
        if not seen.body.get("stream"):
            await wire.whole(200, completion("".join(words)))
            return
        await wire.begin_events()
        await wire.event(delta(role=True, id_=id_))
        for index, word in enumerate(words):
            if index == die_after:
                wire.die()
                return
            if gap_s:
                await SYSTEM_CLOCK.sleep(gap_s)
            await wire.event(delta(word, id_=id_))
        if die_after is not None and die_after >= len(words):
            wire.die()
            return
        await wire.event(delta(finish="stop", id_=id_))
        if usage:
            await wire.event(usage_event(7, len(words), id_=id_))
        await wire.done()

    return script


def completion(text: str, *, prompt_tokens: int = 7, completion_tokens: int = 3) -> Any:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def rejects(status: int, message: str = "no") -> Script:
    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.whole(status, {"error": {"message": message, "type": "x", "param": None, "code": status}})

    return script


def rejects_in_stream(code: int) -> Script:
    """Is how vLLM rejects most streams in a burst: a 200, and then an error event."""

    async def script(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        await wire.event(
            {"error": {"message": "too many", "type": "ServiceUnavailableError", "param": None, "code": code}}
        )
        await wire.done()

    return script


async def dies(seen: Seen, wire: Wire) -> None:
    """Closes without a byte."""
    del seen
    await SYSTEM_CLOCK.sleep(0.3)  # Later than a stale keep-alive would.
    wire.die()


async def hangs(seen: Seen, wire: Wire) -> None:
    """Says nothing."""
    del seen, wire
    await asyncio.Event().wait()


@dataclass
class Scripted:
    """One replica."""

    id: str
    lane: str = "chat"
    script: Script = field(default_factory=lambda: answers(["Hello", " world"]))
    concurrency_max: int = 64
    continues: bool = True
    priority_sign: int = 0
    caches_prefixes: bool = True
    max_model_len: int = 0
    in_rotation: bool = True
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    broken_off: list[Seen] = field(default_factory=list)  # requests whose connection closed under the script
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: dict[asyncio.StreamWriter, bool] = field(default_factory=dict)  # -> whether a request is under way there
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go at once, as a killed process does."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def kill(self) -> None:
        """Go as a process that is killed: every connection closes in one moment, those with a request under way first."""
        for writer in sorted(self._writers, key=lambda w: not self._writers[w]):
            writer.transport.abort()
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        self._writers[writer] = False
        try:
            await self._requests(reader, writer, number)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            del self._writers[writer]
            writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
            seen = Seen(first.split(" ")[1], headers, json.loads(raw), number)
            self.seen.append(seen)
            self._writers[writer] = True
            if not await self._play(seen, Wire(writer), reader):
                return
            self._writers[writer] = False

    async def _play(self, seen: Seen, wire: Wire, reader: asyncio.StreamReader) -> bool:
        playing = asyncio.ensure_future(self.script(seen, wire))
        leaving = asyncio.ensure_future(_closed(reader))
        try:
            await asyncio.wait((playing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                self.broken_off.append(seen)
                return False
            try:
                playing.result()
            except ConnectionError:
                self.broken_off.append(seen)
            return not wire.writer.transport.is_closing()
        finally:
            for task in (playing, leaving):
                task.cancel()
            await asyncio.gather(playing, leaving, return_exceptions=True)


async def _closed(reader: asyncio.StreamReader) -> None:
    """Return when the peer has closed; nothing else may arrive while a request is being answered."""
    while not reader.at_eof() and reader.exception() is None:  # a reader has no event for its end
        await SYSTEM_CLOCK.sleep(0.01)
