"""Cuts a request down as the ladder says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.ladder import capped_tokens

if TYPE_CHECKING:
    from fleetctl.core.admission.ladder import StepEffects


def degrade(body: bytes, effects: StepEffects) -> tuple[bytes, bytes]:
    """Return the body to send, and what was cut or is asked for in the words of x-fleetctl-degraded."""
    if effects.max_tokens is None and not effects.asks_less_context:
        return body, b""
    words = [b"context"] if effects.asks_less_context else []
    asked = msgspec.json.decode(body)
    key = "max_completion_tokens" if asked.get("max_completion_tokens") is not None else "max_tokens"
    cap = capped_tokens(asked.get(key), effects.max_tokens)
    if cap is not None:
        asked[key] = cap
        body = msgspec.json.encode(asked)
        words.insert(0, b"max_tokens=%d" % cap)
    return body, b", ".join(words)
