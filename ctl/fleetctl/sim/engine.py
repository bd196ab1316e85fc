"""An engine at iteration level, fast-forwarded: continuous batching whose steps are summed up while the batch stays the same.

The semantics are vLLM V1's, step by step: running sequences decode first, one token each; then a prompt that was begun
goes on; then waiting ones are admitted, all within the token budget. The last to arrive is preempted when a decoding
sequence finds no KV block; where it was started to schedule by priority, the last of the lowest priority is, and the
first of the highest is admitted. What a step takes is the performance model's.
"""

from __future__ import annotations

import heapq
from bisect import insort
from typing import TYPE_CHECKING

from fleetctl.core.perf.kv import BLOCK_TOKENS
from fleetctl.core.perf.step import StepBatch, StepModel, chunk_context_tokens
from fleetctl.sim.block_demand import BlockDemand
from fleetctl.sim.segment import Segment

if TYPE_CHECKING:
    from fleetctl.sim.event_heap import EventHeap, ScheduledCall
    from fleetctl.sim.gap_counter import GapCounter
    from fleetctl.sim.limits import EngineLimits
    from fleetctl.sim.sequence import SimulatedSequence

_UNBOUNDED = 2**62


class SimulatedEngine:
    """Runs sequences in virtual time; `slowdown` 3.0 makes every step take three times as long."""

    def __init__(
        self, heap: EventHeap, model: StepModel, limits: EngineLimits, *, speed: float = 1.0, frontend_s: float = 0.0
    ) -> None:
        self.limits = limits
        self.frontend_s = frontend_s  # that whoever adds a sequence is to have waited
        self.steps = 0  # that are over
        self.prompt_tokens = 0  # computed
        self.output_tokens = 0  # generated
        self.preemptions = 0
        self.running: dict[int, SimulatedSequence] = {}  # by number
        self.waiting: list[SimulatedSequence] = []  # by rank, which is by number where there are no priorities
        self.gap_counters: dict[str, GapCounter] = {}  # by lane
        self.is_hung = False
        self.is_dead = False
        self._heap = heap
        self._model = model
        self._factor = 1.0 / speed
        self._slowdown = 1.0
        self._numbers = 0
        self._demand = BlockDemand()
        self._context_base = 0  # summed over those that decode: their context less the step's number
        self._blocks_used = 0
        self._finishing: list[tuple[int, int, SimulatedSequence]] = []
        self._chunks: list[tuple[SimulatedSequence, int]] = []  # prompt tokens in the steps of the segment
        self._partial: SimulatedSequence | None = None
        self._segment: Segment | None = None
        self._end: ScheduledCall | None = None
        self._admits = False  # a sequence that arrives now may join at the next step

    @property
    def ranks(self) -> tuple[SimulatedEngine, ...]:
        """Return itself: one copy of the model."""
        return (self,)

    def rank(self) -> SimulatedEngine:
        """Return itself: where a new request goes."""
        return self

    @property
    def kv_usage(self) -> float:
        """Return the share of KV blocks in use, 0-1."""
        return self._blocks_used / self.limits.kv_blocks

    @property
    def stepped_s(self) -> float:
        """Return when the last step was over."""
        return self._segment.starts_s if self._segment is not None else self._heap.now_s

    def add(self, sequence: SimulatedSequence) -> None:
        """Queue a sequence, which fits the KV cache when alone."""
        self._numbers += 1
        sequence.number = self._numbers
        insort(self.waiting, sequence, key=_rank)
        if self._end is None:
            if not self.is_hung:
                # Not at once: what else arrives at this instant joins the same step.
                self._end = self._heap.at(self._heap.now_s, self._ended)
        elif self._admits and self.waiting[0] is sequence:
            self._cut()

    def abort(self, sequence: SimulatedSequence) -> None:
        """Drop a sequence at once, if it is here; the step that is computing it goes on without it."""
        if sequence.number < 0 or self.is_dead:
            return
        self._cut()  # whoever waits may find room at the next step
        if sequence.number in self.running:
            self._leave(sequence, in_step=True)
        else:
            self.waiting.remove(sequence)
        sequence.number = -1

    def hang(self) -> None:
        """Stop stepping; every sequence stays as it is."""
        self.is_hung = True
        self._cut()
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def end(self) -> list[SimulatedSequence]:
        """End the process; return what it carried, in order of arrival."""
        self.settle()
        self.hang()
        self.is_dead = True
        carried = [*(self.running[number] for number in sorted(self.running)), *self.waiting]
        self.running, self.waiting = {}, []
        return carried

    def go_on(self) -> None:
        """Step again after a hang: the step that stood still begins anew."""
        if self.is_dead or not self.is_hung:
            return
        self.is_hung = False
        if self.running or self.waiting:
            segment = self._segment
            after_s = segment.first_s if segment is not None else 0.0
            if segment is not None:
                segment.starts_s = self._heap.now_s
            self._end = self._heap.at(self._heap.now_s + after_s, self._ended)

    def slow_down(self, slowdown: float) -> None:
        """Make every step from the next one on take so many times as long as it should."""
        self._slowdown = slowdown
        self._cut()

    def settle(self) -> None:
        """Count the steps that are over by now, though the segment goes on."""
        segment, now_s = self._segment, self._heap.now_s
        if segment is None or self.is_hung or segment.steps < 2 or segment.starts_s + segment.first_s > now_s:
            return
        over = segment.steps_until(now_s)
        if segment.end_s(over) > now_s:
            over -= 1
        if over:
            self._advance(min(over, segment.steps - 1), goes_on=True)

    # A segment ends.

    def _ended(self) -> None:
        self._end = None
        now_s = self._heap.now_s
        segment = self._segment
        if segment is not None:
            self._advance(segment.steps, goes_on=False)
            self._segment = None
            finished = self._finished_decoding()
            prompted = self._computed(now_s) if self._chunks else ()
            self._begin(now_s)
            # Told last: whoever hears of it may add the next sequence.
            for sequence in finished:
                sequence.sink.finished(now_s)
            for sequence, is_first in prompted:
                if is_first:
                    sequence.sink.first_token(now_s)
                if sequence.generated >= sequence.output_tokens:
                    sequence.sink.finished(now_s)
        else:
            self._begin(now_s)

    def _advance(self, steps: int, *, goes_on: bool) -> None:
        """Count `steps` steps of the segment as over; `goes_on`: the next one of it has begun."""
        segment = self._segment
        if segment is None:
            return
        decoding = self._demand.decoding
        if decoding:
            ends_s = segment.end_s(steps)
            for counter in self.gap_counters.values():
                if counter.decoding:
                    counter.count(ends_s, segment, steps)
            if not self.limits.reserves_output:
                self._blocks_used += self._demand.needed(self.steps + 1, steps if goes_on else steps - 1)
            self.output_tokens += decoding * steps
        for sequence, tokens in self._chunks:
            sequence.computed += tokens * steps
            self.prompt_tokens += tokens * steps
        self.steps += steps
        if goes_on:
            segment.skip(steps)

    def _finished_decoding(self) -> list[SimulatedSequence]:
        found = []
        finishing = self._finishing
        while finishing and finishing[0][0] <= self.steps:
            finish_step, _, sequence = heapq.heappop(finishing)
            if sequence.finish_step == finish_step and sequence.decodes_from >= 0:
                sequence.last_token_s = self._heap.now_s
                self._leave(sequence)
                sequence.number = -1
                found.append(sequence)
        return found

    def _computed(self, now_s: float) -> list[tuple[SimulatedSequence, bool]]:
        """Give those whose prompt is computed their token; return them, and whether it is their first."""
        found = []
        self._partial = None
        for sequence, _ in self._chunks:
            if sequence.number not in self.running:
                continue
            remaining = sequence.prompt_tokens + sequence.generated - sequence.computed
            if remaining:
                self._partial = sequence
                if remaining == 1 and sequence.generated:
                    self._partial = None
                    if not self.limits.reserves_output and sequence.computed % BLOCK_TOKENS == 0:
                        self._blocks_used -= 1  # its last block, which the next step takes for it
                    if sequence.gap_counter is not None:
                        sequence.gaps_over += sequence.gap_counter.is_over(now_s - sequence.last_token_s)
                    self._start_decoding(sequence)
                continue
            found.append((sequence, sequence.generated == 0))
            self._sample_first(sequence, now_s)
        self._chunks.clear()
        return found

    def _sample_first(self, sequence: SimulatedSequence, now_s: float) -> None:
        counter = sequence.gap_counter
        if sequence.generated and counter is not None:
            sequence.gaps_over += counter.count_one(now_s, now_s - sequence.last_token_s)
        sequence.last_token_s = now_s
        self.output_tokens += 1
        if sequence.generated + 1 >= sequence.output_tokens:
            self._leave(sequence)
            sequence.number = -1
            sequence.generated += 1
        else:
            sequence.generated += 1
            self._start_decoding(sequence)

    # Who decodes.

    def _start_decoding(self, sequence: SimulatedSequence) -> None:
        sequence.decodes_from = self.steps
        sequence.finish_step = self.steps + sequence.output_tokens - sequence.generated
        heapq.heappush(self._finishing, (sequence.finish_step, sequence.number, sequence))
        self._demand.join(self.steps, sequence.computed)
        self._context_base += sequence.computed - self.steps
        counter = sequence.gap_counter
        if counter is not None:
            counter.decoding += 1
            sequence.gap_base = counter.over

    def _stop_decoding(self, sequence: SimulatedSequence) -> None:
        self._demand.leave(sequence.decodes_from, sequence.computed)
        self._context_base -= sequence.computed - sequence.decodes_from
        generated = self.steps - sequence.decodes_from
        sequence.computed += generated
        sequence.generated += generated
        sequence.decodes_from = sequence.finish_step = -1
        counter = sequence.gap_counter
        if counter is not None:
            counter.decoding -= 1
            sequence.gaps_over += counter.over - sequence.gap_base

    def _leave(self, sequence: SimulatedSequence, *, in_step: bool = False) -> None:
        """Take a sequence out of the running, and its blocks back; `in_step`: a step is computing it."""
        if sequence.decodes_from >= 0:
            self._stop_decoding(sequence)
            held = sequence.computed + in_step
        else:
            held = sequence.prompt_tokens + sequence.generated
        del self.running[sequence.number]
        if sequence is self._partial:
            self._partial = None
        self._blocks_used -= self._blocks(sequence, held)

    def _blocks(self, sequence: SimulatedSequence, tokens: int) -> int:
        if self.limits.reserves_output:
            tokens = sequence.prompt_tokens + sequence.output_budget
        return -(-tokens // BLOCK_TOKENS) + self.limits.blocks_besides(sequence.prompt_tokens + sequence.output_tokens)

    # The next segment.

    def _begin(self, now_s: float) -> None:
        limits = self.limits
        needed = 0 if limits.reserves_output else self._demand.needed(self.steps, 1)
        is_short = needed > limits.kv_blocks - self._blocks_used
        if is_short:
            self._decode_or_preempt(now_s)
        else:
            self._blocks_used += needed
        budget = limits.max_num_batched_tokens - self._demand.decoding
        partial = self._partial
        if partial is not None and budget > 0:
            budget -= self._take_chunk(partial, budget)
        if self.waiting and not is_short:
            self._admit(budget)
        self._admits = not self._chunks and budget > 0 and len(self.running) < limits.max_num_seqs
        if self._demand.decoding or self._chunks:
            self._start(now_s, 1 if is_short else self._steps_alike())

    def _take_chunk(self, sequence: SimulatedSequence, budget: int) -> int:
        tokens = min(sequence.prompt_tokens + sequence.generated - sequence.computed, budget)
        self._chunks.append((sequence, tokens))
        return tokens

    def _admit(self, budget: int) -> None:
        limits, waiting, running = self.limits, self.waiting, self.running
        admitted = 0
        while budget > 0 and admitted < len(waiting) and len(running) < limits.max_num_seqs:
            sequence = waiting[admitted]
            blocks = self._blocks(sequence, sequence.prompt_tokens + sequence.generated)
            if blocks > limits.kv_blocks - self._blocks_used:
                break
            self._blocks_used += blocks
            running[sequence.number] = sequence
            admitted += 1
            budget -= self._take_chunk(sequence, budget)
        if admitted:
            del waiting[:admitted]

    def _decode_or_preempt(self, now_s: float) -> None:
        """Find each decoding sequence, the earliest first, the block it needs, preempting the latest for it."""
        limits = self.limits
        for sequence in sorted(self.running.values(), key=_rank):
            if (
                sequence.number not in self.running
                or sequence.decodes_from < 0
                or (self.steps - sequence.decodes_from + sequence.computed) % BLOCK_TOKENS
            ):
                continue
            self._blocks_used += 1
            while self._blocks_used > limits.kv_blocks:
                victim = max(self.running.values(), key=_rank)
                self._preempt(victim, now_s)
                if victim is sequence:
                    self._blocks_used -= 1
                    break

    def _preempt(self, victim: SimulatedSequence, now_s: float) -> None:
        if victim.decodes_from >= 0:
            victim.last_token_s = now_s
        self._leave(victim)
        victim.computed = 0
        victim.preemptions += 1
        self.preemptions += 1
        insort(self.waiting, victim, key=_rank)

    def _steps_alike(self) -> int:
        """Return how many steps the batch stays as it is: nobody finishes, joins or lacks a block before."""
        steps = _UNBOUNDED
        if self._chunks:
            sequence, tokens = self._chunks[0]
            remaining = sequence.prompt_tokens + sequence.generated - sequence.computed
            if len(self._chunks) > 1 or remaining <= tokens or sequence.generated:
                return 1
            steps = (remaining - 1) // tokens
        finishing = self._finishing
        while finishing and finishing[0][2].finish_step != finishing[0][0]:
            heapq.heappop(finishing)  # it was preempted since, or has gone
        if finishing:
            steps = min(steps, finishing[0][0] - self.steps)
        if self.limits.reserves_output:
            return steps
        return self._demand.steps_within(self.limits.kv_blocks - self._blocks_used, self.steps + 1, steps)

    def _start(self, now_s: float, steps: int) -> None:
        decoding, model = self._demand.decoding, self._model
        prefill = context = 0.0
        growth_s = decoding * model.context_read_s
        for sequence, tokens in self._chunks:
            prefill += tokens
            context += chunk_context_tokens(sequence.computed, tokens)
            if steps > 1:
                growth_s += tokens * tokens * model.context_flop_s
        decode_context = self._context_base + decoding * (self.steps + 1)
        factor = self._factor * self._slowdown
        first_s = model.step_s(StepBatch(prefill, context, decoding, decode_context)) * factor
        segment = self._segment = Segment(now_s, first_s, growth_s * factor, steps)
        self._end = self._heap.at(segment.end_s(steps), self._ended)

    def _cut(self) -> None:
        """Let the segment end with the step that is being computed, where it was to go on."""
        segment = self._segment
        if segment is None or segment.steps < 2 or self._end is None:
            return
        steps = segment.steps_until(self._heap.now_s)
        if steps > 1:
            self._advance(steps - 1, goes_on=True)
        if segment.steps > 1:
            segment.steps = 1
            self._end.cancel()
            self._end = self._heap.at(segment.end_s(1), self._ended)


def _rank(sequence: SimulatedSequence) -> tuple[int, int]:
    return sequence.priority, sequence.number
