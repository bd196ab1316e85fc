"""Rewrites what another replica streams, so that the client sees one answer: one id, one role, one count, one end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway import wire
from fleetctl.gateway.event_shape import read_event
from fleetctl.gateway.seam import Seam
from fleetctl.gateway.transcript import total
from fleetctl.gateway.usage import Usage, read_usage

if TYPE_CHECKING:
    from fleetctl.gateway.transcript import Transcript
    from fleetctl.gateway.usage import ShownUsage


class Splicer:
    """One continuation's events."""

    __slots__ = (
        "_envelope",
        "_has_role",
        "_is_chat",
        "_last",
        "_prompt_tokens",
        "_seam",
        "_shown",
        "_tokens",
        "is_over",
    )

    def __init__(  # noqa: PLR0913  # what both parts of the answer must agree on
        self,
        transcript: Transcript,
        counts: tuple[int | None, int],
        *,
        delivered: str,
        unsent: str,
        stops: tuple[str, ...],
        is_chat: bool,
        shown: ShownUsage,
    ) -> None:
        self._envelope = transcript.envelope
        self._has_role = transcript.has_role
        self._prompt_tokens, self._tokens = counts
        self._is_chat = is_chat
        self._shown = shown
        self._seam = Seam(delivered, unsent=unsent, stops=stops)
        self._last: Usage | None = None  # of the whole answer, as far as the engine has reported
        self.is_over = False  # its own end was written: a stop string was found across the seam

    def __call__(self, data: bytes) -> bytes:
        """Return these complete events as part of the first answer."""
        return b"".join(self._rewrite(line) for line in data.splitlines() if line and not self.is_over)

    def end(self) -> bytes:
        """Return the events that end an answer of which nothing but its end is missing: it has used up its length."""
        usage = Usage(self._prompt_tokens, self._tokens) if self._prompt_tokens is not None else None
        return self.finish("length") + end_of_stream(self._envelope, usage, is_chat=self._is_chat, shown=self._shown)

    def finish(self, finish_reason: str, **more: str) -> bytes:
        """Return the event that says why the answer ended."""
        return finish_event(self._envelope, 0, is_chat=self._is_chat, finish_reason=finish_reason, **more)

    def _rewrite(self, line: bytes) -> bytes:
        event = read_event(line)
        if event is None or "error" in event:
            return line + b"\n\n"
        event |= self._envelope
        if event.get("usage"):
            self._last = self._total(event["usage"])
        for choice in event.get("choices") or ():
            delta = choice.get("delta") if self._is_chat else choice
            if isinstance(delta, dict) and not self._is_worth_passing(choice, delta):
                return self._stop() if self._seam.stopped_by else b""
        return encode(event)

    def _is_worth_passing(self, choice: dict[str, Any], delta: dict[str, Any]) -> bool:
        """Join a choice's text on; return whether anything of it is left for the client."""
        was_opening = "role" in delta and not delta.get("content")
        if self._has_role:
            delta.pop("role", None)
        finish = choice.get("finish_reason")
        key = "content" if self._is_chat else "text"
        if not self._seam.is_closed and (delta.get(key) or finish is not None):
            text = self._seam.join(delta.get(key) or "", is_last=finish is not None)
            is_held = not text and bool(delta.get(key))
            delta[key] = text
            if self._seam.stopped_by or (is_held and finish is None):
                return False
        return finish is not None or not (was_opening and self._has_role)

    def _stop(self) -> bytes:
        self.is_over = True
        ended = self.finish("stop", stop_reason=self._seam.stopped_by)
        return ended + end_of_stream(self._envelope, self._last, is_chat=self._is_chat, shown=self._shown)

    def _total(self, reported: dict[str, Any]) -> Usage | None:
        """Make an event's usage that of the whole answer."""
        usage = read_usage(b'"usage"' + msgspec.json.encode(reported))
        if usage is None:
            return self._last
        whole = total(usage, self._prompt_tokens, self._tokens)
        reported |= whole.as_openai()
        details = reported.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            details["cached_tokens"] = min(details["cached_tokens"], whole.prompt_tokens)
        return whole


def end_of_stream(envelope: dict[str, Any], usage: Usage | None, *, is_chat: bool, shown: ShownUsage) -> bytes:
    """Return what follows a stream's last choice: the usage, where it is known and asked for, and [DONE]."""
    if usage is None or not shown.at_end:
        return wire.DONE_EVENT
    event = {**envelope, "object": kind_of(is_chat=is_chat), "choices": [], "usage": usage.as_openai()}
    return encode(event) + wire.DONE_EVENT


def finish_event(envelope: dict[str, Any], index: int, *, is_chat: bool, **ends: str) -> bytes:
    """Return the event that says why a choice ended."""
    content: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
    return encode({**envelope, "object": kind_of(is_chat=is_chat), "choices": [{"index": index, **content, **ends}]})


def kind_of(*, is_chat: bool) -> str:
    """Return what OpenAI calls a stream's events."""
    return "chat.completion.chunk" if is_chat else "text_completion"


def encode(event: dict[str, Any]) -> bytes:
    """Return an event as it is sent."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
