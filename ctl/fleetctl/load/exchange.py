"""One request, as a client lives it: sent, streamed, stamped, and judged complete or not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.slo.endings import Ending
from fleetctl.load.accounts import ClientStopwatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fleetctl.load.accounts import ClientAccounts

LANE_HEADER = "x-fleetctl-lane"
TIER_HEADER = "x-fleetctl-tier"
REASON_HEADER = "x-fleetctl-reason"
BATCH_HEADER = "x-fleetctl-batch"
RETRY_AFTER_S = 1.0  # where a refusal names no time
_RETRY_AFTER_S_MAX = 600.0
_LINE_BYTES_MAX = 8 * 1024 * 1024
_ERROR_BYTES_MAX = 64 * 1024
_MESSAGE_MAX = 200  # characters


class FailureKind(StrEnum):
    """How a request failed that was neither answered nor refused; other statuses are http-<status>."""

    CONNECT = "connect"  # refused, reset or closed before the status line
    TRUNCATED = "truncated"  # the stream ended without [DONE], or the connection in the middle of the body
    ERROR_EVENT = "error-event"  # the stream reported itself that it failed
    TIMEOUT = "timeout"
    MALFORMED = "malformed"  # an answer that is no chat completion
    UNFINISHED = "unfinished"  # cut by the end of the run; counted as cut short


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
    """The result of one request. Times are seconds from when it was due."""

    lane: str = ""
    tier: str = ""
    status: int = 0  # 0: no status line came
    failure: str = ""  # FailureKind or http-<status>; empty: answered in full, or refused
    has_retry_after: bool = False
    retry_after_s: float = RETRY_AFTER_S  # when it was told to come back
    streamed: bool = True
    reason: str = ""  # a refusal's, as the gateway names it
    message: str = ""  # why, in the other side's words; printable
    ttft_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    stopwatch: ClientStopwatch | None = None  # its times and its verdict, once it is over

    @property
    def is_ok(self) -> bool:
        """Whether it was answered in full."""
        return self.status == 200 and not self.failure

    @property
    def is_cut_short(self) -> bool:
        """Whether the run's end cut it before it was answered or refused."""
        return self.failure == FailureKind.UNFINISHED and self.status < 400

    @property
    def ending(self) -> Ending:
        """How it counts, by the same table as at the gateway."""
        if self.status >= 400:
            return Ending.of_status(self.status)
        if not self.failure and self.status == 200:
            return Ending.COMPLETE
        return _ENDINGS.get(self.failure, Ending.ERROR)


_REASONS = frozenset(Refusal)

