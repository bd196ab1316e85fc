"""Reads as much of a request body as the choice of lane and replica needs, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.tokens import IMAGE_TOKENS, IMAGE_TOKENS_LOW_DETAIL, PromptSize

if TYPE_CHECKING:
    from collections.abc import Iterable

_EMPTY = msgspec.Raw(b"")
_ONE = frozenset({b"", b"1", b"null"})
_NONE = frozenset({b"", b"[]", b"0", b"false", b"null"})
_ABSENT = (b"", b"null")


class _ContentPart(msgspec.Struct):
    text: msgspec.Raw = _EMPTY
    type: str = "text"
    image_url: msgspec.Raw = _EMPTY


class _Image(msgspec.Struct):
    detail: str = "auto"


class _Message(msgspec.Struct):
    content: msgspec.Raw = _EMPTY
    name: msgspec.Raw = _EMPTY
    tool_calls: msgspec.Raw = _EMPTY
    function_call: msgspec.Raw = _EMPTY
    reasoning_content: msgspec.Raw = _EMPTY


class _RoledMessage(_Message):
    role: str = ""


class _Chat(msgspec.Struct):
    messages: list[_RoledMessage] = []


class _Body(msgspec.Struct):
    messages: list[_Message] = []
    model: msgspec.Raw = _EMPTY
    prompt: msgspec.Raw = _EMPTY
    functions: msgspec.Raw = _EMPTY
    stream: bool | None = None
    service_tier: str | None = None
    stream_options: msgspec.Raw = _EMPTY
    max_tokens: msgspec.Raw = _EMPTY
    max_completion_tokens: msgspec.Raw = _EMPTY
    stop: msgspec.Raw = _EMPTY
    n: msgspec.Raw = _EMPTY
    tools: msgspec.Raw = _EMPTY
    logprobs: msgspec.Raw = _EMPTY
    prompt_cache_key: msgspec.Raw = _EMPTY
    user: msgspec.Raw = _EMPTY


class ParsedRequest(msgspec.Struct):
    """What the choice of lane and replica, and the relay of the answer, need to know of a request."""

    prompt: bytes  # all the text an engine tokenizes, as JSON wrote it, in the order of chat templates
    size: PromptSize
    longest: PromptSize  # of several prompts in one request the longest; else the same
    stream: bool
    batch_hint: bool
    stream_options: bytes = b""  # as JSON wrote them
    output_tokens_max: int | None = None  # as asked; None: not said
    is_single: bool = True  # one choice
    is_plain: bool = True  # one choice of text: no tools, no log probabilities
    has_length: bool = True  # it has a key for the answer's length, whatever it holds
    has_whole_length: bool = True  # it has one such key, and that holds a whole number
    has_stop: bool = True  # and one for stop sequences
    model: bytes = b""  # as JSON wrote it; empty: not named
    cache_key: bytes = b""  # what tells conversations of one client apart: its prompt_cache_key, else its user


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_parts = msgspec.json.Decoder(list[_ContentPart]).decode
_decode_prompts = msgspec.json.Decoder(list[str | int | list[int]]).decode
_decode_image = msgspec.json.Decoder(_Image).decode
_decode_number = msgspec.json.Decoder(float, strict=False).decode


def parse_request(body: bytes) -> ParsedRequest:
    """Return what a chat or completion body asks for. Raises msgspec.DecodeError when it is not such a body."""
    if not body.isascii():
        _check_utf8(body)  # what is read raw below is looked at by nobody else before the engine
    try:
        read = _decode_body(body)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    is_single = read.n is _EMPTY or bytes(read.n) in _ONE
    first, second = read.max_completion_tokens, read.max_tokens
    output_tokens_max, is_whole = None, False
    if first is not _EMPTY:
        output_tokens_max, is_whole = _length(first, second)
    elif second is not _EMPTY:
        output_tokens_max = _count(number := bytes(second))
        is_whole = number.isdigit()
    if read.prompt is not _EMPTY and (raw := bytes(read.prompt)):
        text, size, longest, prompts = _completion_prompt(raw)
        is_single = is_single and prompts == 1
    else:
        text, size = _chat_prompt(read)
        longest = size
    return ParsedRequest(
        prompt=text,
        size=size,
        longest=longest,
        stream=bool(read.stream),
        batch_hint=read.service_tier == "flex",
        stream_options=bytes(read.stream_options) if read.stream_options is not _EMPTY else b"",
        output_tokens_max=output_tokens_max,
        is_single=is_single,
        is_plain=(
            (read.n is _EMPTY or bytes(read.n) in _ONE)
            and (read.tools is _EMPTY or bytes(read.tools) in _NONE)
            and (read.logprobs is _EMPTY or bytes(read.logprobs) in _NONE)
        ),
        has_length=first is not _EMPTY or second is not _EMPTY,
        has_whole_length=is_whole,
        has_stop=read.stop is not _EMPTY,
        model=bytes(read.model),
        cache_key=b"" if read.user is _EMPTY is read.prompt_cache_key else _cache_key(read),
    )


def _cache_key(read: _Body) -> bytes:
    given = (bytes(raw) for raw in (read.prompt_cache_key, read.user) if raw is not _EMPTY)
    return next((raw for raw in given if raw not in _ABSENT), b"")


def _check_utf8(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        raise msgspec.DecodeError(f"it is no UTF-8: {exc.reason} at byte {exc.start}") from None


def message_texts(body: bytes) -> list[tuple[str, bytes]]:
    """Return (role, text as JSON wrote it) of a chat's messages; none for a completion. Raises msgspec.DecodeError."""
    return [(message.role, b"".join(_texts(message)[0])) for message in _decode_chat(body).messages]


