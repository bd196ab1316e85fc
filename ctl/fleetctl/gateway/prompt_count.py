"""The usage of a finished answer whose engine died before it told it: another replica counts the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway.event_shape import read_event
from fleetctl.gateway.splicer import end_of_stream
from fleetctl.gateway.usage import Usage, merged, read_usage

if TYPE_CHECKING:
    from fleetctl.gateway.usage import ShownUsage

_LENGTHS = ("max_tokens", "max_completion_tokens")


class PromptCount:
    """In a splicer's place: of what the replica streams only its count of the prompt is passed on, in the answer's end.

    `opening` is what the client gets before it: the finish reason, where it has none yet.
    """

    __slots__ = ("_envelope", "_is_chat", "_shown", "_tokens", "is_over", "opening")

    def __init__(
        self, envelope: dict[str, Any], tokens: int, *, opening: bytes, is_chat: bool, shown: ShownUsage
    ) -> None:
        self._envelope = envelope
        self._tokens = tokens
        self._is_chat = is_chat
        self._shown = shown
        self.opening = opening
        self.is_over = False

    def __call__(self, data: bytes) -> bytes:
        """Return the answer's end once these complete events tell the usage; nothing before."""
        for line in data.splitlines():
            event = read_event(line)
            usage = read_usage(line) if event is not None and event.get("usage") else None
            if usage is not None and not self.is_over:
                self.is_over = True
                return self.end(usage.prompt_tokens)
        return b""

    def end(self, prompt_tokens: int | None = None) -> bytes:
        """Return the answer's end; without a usage where nobody has counted the prompt."""
        usage = Usage(prompt_tokens, self._tokens) if prompt_tokens is not None else None
        return self.opening + end_of_stream(self._envelope, usage, is_chat=self._is_chat, shown=self._shown)


def counting_body(request_body: bytes) -> bytes:
    """Return the body that has a replica read the prompt, and generate as little as it can. Raises DecodeError."""
    body: dict[str, Any] = msgspec.json.decode(request_body)
    lengths = {key: 1 for key in _LENGTHS if key in body} or {"max_tokens": 1}
    body.pop("min_tokens", None)
    return msgspec.json.encode({**body, **lengths, "stream_options": merged(body.get("stream_options"))})
