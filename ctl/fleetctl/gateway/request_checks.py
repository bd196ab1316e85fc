"""What a request may not say, whatever engine stands behind: checked where not all engines of a model do so themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Bounds of OpenAI's API, both included; None: there is none.
_NUMBERS: dict[str, tuple[float, float | None]] = {
    "temperature": (0.0, None),
    "top_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "n": (1, None),
    "max_tokens": (1, None),
    "max_completion_tokens": (1, None),
}
_WHOLE = frozenset(("n", "max_tokens", "max_completion_tokens"))
_KINDS: dict[str, tuple[type, str]] = {
    "response_format": (dict, "a section with a `type`"),
    "logit_bias": (dict, "a section of tokens and biases"),
    "user": (str, "a text"),
}
_STOPS_MAX = 4
_SHOWN_MAX = 40
_DECIDES = (None, "auto", "required")  # a tool_choice by which the model decides


# What engines may lack (`EngineCapabilities.lacks`): the key that wants it, and whether a request does.
_WANTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "n": ("n", lambda value: _is_number(value) and value > 1),
    "logit_bias": ("logit_bias", bool),
    "token_ids": ("prompt", lambda value: isinstance(value, list) and any(not isinstance(each, str) for each in value)),
    "negative_seed": ("seed", lambda value: _is_number(value) and value < 0),
    "lowest_presence_penalty": ("presence_penalty", lambda value: _is_number(value) and value <= -2),
}


class WrongRequest(msgspec.Struct, frozen=True):
    """What is wrong with a request, and the key it stands under."""

    message: str
    param: str


def find_wrong(body: bytes, refused: Mapping[str, str], *, is_chat: bool) -> WrongRequest | None:
    """Return the first thing wrong with a chat or completion body that could be parsed; None: nothing is.

    `refused` is what of a request some lane of its model cannot serve, and why.
    """
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:  # in a part that nobody has read so far
        return WrongRequest(f"the request body is not valid: {error}", "")
    return next(_wrong(request, refused, is_chat=is_chat), None)


def _wrong(request: dict[str, Any], refused: Mapping[str, str], *, is_chat: bool) -> Iterator[WrongRequest]:
    yield from _wrong_numbers(request)
    yield from _wrong_stop(request.get("stop"))
    for key, (kind, name) in _KINDS.items():
        if request.get(key) is not None and not isinstance(request[key], kind):
            yield WrongRequest(f"`{key}` must be {name}", key)
    if request.get("stream_options") is not None and not request.get("stream"):
        yield WrongRequest("`stream_options` are for requests with `stream`: true", "stream_options")
    for part, (key, wants) in _WANTS.items():
        if part in refused and wants(request.get(key)):
            yield WrongRequest(f"this `{key}` is not served here: {refused[part]}", key)
    if is_chat:
        yield from _wrong_messages(request.get("messages"), refused)
        yield from _wrong_tools(request, refused)
    elif isinstance(prompt := request.get("prompt"), (str, list)):
        if not prompt:
            yield WrongRequest("`prompt` must not be empty", "prompt")
        elif isinstance(prompt, list) and len({type(each) for each in prompt}) > 1:
            yield WrongRequest(
                "`prompt` must be texts, or tokens, or lists of tokens, and not several of these", "prompt"
            )


def _wrong_numbers(request: dict[str, Any]) -> Iterator[WrongRequest]:
    for key, (low, high) in _NUMBERS.items():
        value = request.get(key)
        if value is None or (key == "max_tokens" and value == 0 and request.get("echo") is True):
            continue  # the last: only the prompt's log probabilities are wanted
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            yield WrongRequest(f"`{key}` must be a number", key)
        elif key in _WHOLE and value != int(value):
            yield WrongRequest(f"`{key}` must be a whole number, not {value:g}", key)
        elif value < low or (high is not None and value > high):
            bounds = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
            yield WrongRequest(f"`{key}` must be {bounds}, not {value:g}", key)
        elif key == "top_p" and not value:
            yield WrongRequest("`top_p` must be over 0", key)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _wrong_stop(stop: object) -> Iterator[WrongRequest]:
    sequences = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if len(sequences) > _STOPS_MAX:
        yield WrongRequest(f"`stop` has {len(sequences)} sequences, and may have {_STOPS_MAX}", "stop")
    if not all(isinstance(each, str) and each for each in sequences):
        yield WrongRequest("`stop` must be texts, none of them empty", "stop")


def _wrong_messages(messages: object, refused: Mapping[str, str]) -> Iterator[WrongRequest]:
    if messages == []:
        yield WrongRequest("`messages` must not be empty", "messages")
    for message in messages if isinstance(messages, list) else ():
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            yield WrongRequest("each of `messages` must have a `role`, a text", "messages")
        elif role != "assistant" and message.get("content") is None:
            yield WrongRequest(f"a message of role {role[:_SHOWN_MAX]} must have `content`", "messages")
    for kind in _kinds_of_parts(messages):
        if kind in refused:
            yield WrongRequest(f"content of type {kind} is not served here: {refused[kind]}", "messages")


def _wrong_tools(request: dict[str, Any], refused: Mapping[str, str]) -> Iterator[WrongRequest]:
    tools, choice = request.get("tools"), request.get("tool_choice")
    if tools == []:
        yield WrongRequest("`tools` must not be empty", "tools")
    if tools is None and choice not in (None, "none"):
        yield WrongRequest("`tool_choice` wants `tools`", "tool_choice")
    if tools and "tools" in refused and choice in _DECIDES:
        yield WrongRequest(f"tools are not served here: {refused['tools']}", "tools")


def _kinds_of_parts(messages: object) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str):
                yield kind
