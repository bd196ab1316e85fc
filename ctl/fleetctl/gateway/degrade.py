"""Cuts a request down as the ladder says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.context import messages_to_keep
from fleetctl.core.admission.ladder import capped_tokens
from fleetctl.core.admission.tokens import MESSAGE_TOKENS
from fleetctl.gateway.classify import message_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fleetctl.core.admission.ladder import Degradation


def degrade(body: bytes, degradation: Degradation, *, messages_cut: int) -> tuple[bytes, bytes]:
    """Return the body to send, and what was cut of the request in the words of x-fleetctl-degraded."""
    if degradation.max_tokens is None and not messages_cut:
        return body, b""
    notes = [b"context_messages_cut=%d" % messages_cut] if messages_cut else []
    request = msgspec.json.decode(body)
    key = "max_completion_tokens" if request.get("max_completion_tokens") is not None else "max_tokens"
    # What a client insists on is not cut: an engine refuses fewer tokens than min_tokens.
    least = request.get("min_tokens")
    cap = capped_tokens(request.get(key), degradation.max_tokens, least=least if isinstance(least, int) else 0)
    if cap is not None:
        request[key] = cap
        body = msgspec.json.encode(request)
        notes.insert(0, b"max_tokens=%d" % cap)
    return body, b", ".join(notes)


def renamed(body: bytes, served_name: str, served_names: Collection[str]) -> bytes:
    """Return a body that asks for the model as its replica calls it, where it asked by another of the fleet's names."""
    request = msgspec.json.decode(body)
    if request.get("model") == served_name or request.get("model") not in served_names:
        return body
    request["model"] = served_name
    return msgspec.json.encode(request)


def with_model(body: bytes, name: str) -> bytes:
    """Return a body that asks for this model, whatever it asked for."""
    request = msgspec.json.decode(body)
    request["model"] = name
    return msgspec.json.encode(request)


def trim(body: bytes, cap_tokens: int, prompt_tokens: int, tokens_of: Callable[[int], int]) -> tuple[bytes, int]:
    """Return a chat's body without its oldest turns, and how many messages went; 0 where trimming does not help.

    `prompt_tokens` are the whole prompt's: what of it is in no message, as tools are, stays. `tokens_of` estimates
    tokens from bytes of text.
    """
    found = message_texts(body)
    tokens = [tokens_of(len(text)) + MESSAGE_TOKENS for _, text in found]
    beside = max(0, prompt_tokens - sum(tokens))
    kept = messages_to_keep([role for role, _ in found], tokens, cap_tokens - beside)
    if kept is None or len(kept) == len(found):
        return body, 0
    request = msgspec.json.decode(body)
    request["messages"] = [request["messages"][place] for place in kept]
    return msgspec.json.encode(request), len(found) - len(kept)
