"""Made-up prompts of a wanted length: distinct per request, alike at the start within a prefix group."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fleetctl.load.trace import Arrival

_POOL_CHARS = 1 << 20
# English words that byte-pair tokenizers hold whole; with the blank, 4.0 characters a token on average.
_TEXT = (
    "of to in is it he be as on at by we or an so up me us go no the and you are for not was his her one all can had "
    "but out day get has him how man new now old see two way who that with have this from they word what were when "
    "your said each time will many then them like long make"
)
_WORDS = tuple(_TEXT.split())


class Prompts:
    """Cuts prompts out of a pool of words, so that a prompt of 100 KB costs a copy and not a thousand draws."""

    def __init__(self, *, seed: int, bytes_per_token: float, salt: str = "") -> None:
        self._rng = random.Random(f"prompts {seed}")
        # Other words under another salt: a prefix cache that an earlier run filled holds none of these prompts.
        self._pool = _pool(random.Random(f"pool {seed} {salt}"))
        self._bytes_per_token = bytes_per_token
        self._count = 0

    def text(self, arrival: Arrival) -> str:
        """Return ASCII text of about `prompt_tokens`; its first `prefix_tokens` are its group's."""
        self._count += 1
        wanted = max(8, round(arrival.prompt_tokens * self._bytes_per_token))
        shared = self._shared_chars(arrival, wanted)
        prefix = self._cut(zlib.crc32(arrival.prefix_group.encode()), shared) if shared else ""
        # The number comes first in what is a request's own, so that no two share a cached block beyond the prefix.
        own = f"{self._count:x} "
        return (prefix + own + self._cut(self._rng.randrange(_POOL_CHARS), wanted - len(prefix) - len(own)))[:wanted]

    def _shared_chars(self, arrival: Arrival, wanted: int) -> int:
        if not arrival.prefix_group:
            return 0
        if arrival.prefix_tokens:
            return min(wanted, round(arrival.prefix_tokens * self._bytes_per_token))
        # A group's first request has nothing cached yet, and its text is what the later ones share.
        return max(0, wanted - 16)

    def _cut(self, start: int, chars: int) -> str:
        if chars <= 0:
            return ""
        start %= _POOL_CHARS
        piece = self._pool[start : start + chars]
        while len(piece) < chars:
            piece += self._pool[: chars - len(piece)]
        return piece


def request_body(arrival: Arrival, *, model: str, text: str) -> bytes:
    """Return the chat completion request as JSON."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": arrival.output_tokens,
        "ignore_eos": True,  # vLLM and SGLang: else a random prompt ends the answer when it likes
        "stream": arrival.stream,
    }
    if arrival.stream:
        body["stream_options"] = {"include_usage": True}
    if arrival.batch:
        body["service_tier"] = "flex"
    return msgspec.json.encode(body)


def _pool(rng: random.Random) -> str:
    """Return words at random, fast: a byte picks a word."""
    table = [_WORDS[byte % len(_WORDS)] for byte in range(256)]
    return " ".join([table[byte] for byte in rng.randbytes(_POOL_CHARS // 3)])[:_POOL_CHARS]
