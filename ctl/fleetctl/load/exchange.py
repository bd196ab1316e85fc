"""One request, as a client lives it: sent, streamed, stamped, and judged complete or not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import aiohttp
import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LANE_HEADER = "x-fleetctl-lane"
BATCH_HEADER = "x-fleetctl-batch"
_LINE_BYTES_MAX = 8 * 1024 * 1024


class FailureKind(StrEnum):
    """How a request failed that was neither answered nor refused; other statuses are http-<status>."""

    CONNECT = "connect"  # refused, reset or closed before the status line
    TRUNCATED = "truncated"  # the stream ended without [DONE], or the connection in the middle of the body
    ERROR_EVENT = "error-event"  # the stream reported itself that it failed
    TIMEOUT = "timeout"
    MALFORMED = "malformed"  # an answer that is no chat completion
    UNFINISHED = "unfinished"  # cut by the end of the run; not counted as a failure of the lane


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def is_error(self) -> bool:
        """Whether it says that the request failed; an absent error and a null one say nothing."""
        return bytes(self.error) != b"null"


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True, kw_only=True)
class ClientExchange:
    """The result of one request. Times are seconds from its sending."""

    lane: str = ""
    status: int = 0  # 0: no status line came
    failure: str = ""  # FailureKind or http-<status>; empty: answered in full, or refused
    has_retry_after: bool = False
    streamed: bool = True
    ttft_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    e2e_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0

    @property
    def is_ok(self) -> bool:
        """Whether it was answered in full."""
        return self.status == 200 and not self.failure


async def converse(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str], *, now_s: Callable[[], float]
) -> ClientExchange:
    """Send one request and live through its answer. Never raises for what the other side does."""
    exchange = ClientExchange(lane=headers.get(LANE_HEADER, ""))
    sent_s = now_s()
    try:
        async with session.post(url, data=body, headers=headers) as response:
            exchange.status = response.status
            exchange.lane = response.headers.get(LANE_HEADER, exchange.lane)
            exchange.has_retry_after = "retry-after" in response.headers
            await _read(response, exchange, sent_s, now_s)
    except TimeoutError:
        exchange.failure = FailureKind.TIMEOUT
    except (aiohttp.ClientError, OSError):
        exchange.failure = FailureKind.TRUNCATED if exchange.status else FailureKind.CONNECT
    except asyncio.CancelledError:
        exchange.failure = FailureKind.UNFINISHED
    exchange.e2e_s = now_s() - sent_s
    return exchange


async def _read(
    response: aiohttp.ClientResponse, exchange: ClientExchange, sent_s: float, now_s: Callable[[], float]
) -> None:
    if response.status != 200:
        await response.read()
        if response.status not in (429, 503):
            exchange.failure = f"http-{response.status}"
        return
    exchange.streamed = response.content_type == "text/event-stream"
    if exchange.streamed:
        await _read_stream(response.content.iter_any(), exchange, sent_s, now_s)
    else:
        _read_whole(await response.read(), exchange)


def _read_whole(body: bytes, exchange: ClientExchange) -> None:
    try:
        answer = _decode_chunk(body)
    except msgspec.DecodeError:
        exchange.failure = FailureKind.MALFORMED
        return
    if answer.is_error or not answer.choices:
        exchange.failure = FailureKind.MALFORMED
    _count_usage(answer, exchange)


async def _read_stream(
    chunks: AsyncIterator[bytes], exchange: ClientExchange, sent_s: float, now_s: Callable[[], float]
) -> None:
    """Follow the event stream to its [DONE]; stamp the first content and every gap between events with content."""
    rest = b""
    last_s = 0.0
    is_done = False
    async for chunk in chunks:
        at_s = now_s() - sent_s
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE_BYTES_MAX:
            exchange.failure = FailureKind.MALFORMED
            return
        for line in lines:
            event = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if not event:
                continue
            if event == b"[DONE]":
                is_done = True
                continue
            if _has_content(event, exchange):
                if exchange.ttft_s is None:
                    exchange.ttft_s = at_s
                else:
                    exchange.gaps_s.append(at_s - last_s)
                last_s = at_s
            if exchange.failure:
                return
    if not is_done:
        exchange.failure = FailureKind.TRUNCATED


def _has_content(event: bytes, exchange: ClientExchange) -> bool:
    """Whether an event carries generated text; notes its usage, or its failure."""
    try:
        chunk = _decode_chunk(event)
    except msgspec.DecodeError:
        exchange.failure = FailureKind.MALFORMED
        return False
    if chunk.is_error:
        exchange.failure = FailureKind.ERROR_EVENT
        return False
    _count_usage(chunk, exchange)
    return any(
        choice.delta is not None and (choice.delta.content or choice.delta.reasoning_content or choice.delta.reasoning)
        for choice in chunk.choices
    )


def _count_usage(chunk: _Chunk, exchange: ClientExchange) -> None:
    if chunk.usage is not None:
        exchange.prompt_tokens = chunk.usage.prompt_tokens
        exchange.output_tokens = chunk.usage.completion_tokens
