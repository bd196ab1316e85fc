"""Going on with a stream whose replica was lost: what to ask another one, and how to join its answer on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway.splicer import Splicer
from fleetctl.gateway.usage import merged

if TYPE_CHECKING:
    from fleetctl.gateway.transcript import Transcript
    from fleetctl.gateway.usage import ShownUsage

_log = logging.getLogger("fleetctl.gateway")

# With any of these set, the text so far is not the whole state of the answer, or the client sees more than text.
_UNLAWFUL = (
    "tools", "functions", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "suffix", "use_beam_search",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "continue_final_message",
    "return_token_ids", "prompt_embeds", "audio", "modalities", "include_stop_str_in_output",
)  # fmt: skip
_LENGTHS = ("max_tokens", "max_completion_tokens")
# OpenAI's and vLLM's default for /v1/completions; chat answers may fill the context.
_COMPLETION_TOKENS_DEFAULT = 16


@dataclass(frozen=True, slots=True)
class Continuation:
    """What to send, and how to join what comes back. `body` None: the answer had only its end missing."""

    body: bytes | None
    splicer: Splicer


def obstacle(request_body: bytes, *, is_chat: bool) -> str:
    """Return why a stream of this request cannot go on elsewhere; empty where one choice of plain text is asked for."""
    try:
        body = msgspec.json.decode(request_body)
    except msgspec.DecodeError:
        return "its request cannot be read"
    if not is_chat and not isinstance(body.get("prompt"), str):
        return "its prompt is no text"
    for key in _UNLAWFUL:
        if body.get(key) not in (None, False, [], 0, "none"):
            return f"its request has `{key}`"
    for key in ("n", "best_of"):
        if body.get(key) not in (None, 1):
            return f"its request has `{key}` over 1"
    given = body.get("response_format") or {"type": "text"}
    is_text = isinstance(given, dict) and given.get("type") == "text"
    return "" if is_text else "its request has a `response_format`"


def plan(
    request_body: bytes, transcript: Transcript, counts: tuple[int | None, int], *, is_chat: bool, shown: ShownUsage
) -> Continuation | None:
    """Return how to go on after these prompt and output tokens, where nothing is in the way. None: it cannot be read."""
    if not transcript.is_fit:
        return None
    try:
        return _plan(request_body, transcript, counts, is_chat=is_chat, shown=shown)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError, KeyError) as exc:
        # What a replica streamed is not ours to trust; an odd shape means only that nobody can go on with it.
        _log.warning("a lost stream cannot be continued: %r", exc)
        return None


def _plan(
    request_body: bytes, transcript: Transcript, counts: tuple[int | None, int], *, is_chat: bool, shown: ShownUsage
) -> Continuation:
    body = msgspec.json.decode(request_body)
    delivered = transcript.delivered()
    # Chat templates and engines trim what they go on from, so it is trimmed here, where it is known.
    sent = delivered.rstrip() if is_chat else delivered
    splicer = Splicer(
        transcript,
        counts,
        delivered=delivered,
        unsent=delivered[len(sent) :],
        stops=_stops(body),
        is_chat=is_chat,
        shown=shown,
    )
    tokens = counts[1]
    lengths = {key: body[key] - tokens for key in _LENGTHS if isinstance(body.get(key), int)}
    if not lengths and not is_chat:
        lengths = {"max_tokens": _COMPLETION_TOKENS_DEFAULT - tokens}
    if min(lengths.values(), default=1) < 1:
        return Continuation(None, splicer)
    return Continuation(msgspec.json.encode(_resumed(body, sent, lengths, tokens, is_chat=is_chat)), splicer)


def _stops(body: dict[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or ()
    return tuple(each for each in ((stop,) if isinstance(stop, str) else stop) if isinstance(each, str))


def _resumed(body: dict[str, Any], sent: str, lengths: dict[str, int], tokens: int, *, is_chat: bool) -> dict[str, Any]:
    resumed = {**body, **lengths, "stream_options": merged(body.get("stream_options"))}
    if isinstance(body.get("min_tokens"), int):
        resumed["min_tokens"] = max(0, body["min_tokens"] - tokens)
    if not sent:
        return resumed
    if is_chat:
        resumed["messages"] = [*body["messages"], {"role": "assistant", "content": sent}]
        resumed["continue_final_message"] = True
        resumed["add_generation_prompt"] = False
    else:
        resumed["prompt"] = body["prompt"] + sent
    return resumed
