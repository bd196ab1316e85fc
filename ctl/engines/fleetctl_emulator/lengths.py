"""How many tokens an answer has when the client lets the model decide."""

from __future__ import annotations

import hashlib
import math
import random

# Output tokens of the public Azure LLM inference trace 2023, conversations: P50 129, P99 about 600.
NATURAL_P50_TOKENS = 129
NATURAL_P99_TOKENS = 600
_SIGMA = math.log(NATURAL_P99_TOKENS / NATURAL_P50_TOKENS) / 2.326


def natural_tokens(question: bytes, *, seed: str) -> int:
    """Return the length at which the model would stop by itself: lognormal, fixed by what was asked and the seed."""
    digest = hashlib.blake2b(question, digest_size=16).hexdigest()
    length = random.Random(f"{seed}/{digest}").lognormvariate(math.log(NATURAL_P50_TOKENS), _SIGMA)
    return max(1, round(length))
