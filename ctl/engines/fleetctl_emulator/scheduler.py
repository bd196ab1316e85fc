"""The engine's scheduler, without IO: continuous batching by iteration, as vLLM's V1 does it.

`step(now)` ends the iteration that was running and composes the next one: running sequences decode first, one token
each; then prompts are computed in chunks; then waiting sequences are admitted, all within the token budget. A prompt's
blocks are taken when it is admitted (vLLM checks that they are there and takes them chunk by chunk). When a decoding
sequence finds no block, the last of the running (lowest priority, latest arrival) is preempted, and computed anew later.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from fleetctl.core.perf.sequence_kv import ALIKE, SequenceKv
from fleetctl.core.perf.step import StepBatch, chunk_context_tokens
from fleetctl_emulator.blocks import BLOCK_TOKENS, BlockPool
from fleetctl_emulator.sequence import Sequence, SequenceStatus

if TYPE_CHECKING:
    from collections.abc import Callable


class Order(Enum):
    """The scheduling order; among equals the earlier arrival."""

    ARRIVAL = 0
    LOW_FIRST = 1  # vLLM's --scheduling-policy priority
    HIGH_FIRST = -1  # SGLang's


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """The launch settings that bound a step."""

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int
    watermark_blocks: int = 0  # stay free when a sequence is admitted beside others
    order: Order = Order.ARRIVAL
    prefix_caching: bool = True
    reserves_output: bool = False  # TGI: a sequence gets the blocks of its whole budget at once, and is never preempted
    sequence_kv: SequenceKv = ALIKE  # what a sequence takes in layers with a window or a state, from its admission on


@dataclass(slots=True, kw_only=True)
class StepResult:
    """What the ended step brought, and what the next one is. `duration_s` None: there is nothing to do."""

    at_s: float
    sampled: list[Sequence] = field(default_factory=list)  # each has one more token; some are finished
    prompted: list[Sequence] = field(default_factory=list)  # of those, the ones whose first token this was
    computed_tokens: int = 0  # in the ended step: prompt tokens and sampled ones
    admitted: list[Sequence] = field(default_factory=list)  # into the next step, for the first time
    resumed: list[Sequence] = field(default_factory=list)  # into the next step, after a preemption
    preempted: list[Sequence] = field(default_factory=list)
    batch: StepBatch | None = None
    duration_s: float | None = None


class Scheduler:
    """Holds every sequence of one engine. `duration_of` says how long an iteration takes."""

    def __init__(self, limits: SchedulerLimits, duration_of: Callable[[StepBatch], float]) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.kv_blocks)
        self.prefix_queries = 0  # prompt tokens looked up
        self.prefix_hits = 0
        self.preemptions = 0  # counted when the sequence runs again
        self._duration_of = duration_of
        self._waiting: list[Sequence] = []  # both in order of service
        self._running: list[Sequence] = []
        self._in_step: list[tuple[Sequence, int]] = []

    @property
    def running(self) -> int:
        """Return how many sequences hold blocks."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Return how many sequences wait, preempted ones included."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Return the share of blocks held by sequences, 0-1."""
        return self.pool.used / self.pool.total

    @property
    def running_sequences(self) -> tuple[Sequence, ...]:
        """Return the running sequences, in order of service."""
        return tuple(self._running)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. It must fit the cache when alone; the caller refuses longer ones."""
        insort(self._waiting, sequence, key=self._rank)

    def abort(self, sequence: Sequence) -> None:
        """Drop a sequence at once; a no-op when it has ended. A step that is computing it goes on without it."""
        if sequence.status is SequenceStatus.WAITING:
            self._waiting.remove(sequence)
        elif sequence.status is SequenceStatus.RUNNING:
            self._leave(sequence)
        else:
            return
        sequence.status = SequenceStatus.ABORTED

    def step(self, now: float) -> StepResult:
        """End the running iteration, if one is, and begin the next."""
        result = StepResult(at_s=now)
        self._end(now, result)
        self._begin(now, result)
        return result

    def _rank(self, sequence: Sequence) -> tuple[int, int]:
        return (sequence.priority * self.limits.order.value, sequence.number)

    def _end(self, now: float, result: StepResult) -> None:
        ended, self._in_step = self._in_step, []
        for sequence, tokens in ended:
            if sequence.status is not SequenceStatus.RUNNING:
                continue
            sequence.computed += tokens
            if self.limits.prefix_caching:
                self._keep_full_blocks(sequence, tokens)
            if sequence.remaining == 0:
                self._sample(sequence, now, result)
            result.computed_tokens += tokens

    def _keep_full_blocks(self, sequence: Sequence, tokens: int) -> None:
        full = sequence.computed // BLOCK_TOKENS
        before = (sequence.computed - tokens) // BLOCK_TOKENS
        if full > before:
            hashes = sequence.content_hashes(full)
            for index in range(before, full):
                self.pool.keep_content(sequence.blocks[index], hashes[index])

    def _sample(self, sequence: Sequence, now: float, result: StepResult) -> None:
        sequence.generated += 1
        sequence.previous_token_s = sequence.last_token_s
        sequence.last_token_s = now
        if sequence.generated == 1:
            sequence.first_token_s = now
            result.prompted.append(sequence)
        if sequence.generated >= sequence.output_tokens:
            self._leave(sequence)
            sequence.status = SequenceStatus.FINISHED
        result.sampled.append(sequence)

    def _begin(self, now: float, result: StepResult) -> None:
        self._decode(result)
        decode_seqs = len(self._in_step)
        decode_context = sum(sequence.computed + 1 for sequence, _ in self._in_step)
        budget = self._prefill(self.limits.max_num_batched_tokens - decode_seqs)
        if not result.preempted:
            self._admit(budget, now, result)
        if not self._in_step:
            return
        chunks = self._in_step[decode_seqs:]
        result.batch = StepBatch(
            sum(tokens for _, tokens in chunks),
            sum(chunk_context_tokens(sequence.computed, tokens) for sequence, tokens in chunks),
            decode_seqs,
            decode_context,
        )
        result.duration_s = self._duration_of(result.batch)

    def _decode(self, result: StepResult) -> None:
        budget = self.limits.max_num_batched_tokens
        # The list shrinks from its end while it is walked, so it is walked by index.
        index = 0
        while index < len(self._running) and len(self._in_step) < budget:
            sequence = self._running[index]
            index += 1
            if sequence.decodes and self._allocate_next_block(sequence, result):
                self._in_step.append((sequence, 1))

    def _allocate_next_block(self, sequence: Sequence, result: StepResult) -> bool:
        """Return whether the next token has its block, preempting from the end of the running for it."""
        if sequence.computed < len(sequence.blocks) * BLOCK_TOKENS:
            return True
        while (fresh := self.pool.take((), 1)) is None:
            victim = self._running[-1]
            self._preempt(victim)
            result.preempted.append(victim)
            if victim is sequence:
                return False
        sequence.blocks += fresh
        return True

    def _preempt(self, victim: Sequence) -> None:
        self._leave(victim)
        victim.status = SequenceStatus.WAITING
        victim.computed = 0
        victim.preemptions += 1
        victim.awaits_resume = True
        self.add(victim)

    def _prefill(self, budget: int) -> int:
        for sequence in self._running:
            if budget <= 0:
                break
            if not sequence.decodes:
                budget -= self._take_chunk(sequence, budget)
        return budget

    def _take_chunk(self, sequence: Sequence, budget: int) -> int:
        tokens = min(sequence.remaining, budget)
        self._in_step.append((sequence, tokens))
        return tokens

    def _admit(self, budget: int, now: float, result: StepResult) -> None:
        while budget > 0 and self._waiting and len(self._running) < self.limits.max_num_seqs:
            sequence = self._waiting[0]
            if not self._allocate_blocks(sequence):
                break
            del self._waiting[0]
            insort(self._running, sequence, key=self._rank)
            sequence.status = SequenceStatus.RUNNING
            if sequence.awaits_resume:
                sequence.awaits_resume = False
                self.preemptions += 1
                result.resumed.append(sequence)
            else:
                sequence.scheduled_s = now
                sequence.cached_tokens = sequence.computed
                self.prefix_queries += sequence.tokens if self.limits.prefix_caching else 0
                self.prefix_hits += sequence.computed
                result.admitted.append(sequence)
            budget -= self._take_chunk(sequence, budget)

    def _allocate_blocks(self, sequence: Sequence) -> bool:
        """Take the blocks of every token a sequence has, sharing cached ones; at least one token is left to compute."""
        shared: list[int] = []
        if self.limits.prefix_caching:
            shared = self.pool.cached(sequence.content_hashes((sequence.tokens - 1) // BLOCK_TOKENS))
        resident = sequence.tokens
        if self.limits.reserves_output:
            resident = sequence.prompt.tokens + max(sequence.output_budget, sequence.output_tokens)
        fresh = -(-resident // BLOCK_TOKENS) - len(shared)
        extra = self._extra_blocks(sequence)
        keep_free = self.limits.watermark_blocks if self._running else 0
        blocks = self.pool.take(shared, fresh + extra, keep_free=keep_free)
        if blocks is None:
            return False
        sequence.blocks, sequence.extra_blocks = blocks[: len(blocks) - extra], blocks[len(blocks) - extra :]
        sequence.computed = len(shared) * BLOCK_TOKENS
        return True

    def _extra_blocks(self, sequence: Sequence) -> int:
        extra = self.limits.sequence_kv.besides(sequence.prompt.tokens + sequence.output_tokens)
        return math.ceil(extra / BLOCK_TOKENS)

    def _leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self.pool.release([*sequence.blocks, *sequence.extra_blocks])
        sequence.blocks, sequence.extra_blocks = [], []
