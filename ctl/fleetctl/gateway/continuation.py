"""Going on with a stream whose replica was lost: what to ask another one, and how to join its answer on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetctl.gateway import wire

_log = logging.getLogger("fleetctl.gateway")

# With any of these set, the tokens so far are not the whole state of the answer, or the client sees more than text.
_UNLAWFUL = (
    "tools", "functions", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "suffix", "use_beam_search",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "continue_final_message",
    "return_token_ids", "prompt_embeds", "audio", "modalities",
)  # fmt: skip
_LENGTHS = ("max_tokens", "max_completion_tokens")
# OpenAI's and vLLM's default for /v1/completions; chat answers may fill the context.
_COMPLETION_TOKENS_DEFAULT = 16


@dataclass(frozen=True, slots=True)
class Continuation:
    """What to send, and how to join what comes back. `body` None: the answer had only its end missing."""

    body: bytes | None
    splicer: Splicer


def plan(request_body: bytes, transcript: bytes | None, *, tokens: int, is_chat: bool) -> Continuation | None:
    """Return how to go on after `tokens` content events were sent. None: it would not be lawful, or cannot be read."""
    try:
        return _plan(request_body, transcript, tokens=tokens, is_chat=is_chat)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError, KeyError) as exc:
        # What a replica streamed is not ours to trust; an odd shape means only that nobody can go on with it.
        _log.warning("a lost stream cannot be continued: %r", exc)
        return None


def _plan(request_body: bytes, transcript: bytes | None, *, tokens: int, is_chat: bool) -> Continuation | None:
    # Lawful is one choice of plain text: no tools, no grammar, no logprobs, and everything sent so far still at hand.
    if transcript is None:
        return None
    body = msgspec.json.decode(request_body)
    sent = _read(transcript, is_chat=is_chat)
    if sent is None or not _is_lawful(body, is_chat=is_chat):
        return None
    splicer = Splicer(sent.envelope, tokens, is_chat=is_chat, has_role=sent.has_role)
    lengths = {key: body[key] - tokens for key in _LENGTHS if isinstance(body.get(key), int)}
    if not lengths and not is_chat:
        lengths = {"max_tokens": _COMPLETION_TOKENS_DEFAULT - tokens}
    if min(lengths.values(), default=1) < 1:
        return Continuation(None, splicer)
    return Continuation(msgspec.json.encode(_resumed(body, sent, lengths, tokens, is_chat=is_chat)), splicer)


@dataclass(slots=True)
class _Sent:
    text: str
    envelope: dict[str, Any]  # id, created, model of the first event
    has_role: bool


def _is_lawful(body: dict[str, Any], *, is_chat: bool) -> bool:
    if not is_chat and not isinstance(body.get("prompt"), str):
        return False
    if any(body.get(key) not in (None, False, [], 0, "none") for key in _UNLAWFUL):
        return False
    if body.get("n") not in (None, 1) or body.get("best_of") not in (None, 1):
        return False
    if (body.get("response_format") or {"type": "text"}).get("type") != "text":
        return False
    return not (body.get("stream_options") or {}).get("continuous_usage_stats")


def _read(transcript: bytes, *, is_chat: bool) -> _Sent | None:
    sent = _Sent(text="", envelope={}, has_role=False)
    texts: list[str] = []
    for event in _events(transcript):
        if not sent.envelope:
            sent.envelope = {key: event[key] for key in ("id", "created", "model") if key in event}
        for choice in event.get("choices") or ():
            if choice.get("index", 0) != 0:
                return None
            if not is_chat:
                texts.append(choice.get("text") or "")
                continue
            delta = choice.get("delta") or {}
            if any(delta.get(key) for key in ("tool_calls", "function_call", "reasoning_content", "reasoning")):
                return None
            sent.has_role = sent.has_role or "role" in delta
            texts.append(delta.get("content") or "")
    sent.text = "".join(texts)
    return sent


def _events(data: bytes) -> list[dict[str, Any]]:
    return [event for line in data.splitlines() if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
        return None
    event = msgspec.json.decode(line[5:])
    return event if isinstance(event, dict) else None


def _resumed(
    body: dict[str, Any], sent: _Sent, lengths: dict[str, int], tokens: int, *, is_chat: bool
) -> dict[str, Any]:
    resumed = {**body, **lengths}
    if isinstance(body.get("min_tokens"), int):
        resumed["min_tokens"] = max(0, body["min_tokens"] - tokens)
    if not sent.text:
        return resumed
    if is_chat:
        resumed["messages"] = [*body["messages"], {"role": "assistant", "content": sent.text}]
        resumed["continue_final_message"] = True
        resumed["add_generation_prompt"] = False
    else:
        resumed["prompt"] = body["prompt"] + sent.text
    return resumed


class Splicer:
    """Rewrites a continuation's events so that the client sees one answer."""

    __slots__ = ("_envelope", "_has_role", "_is_chat", "_tokens")

    def __init__(self, envelope: dict[str, Any], tokens: int, *, is_chat: bool, has_role: bool) -> None:
        self._envelope = envelope
        self._tokens = tokens
        self._is_chat = is_chat
        self._has_role = has_role

    def __call__(self, data: bytes) -> bytes:
        """Return these complete events as part of the first answer."""
        return b"".join(self._rewrite(line) for line in data.splitlines() if line)

    def end(self) -> bytes:
        """Return the events that end an answer of which nothing but its end is missing: it has used up its length."""
        content: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        choice = {"index": 0, **content, "finish_reason": "length"}
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        return _encode({**self._envelope, "object": kind, "choices": [choice]}) + wire.DONE_EVENT

    def _rewrite(self, line: bytes) -> bytes:
        event = _event(line)
        if event is None or "error" in event:
            return line + b"\n\n"
        event |= self._envelope
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if self._has_role and "role" in delta:
                del delta["role"]
                if not delta.get("content") and choice.get("finish_reason") is None:
                    return b""
        if event.get("usage"):
            self._sum_usage(event["usage"])
        return _encode(event)

    def _sum_usage(self, usage: dict[str, Any]) -> None:
        # The replica counted what had been sent as prompt; the total is the same either way.
        usage["prompt_tokens"] = max(0, usage.get("prompt_tokens", 0) - self._tokens)
        usage["completion_tokens"] = usage.get("completion_tokens", 0) + self._tokens


def _encode(event: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