_ENDINGS = {
    FailureKind.TIMEOUT.value: Ending.TIMEOUT,
    FailureKind.TRUNCATED.value: Ending.INCOMPLETE,
    FailureKind.ERROR_EVENT.value: Ending.INCOMPLETE,
    FailureKind.UNFINISHED.value: Ending.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request that is ready to be sent."""

    url: str
    body: bytes
    headers: dict[str, str]
    is_stream: bool
    tier: str = ""  # that it should have, as far as its client knows
    due_s: float | None = None  # when it should have been sent; None: when it is


async def converse(
    session: aiohttp.ClientSession, request: ClientRequest, *, accounts: ClientAccounts, now_s: Callable[[], float]
) -> ClientExchange:
    """Send one request, live through its answer, and account for it. Never raises for what the other side does."""
    is_stream = request.is_stream
    headers = request.headers
    exchange = ClientExchange(lane=headers.get(LANE_HEADER, ""), tier=request.tier, streamed=is_stream)
    # A user who is sent late has waited already: measured from the sending, a generator without a processor would hide
    # in its own figures what it kept from the fleet.
    # A timer that fires a clock's tick early sends nothing before it was sent.
    begun_s = now_s() if request.due_s is None else min(request.due_s, now_s())
    watch = accounts.begin(exchange.lane, begun_s, is_stream=is_stream, tier=exchange.tier)
    try:
        async with session.post(request.url, data=request.body, headers=request.headers) as response:
            exchange.status = response.status
            exchange.lane = response.headers.get(LANE_HEADER, exchange.lane)
            # What the gateway let it have, where it says so: a key may choose no higher tier than its own.
            exchange.tier = _printable(response.headers.get(TIER_HEADER, exchange.tier))
            exchange.has_retry_after = "retry-after" in response.headers
            exchange.retry_after_s = _seconds(response.headers.get("retry-after", ""))
            # Only where the request names its lane is it known before its answer.
            watch = accounts.named(watch, exchange.lane, exchange.tier)
            await _read(response, exchange, watch, now_s)
    except TimeoutError:
        exchange.failure = FailureKind.TIMEOUT
    except (aiohttp.ClientError, OSError) as error:
        exchange.failure = FailureKind.TRUNCATED if exchange.status else FailureKind.CONNECT
        exchange.message = _printable(str(error))
    except asyncio.CancelledError:
        exchange.failure = exchange.failure or FailureKind.UNFINISHED
    exchange.ttft_s = watch.ttft_s
    exchange.stopwatch = watch
    accounts.end(
        watch,
        now_s(),
        exchange.ending,
        is_stream=exchange.streamed,
        output_tokens=exchange.output_tokens,
        message=exchange.message,
    )
    return exchange


def _seconds(retry_after: str) -> float:
    """Return the seconds that a Retry-After names; a second for a date or anything else."""
    return (
        min(float(retry_after), _RETRY_AFTER_S_MAX)
        if retry_after.isascii() and retry_after.isdigit()
        else RETRY_AFTER_S
    )


async def _read(
    response: aiohttp.ClientResponse, exchange: ClientExchange, watch: ClientStopwatch, now_s: Callable[[], float]
) -> None:
    if response.status != 200:
        if response.status not in (429, 503):
            exchange.failure = f"http-{response.status}"
        reason = response.headers.get(REASON_HEADER, "")
        # Reasons come from the other side: none but those that the gateway has is counted by name.
        exchange.reason = reason if reason in _REASONS else ""
        exchange.message = _printable(reason) or _message(await response.content.read(_ERROR_BYTES_MAX))
        return
    exchange.streamed = response.content_type == "text/event-stream"
    if exchange.streamed:
        await _read_stream(response.content.iter_any(), exchange, watch, now_s)
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
    chunks: AsyncIterator[bytes], exchange: ClientExchange, watch: ClientStopwatch, now_s: Callable[[], float]
) -> None:
    """Follow the event stream to its [DONE]; stamp the events with content as they come."""
    rest = b""
    is_done = False
    async for chunk in chunks:
        at_s = now_s()
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _LINE_BYTES_MAX:
            exchange.failure = FailureKind.MALFORMED
            return
        events = 0
        for line in lines:
            event = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if not event:
                continue
            if event == b"[DONE]":
                is_done = True
                continue
            events += _has_content(event, exchange)
            if exchange.failure:
                break
        if events:
            watch.tokens(at_s, events)
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
        exchange.message = _message(event)
        return False
    _count_usage(chunk, exchange)
    return any(
        choice.delta is not None and (choice.delta.content or choice.delta.reasoning_content or choice.delta.reasoning)
        for choice in chunk.choices
    )


class _Error(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error | str | None = None
    message: str = ""
    detail: str = ""


def _message(body: bytes) -> str:
    """Return what an error body says, by OpenAI's shape or the like."""
    try:
        found = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _printable(body[:_MESSAGE_MAX].decode(errors="replace"))
    message = found.error.message if isinstance(found.error, _Error) else found.error or ""
    return _printable(message or found.message or found.detail)


def _printable(text: str) -> str:
    """Return one line of bounded length that moves no cursor."""
    plain = "".join(each if each.isprintable() else " " for each in text[: 2 * _MESSAGE_MAX])
    return " ".join(plain.split())[:_MESSAGE_MAX]


def _count_usage(chunk: _Chunk, exchange: ClientExchange) -> None:
    if chunk.usage is not None:
        exchange.prompt_tokens = chunk.usage.prompt_tokens
        exchange.output_tokens = chunk.usage.completion_tokens
