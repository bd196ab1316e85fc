"""What bounds a simulated engine's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetctl.core.perf.kv import BLOCK_TOKENS
from fleetctl.core.perf.sequence_kv import ALIKE, SequenceKv


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The launch settings that bound a step. `max_num_batched_tokens` is `max_num_seqs` at least."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    reserves_output: bool = False  # blocks for all it may generate are taken at once; nobody is preempted
    sequence_kv: SequenceKv = ALIKE  # what a sequence takes in layers with a window or a state, from its admission on

    def blocks_besides(self, tokens: int) -> int:
        """Return the blocks that a sequence which will have so many tokens takes besides those of its tokens."""
        kept = self.sequence_kv
        return 0 if kept is ALIKE else math.ceil(kept.besides(tokens) / BLOCK_TOKENS)
