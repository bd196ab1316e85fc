"""What routing sees of a replica and of a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec

from fleetctl.core.routing.kv_cache import KvCacheLoad
from fleetctl.core.routing.shared_prefills import SharedPrefillLine


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's own figures, as last scraped."""

    running: int  # requests it works on
    waiting: int  # requests in its own queue
    kv_usage: float | None  # share of its KV cache that is taken, 0-1; None: it never says


@dataclass(slots=True, kw_only=True, eq=False)
class Candidate:
    """A replica's load, kept current by whoever dispatches to it; mutable because the hot path writes it."""

    id: str
    in_rotation: bool
    concurrency_max: int  # at least 1; 0 where other gateways have all its slots
    prefill_tokens_per_s: float  # 0 or at least 1e-3: 0 means unknown
    node_ready: bool = True  # False: picked only where no other can be
    continues: bool = False  # it can go on with a stream that another replica lost
    by_priority: bool = False  # its engine computes prompts of a higher tier first
    max_model_len: int = 0  # prompt and output tokens of one request that it holds; 0: not known
    in_flight: int = 0
    lent_max: float = math.inf  # another lane's request joins fewer than so many
    prefill_tokens: int = 0  # dispatched, uncached, no first token yet
    ejected_until_s: float = 0.0  # not before then, and one at a time until it answers
    may_probe: bool = True  # once its ejection is over; of several gateways one may
    is_convicted: bool = False  # it was hung or could not be reached when it last failed
    engine: EngineLoad | None = None  # None: it has said nothing lately that could be decided on
    line: SharedPrefillLine = field(default_factory=SharedPrefillLine)  # what stands before its next prompt
    kv: KvCacheLoad = field(default_factory=KvCacheLoad)

    def holds(self, request_tokens: int) -> bool:
        """Whether its engine holds so many tokens of one request, as far as is known."""
        return request_tokens <= self.max_model_len or not self.max_model_len

    @property
    def has_slot(self) -> bool:
        """Whether it may take one more."""
        return self.in_flight < self.concurrency_max


# No cycle passes through one, and there is one for every request: not for the garbage collector to track.
class PromptLoad(msgspec.Struct, frozen=True, gc=False):
    """The load a request brings: its prompt."""

    prompt_tokens: int
    cached_tokens: dict[str, int]  # replica id -> of these, what its prefix cache should hold; absent: none

    def uncached(self, replica_id: str) -> int:
        """Return the prompt tokens this replica would have to work through."""
        return self.prompt_tokens - self.cached_tokens.get(replica_id, 0)
