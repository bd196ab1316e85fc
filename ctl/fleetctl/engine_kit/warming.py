"""The completion that warms a replica."""

from __future__ import annotations

import msgspec

from fleetctl import codec

# Long enough to run a prefill of several KV blocks and a few decode steps, short enough to take no time worth naming.
# It is a plain completion: base models have no chat template, and every engine here serves this route.
WARM_PATH = "/v1/completions"
_PROMPT = "The quick brown fox jumps over the lazy dog. " * 16


def warm_body(*, served_name: str) -> tuple[str, bytes]:
    """Return the path and JSON body of a small real completion."""
    body = {"model": served_name, "prompt": _PROMPT, "max_tokens": 8, "temperature": 0, "stream": False}
    return WARM_PATH, codec.encode(body)


def of_length(body: bytes, tokens: int) -> bytes:
    """Return a warm-up body that asks for so many tokens at least, as far as the engine's has a bound that can be raised."""
    completion = msgspec.json.decode(body)
    bound = completion.get("max_tokens") if isinstance(completion, dict) else None
    if not isinstance(bound, int) or bound >= tokens:
        return body
    return codec.encode(completion | {"max_tokens": tokens})
