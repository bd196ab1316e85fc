"""What a client has been given of a stream: its text and its tokens, kept so that another replica can go on with it.

Text is kept as JSON wrote it, some 4 B a token of English and at most twice that in most scripts, in one growing buffer:
a stream of 8,000 tokens holds about 40 KB, events of 240 B each would hold 2 MB.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from fleetctl.gateway.event_shape import read_event
from fleetctl.gateway.usage import Usage, read_usage

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')
_ENVELOPE = ("id", "created", "model")
# Whatever else a delta holds is no text that could be sent back as a message.
_TEXT_KEYS = frozenset({"role", "content"})


class Transcript:
    """One choice of plain text. What cannot be told back to an engine makes it unfit, and nothing more is kept."""

    __slots__ = ("_base", "_events", "_prompt_tokens", "envelope", "has_role", "is_fit", "text", "text_bytes_max")

    def __init__(self, text_bytes_max: int) -> None:
        self.text_bytes_max = text_bytes_max
        self.text = bytearray()
        self.is_fit = True
        self.has_role = False
        self.envelope: dict[str, Any] = {}
        self._events = 0  # with a token each, of an engine that does not count
        self._base = 0  # tokens of the replicas before this one
        self._prompt_tokens: int | None = None  # as the first replica counted them

    def note(self, event: dict[str, Any]) -> bool:
        """Take in an event that is not like the one before. Return whether it is plain text and nothing else."""
        if not self.envelope:
            self.envelope = {key: event[key] for key in _ENVELOPE if key in event}
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices:
            return False
        choice = choices[0]
        if not isinstance(choice, dict):
            self.drop()
            return False
        delta = choice.get("delta")
        if len(choices) > 1 or choice.get("index", 0) or choice.get("logprobs") or not _is_text(delta):
            self.drop()
            return False
        is_opening = not self.has_role and delta is not None and "role" in delta
        self.has_role = self.has_role or is_opening
        text = (delta.get("content") if delta is not None else choice.get("text")) or ""
        if not isinstance(text, str):
            self.drop()
            return False
        # A token may be nothing to see yet: the first bytes of a character. An opening event is no token.
        self._events += 1 if text or not is_opening else 0
        self.add(msgspec.json.encode(text)[1:-1])
        return bool(text) and choice.get("finish_reason") is None

    def note_end(self, *, has_token: bool) -> None:
        """Count the token, if it has one, of an event that says why the answer ended."""
        self._events += has_token

    def add(self, text: bytes) -> None:
        """Keep some more text, as JSON wrote it."""
        self.text += text
        if len(self.text) > self.text_bytes_max:
            self.drop()

    def drop(self) -> None:
        """Keep nothing more: nobody could go on with this."""
        self.is_fit = False
        self.text.clear()

    def usage(self, counted: bytes, *, plain_events: int) -> tuple[int | None, int]:
        """Return prompt tokens, if they are known, and the tokens generated.

        `counted` is the last event with the engine's own count, b"" from one that does not count; `plain_events` carried
        a token each and were not passed to `note`.
        """
        usage = read_usage(counted) if counted else None
        if usage is None:
            return self._prompt_tokens, self._base + self._events + plain_events
        return self._prompt_tokens or usage.prompt_tokens or None, usage.completion_tokens

    def restart(self, prompt_tokens: int | None, tokens: int, *, plain_events: int) -> None:
        """Get ready for another replica's part of the answer."""
        self._prompt_tokens = prompt_tokens
        self._base = tokens - plain_events
        self._events = 0

    def delivered(self) -> str:
        """Return the text. Raises msgspec.DecodeError or UnicodeDecodeError where it is none."""
        delivered: str = msgspec.json.decode(b'"%b"' % bytes(self.text), type=str)
        return delivered


def total(usage: Usage, prompt_tokens: int | None, tokens_before: int) -> Usage:
    """Return the usage of the whole answer when the last replica says `usage` of its part.

    It counted what had been delivered as prompt; where nobody counted the prompt before, that is what it comes to.
    """
    prompt = prompt_tokens if prompt_tokens is not None else max(0, usage.prompt_tokens - tokens_before)
    return Usage(prompt, usage.completion_tokens + tokens_before)


def sole_event(data: bytes) -> dict[str, Any] | None:
    """Return what the only event of `data` holds where its answer goes on behind it; None: anything else."""
    if data.find(b"\n\n") != len(data) - 2:
        return None
    event = read_event(data)
    if event is None or "error" in event or event.get("object") == "error":
        return None
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return event if isinstance(choice, dict) and choice.get("finish_reason") is None else None


def gives_finish(events: bytes) -> bool:
    """Whether one of these events says why the answer ended."""
    at = events.find(b'"finish_reason"')
    return at >= 0 and _FINISH.search(events, at) is not None


def goes_on(events: bytes) -> bool:
    """Whether one of these events says that its answer has not ended."""
    return events.find(b'"finish_reason":null') >= 0 or events.find(b'"finish_reason": null') >= 0


def _is_text(delta: object) -> bool:
    """Whether a delta (None: a completion has none) is text alone."""
    if delta is None:
        return True
    return isinstance(delta, dict) and all(key in _TEXT_KEYS or not value for key, value in delta.items())
