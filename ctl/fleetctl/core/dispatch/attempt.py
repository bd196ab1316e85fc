"""What a request met at each replica that it was sent to."""

from __future__ import annotations

import msgspec

from fleetctl.core.dispatch.state import RequestEvent  # msgspec reads it


# No cycle passes through one, and there is one for every request: not for the garbage collector to track.
class DispatchAttempt(msgspec.Struct, eq=False, gc=False):
    """What a request met at a replica when it was sent there; times in the clock's seconds, prompts in uncached tokens."""

    before: DispatchAttempt | None  # the one that failed it before
    replica_id: str
    at_s: float
    prompts: int  # that had no first token yet, its own among them, as the next figure
    prompt_tokens: int
    own_tokens: int
    beside: int  # requests that the replica had
    first_token_s: float  # when it was predicted
    kv_free_tokens: float
    failure: RequestEvent | None = None  # how the replica failed it
