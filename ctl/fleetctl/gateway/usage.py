"""The token counts that engines give with their answers: asking for them, reading them, showing them to the client."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})(?!\d)')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})(?!\d)')
_CACHED_TOKENS = re.compile(rb'"cached_tokens"\s*:\s*(\d{1,12})(?!\d)')
# An event's own key: inside JSON strings quotes are escaped, so no text of an answer matches.
_MEMBER = re.compile(rb',\s*"usage"\s*:\s*(?:null|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')

# vLLM and SGLang then say with every event how many tokens they have generated; only they know, for an event may carry
# several tokens, or one of several that make up a character.
_WANTED = {"include_usage": True, "continuous_usage_stats": True}
_NAME = b'"stream_options"'
_MEMBER_WANTED = _NAME + b":" + msgspec.json.encode(_WANTED) + b","


class Usage(msgspec.Struct, frozen=True):
    """What the engine said it used."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None  # of the prompt, that its engine did not have to compute; None: it does not say

    def as_openai(self) -> dict[str, int]:
        """Return it as OpenAI spells it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
        }


class ShownUsage(msgspec.Struct, frozen=True):
    """Which counts a client asked to see in its stream."""

    at_end: bool = False
    in_events: bool = False


SHOWS_NONE = ShownUsage()


def read_usage(data: bytes) -> Usage | None:
    """Return the last usage object in `data`, if any."""
    start = data.rfind(b'"usage"')
    if start < 0:
        return None
    prompt = _PROMPT_TOKENS.search(data, start)
    completion = _COMPLETION_TOKENS.search(data, start)
    if prompt is None:
        return None
    cached = _CACHED_TOKENS.search(data, start) if data.find(b'"cached_tokens"', start) >= 0 else None
    return Usage(int(prompt[1]), int(completion[1]) if completion else 0, int(cached[1]) if cached else None)


def usage_event(event: bytes) -> bytes:
    """Return the usage of an event with choices in one of its own, as OpenAI's streams end; b"": it cannot be read."""
    _, _, data = event.strip().partition(b"data:")
    try:
        tree = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return b""
    if not isinstance(tree, dict) or not isinstance(tree.get("usage"), dict):
        return b""
    kept = {key: tree[key] for key in ("id", "object", "created", "model", "system_fingerprint") if key in tree}
    return b"data: " + msgspec.json.encode({**kept, "choices": [], "usage": tree["usage"]}) + b"\n\n"


def without_usage(event: bytes) -> bytes:
    """Return an event without its usage."""
    return _MEMBER.sub(b"", event)


def shown_usage(given: bytes) -> ShownUsage:
    """Return what a body's `stream_options` (b"": it has none) ask for; what is no such object asks for nothing."""
    if not given:
        return SHOWS_NONE
    try:
        options = msgspec.json.decode(given)
    except msgspec.DecodeError:
        options = None
    if not isinstance(options, dict) or options.get("include_usage") is not True:
        return SHOWS_NONE
    return ShownUsage(at_end=True, in_events=options.get("continuous_usage_stats") is True)


def asking_for_counts(body: bytes, given: bytes) -> bytes:
    """Return a streamed request's body with `stream_options` that ask for counts; `given` are those it has, as bytes."""
    if not given:
        at = body.find(b"{") + 1
        return body[:at] + _MEMBER_WANTED + body[at:]
    at = body.find(given, body.find(_NAME) + len(_NAME)) if body.count(_NAME) == 1 else -1
    if at < 0:
        request: dict[str, Any] = msgspec.json.decode(body)
        return msgspec.json.encode(request | {"stream_options": merged(request.get("stream_options"))})
    return body[:at] + msgspec.json.encode(merged(msgspec.json.decode(given))) + body[at + len(given) :]


def merged(options: object) -> dict[str, Any]:
    """Return stream options that ask for counts, whatever else these ask for."""
    return {**(options if isinstance(options, dict) else {}), **_WANTED}