def _chat_prompt(read: _Body) -> tuple[bytes, PromptSize]:
    # Templates put the tools before the first message, so prompts that share them share a prefix.
    pieces: list[bytes] = []
    if read.tools is not _EMPTY or read.functions is not _EMPTY:
        pieces += [bytes(raw) for raw in (read.tools, read.functions) if bytes(raw) not in _ABSENT]
    images = image_tokens = 0
    for message in read.messages:
        # Most are a text and nothing else, and there may be hundreds of them.
        if (
            message.name is _EMPTY
            and message.tool_calls is _EMPTY
            and message.reasoning_content is _EMPTY
            and message.function_call is _EMPTY
        ):
            content = bytes(message.content)
            if not content.startswith(b"["):
                pieces.append(content)
                continue
        texts, details = _texts(message)
        pieces += texts
        for tokens in details:
            images += 1
            image_tokens += tokens
    text = b"".join(pieces)
    return text, PromptSize(len(text), len(read.messages), images, image_tokens)


def _texts(message: _Message) -> tuple[list[bytes], Iterable[int]]:
    """Return the pieces of text of a message, and the tokens estimated for each of its images."""
    content = bytes(message.content)
    found, images = ([content], ()) if not content.startswith(b"[") else _parts(content)
    found += [
        bytes(raw)
        for raw in (message.name, message.reasoning_content, message.tool_calls, message.function_call)
        if raw is not _EMPTY and bytes(raw) not in _ABSENT
    ]
    return found, images


def _parts(content: bytes) -> tuple[list[bytes], Iterable[int]]:
    parts = _decode_parts(content)
    # An image in a part is not text: its base64 must not count as prompt. What is neither is taken for an image.
    images = [_image_tokens(bytes(part.image_url)) for part in parts if part.text is _EMPTY]
    return [bytes(part.text) for part in parts if part.text is not _EMPTY], images


def _image_tokens(image: bytes) -> int:
    is_low = image.startswith(b"{") and _decode_image(image).detail == "low"
    return IMAGE_TOKENS_LOW_DETAIL if is_low else IMAGE_TOKENS


def _length(first: msgspec.Raw, second: msgspec.Raw) -> tuple[int | None, bool]:
    """Return the length of a request that names the key that ranks first, and whether it names that alone, as a whole number."""
    number = bytes(first)
    if second is _EMPTY:
        return _count(number), number.isdigit()
    return _count(number) or _count(bytes(second)), False


def _count(number: bytes) -> int | None:
    """Return a number of tokens; None for anything an engine would not take for one, which it will say itself."""
    if number.isdigit() and len(number) < 10:
        return int(number)
    try:
        return int(_decode_number(number))
    except (msgspec.DecodeError, OverflowError, ValueError):
        return None


def _completion_prompt(raw: bytes) -> tuple[bytes, PromptSize, PromptSize, int]:
    """Return the text of one or several prompts, their size together, that of the longest, and how many they are."""
    size = PromptSize(len(raw))
    if not raw.startswith(b"["):
        return raw, size, size, 1
    prompts = _decode_prompts(raw)
    texts = [len(p.encode()) for p in prompts if isinstance(p, str)]
    if texts:
        return raw, size, PromptSize(max(texts)), len(texts)
    listed = [len(p) for p in prompts if isinstance(p, list)]
    alone = len(prompts) - len(listed)  # one prompt, as token ids
    size = PromptSize(len(raw), token_ids=sum(listed) + alone)
    return raw, size, PromptSize(len(raw), token_ids=max([alone, *listed])), max(1, len(listed))
