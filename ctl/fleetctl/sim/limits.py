"""What bounds a simulated engine's steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The launch settings that bound a step. `max_num_batched_tokens` is `max_num_seqs` at least."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    reserves_output: bool = False  # blocks for all it may generate are taken at once; nobody is preempted
