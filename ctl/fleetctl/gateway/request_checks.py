"""What a request may not say, whatever engine stands behind: checked where not all engines of a model do so themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway.request_parts import wrong_messages, wrong_response_format, wrong_tools
from fleetctl.gateway.wrong_request import WrongRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Bounds of OpenAI's API, both included; None: there is none.
_NUMBERS: dict[str, tuple[float, float | None]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "n": (1, None),
    "max_tokens": (1, None),
    "max_completion_tokens": (1, None),
    "seed": (-(2**63), 2**63 - 1),
    # Not OpenAI's, and alike in every engine: one refuses what another takes for the nearest that it knows.
    "top_k": (-1, None),
    "min_p": (0.0, 1.0),
    "min_tokens": (0, None),
    "repetition_penalty": (0.0, None),
}
_OF_CHATS: dict[str, tuple[float, float | None]] = {"top_logprobs": (0, 20)}
_OF_COMPLETIONS: dict[str, tuple[float, float | None]] = {"logprobs": (0, None)}
_WHOLE = frozenset(
    ("n", "max_tokens", "max_completion_tokens", "seed", "top_logprobs", "logprobs", "top_k", "min_tokens")
)
_OVER = frozenset(("top_p", "repetition_penalty"))  # their lower bound itself is out of bounds
_KINDS: dict[str, tuple[type, str]] = {
    "response_format": (dict, "a section with a `type`"),
    "logit_bias": (dict, "a section of tokens and biases"),
    "user": (str, "a text"),
}
_SWITCHES = ("parallel_tool_calls", "logprobs")  # of chats
_STOPS_MAX = 4
_SHOWN_MAX = 40
_BIAS_MAX = 100.0
_GREEDY = 1e-5  # a temperature below it is 0 to engines
# What engines may lack (`EngineCapabilities.lacks`): the key that wants it, and whether a request does.
_WANTS: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
    "n": ("n", lambda request: _is_over(request.get("n"), 1)),
    "greedy_choices": ("n", lambda request: _is_over(request.get("n"), 1) and _is_greedy(request)),
    "logit_bias": ("logit_bias", lambda request: bool(request.get("logit_bias"))),
    "suffix": ("suffix", lambda request: bool(request.get("suffix"))),
    "token_ids": ("prompt", lambda request: any(not isinstance(each, str) for each in _listed(request.get("prompt")))),
    "negative_seed": ("seed", lambda request: _is_number(request.get("seed")) and request["seed"] < 0),
    "lowest_presence_penalty": (
        "presence_penalty",
        lambda request: _is_number(request.get("presence_penalty")) and request["presence_penalty"] <= -2,
    ),
}


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
    yield from _wrong_numbers(request, _NUMBERS | (_OF_CHATS if is_chat else _OF_COMPLETIONS))
    yield from _wrong_stop(request.get("stop"))
    for key, (kind, name) in _KINDS.items():
        if request.get(key) is not None and not isinstance(request[key], kind):
            yield WrongRequest(f"`{key}` must be {name}", key)
    if request.get("stream_options") is not None and not request.get("stream"):
        yield WrongRequest("`stream_options` are for requests with `stream`: true", "stream_options")
    yield from _wrong_biases(request.get("logit_bias"))
    yield from wrong_response_format(request.get("response_format"))
    for part, (key, wants) in _WANTS.items():
        if part in refused and wants(request):
            yield WrongRequest(f"this `{key}` is not served here: {refused[part]}", key)
    yield from _wrong_chat(request, refused) if is_chat else _wrong_prompt(request.get("prompt"))


def _wrong_chat(request: dict[str, Any], refused: Mapping[str, str]) -> Iterator[WrongRequest]:
    for key in _SWITCHES:
        if not isinstance(request.get(key), bool | None):
            yield WrongRequest(f"`{key}` must be true or false", key)
    if request.get("top_logprobs") is not None and not request.get("logprobs"):
        yield WrongRequest("`top_logprobs` want `logprobs`: true", "top_logprobs")
    yield from wrong_messages(request.get("messages"), refused)
    yield from wrong_tools(request, refused)


def _wrong_prompt(prompt: object) -> Iterator[WrongRequest]:
    if not isinstance(prompt, (str, list)):
        yield WrongRequest("a completion must have a `prompt`: a text, texts, tokens, or lists of tokens", "prompt")
    elif not prompt or (isinstance(prompt, list) and any(each in ("", []) for each in prompt)):
        yield WrongRequest("`prompt` must not be empty, and hold nothing empty", "prompt")
    elif isinstance(prompt, list) and len({type(each) for each in prompt}) > 1:
        yield WrongRequest("`prompt` must be texts, or tokens, or lists of tokens, and not several of these", "prompt")


def _wrong_biases(biases: object) -> Iterator[WrongRequest]:
    for token, bias in biases.items() if isinstance(biases, dict) else ():
        if not (token.isascii() and token.isdigit()):
            yield WrongRequest(f"`logit_bias` must name tokens by their ids, not {token[:_SHOWN_MAX]!r}", "logit_bias")
        elif not _is_number(bias) or abs(bias) > _BIAS_MAX:
            yield WrongRequest("each of `logit_bias` must be a number from -100 to 100", "logit_bias")


def _wrong_numbers(
    request: dict[str, Any], bounds_of: Mapping[str, tuple[float, float | None]]
) -> Iterator[WrongRequest]:
    for key, (low, high) in bounds_of.items():
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
        elif key in _OVER and value == low:
            yield WrongRequest(f"`{key}` must be over {low:g}", key)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_over(value: object, most: int) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > most


def _is_greedy(request: dict[str, Any]) -> bool:
    return _is_number(request.get("temperature")) and request["temperature"] < _GREEDY


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _wrong_stop(stop: object) -> Iterator[WrongRequest]:
    sequences = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if len(sequences) > _STOPS_MAX:
        yield WrongRequest(f"`stop` has {len(sequences)} sequences, and may have {_STOPS_MAX}", "stop")
    if not all(isinstance(each, str) and each for each in sequences):
        yield WrongRequest("`stop` must be texts, none of them empty", "stop")
