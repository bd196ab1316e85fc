"""Reads as much of a request body as the choice of lane and replica needs, and no more."""

from __future__ import annotations

import msgspec

_EMPTY = msgspec.Raw(b"")
_ONE = frozenset({b"", b"1", b"null"})
_NONE = frozenset({b"", b"[]", b"0", b"false", b"null"})
_DIGITS_MAX = 9


class _ContentPart(msgspec.Struct):
    text: msgspec.Raw = _EMPTY


class _Message(msgspec.Struct):
    content: msgspec.Raw = _EMPTY


class _RoledMessage(_Message):
    role: str = ""


class _Chat(msgspec.Struct):
    messages: list[_RoledMessage] = []


class _Body(msgspec.Struct):
    messages: list[_Message] = []
    prompt: msgspec.Raw = _EMPTY
    stream: bool | None = None
    service_tier: str | None = None
    stream_options: msgspec.Raw = _EMPTY
    max_tokens: msgspec.Raw = _EMPTY
    max_completion_tokens: msgspec.Raw = _EMPTY
    n: msgspec.Raw = _EMPTY
    tools: msgspec.Raw = _EMPTY
    logprobs: msgspec.Raw = _EMPTY


class ParsedRequest(msgspec.Struct):
    """What the choice of lane and replica, and the relay of the answer, need to know of a request."""

    prompt: bytes  # its text, as JSON wrote it
    prompt_tokens: int | None  # known only when it came as token ids
    stream: bool
    batch_hint: bool
    stream_options: bytes = b""  # as JSON wrote them
    output_tokens_max: int | None = None
    is_plain: bool = True  # one choice of text: no tools, no log probabilities


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_parts = msgspec.json.Decoder(list[_ContentPart]).decode
_decode_prompts = msgspec.json.Decoder(list[str | int | list[int]]).decode


def parse_request(body: bytes) -> ParsedRequest:
    """Return what a chat or completion body asks for. Raises msgspec.DecodeError when it is not such a body."""
    read = _decode_body(body)
    prompt = b"".join([_text(bytes(m.content)) for m in read.messages])
    tokens = None
    if raw := bytes(read.prompt):
        prompt, tokens = _completion_prompt(raw)
    return ParsedRequest(
        prompt=prompt,
        prompt_tokens=tokens,
        stream=bool(read.stream),
        batch_hint=read.service_tier == "flex",
        stream_options=bytes(read.stream_options),
        output_tokens_max=_count(bytes(read.max_completion_tokens)) or _count(bytes(read.max_tokens)),
        is_plain=bytes(read.n) in _ONE and bytes(read.tools) in _NONE and bytes(read.logprobs) in _NONE,
    )


def _count(number: bytes) -> int | None:
    return int(number) if number.isdigit() and len(number) <= _DIGITS_MAX else None


def message_texts(body: bytes) -> list[tuple[str, bytes]]:
    """Return (role, text as JSON wrote it) of a chat's messages; none for a completion. Raises msgspec.DecodeError."""
    return [(message.role, _text(bytes(message.content))) for message in _decode_chat(body).messages]


def _text(content: bytes) -> bytes:
    if not content.startswith(b"["):
        return content
    # An image in a part is not text: its base64 must not count as prompt.
    return b"".join([bytes(part.text) for part in _decode_parts(content)])


def _completion_prompt(raw: bytes) -> tuple[bytes, int | None]:
    if not raw.startswith(b"["):
        return raw, None
    prompts = _decode_prompts(raw)
    if any(isinstance(p, str) for p in prompts):
        return raw, None
    return raw, sum(len(p) if isinstance(p, list) else 1 for p in prompts)
