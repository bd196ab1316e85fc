"""An iteration-by-iteration replay of continuous batching: the slow, exact thing the planner's closed forms stand for.

Written apart from the planner and from the emulator, so that none can be wrong the same way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from fleetctl.core.perf.step import StepBatch, StepModel, chunk_context_tokens


@dataclass(slots=True)
class Served:
    """A request and its life: tokens, then the instants, in seconds."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    computed: int = 0
    generated: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.arrival_s

    @property
    def tpot_s(self) -> float:
        return (self.last_s - self.first_s) / max(1, self.output_tokens - 1)


class Engine:
    """One engine: decodes first, then prompts in chunks, within the token budget."""

    def __init__(self, step: StepModel, *, seqs_max: int, batched_tokens_max: int) -> None:
        self.step, self.seqs_max, self.batched_tokens_max = step, seqs_max, batched_tokens_max
        self.waiting: deque[Served] = deque()
        self.running: list[Served] = []
        self.now_s = 0.0
        self.gaps_s: list[float] = []

    @property
    def load(self) -> float:
        """What is left to compute: prompts, and a little for every sequence."""
        return sum(r.prompt_tokens - r.computed + 16 for r in (*self.waiting, *self.running))

    def advance(self, until_s: float) -> None:
        """Run every iteration that begins before `until_s`."""
        while self.now_s < until_s and (self.waiting or self.running):
            self._iterate()
        if not (self.waiting or self.running):
            self.now_s = max(self.now_s, until_s)

    def _iterate(self) -> None:
        decoding = [r for r in self.running if r.computed >= r.prompt_tokens]
        budget = self.batched_tokens_max - len(decoding)
        prompts: list[tuple[Served, int]] = []
        for request in [r for r in self.running if r.computed < r.prompt_tokens]:
            taken = min(budget, request.prompt_tokens - request.computed)
            prompts, budget = [*prompts, (request, taken)], budget - taken
        while self.waiting and len(self.running) < self.seqs_max and budget > 0:
            request = self.waiting.popleft()
            request.computed = request.cached_tokens
            self.running.append(request)
            taken = min(budget, request.prompt_tokens - request.computed)
            prompts, budget = [*prompts, (request, taken)], budget - taken
        batch = StepBatch(
            sum(taken for _, taken in prompts),
            sum(chunk_context_tokens(r.computed, taken) for r, taken in prompts),
            len(decoding),
            sum(r.prompt_tokens + r.generated for r in decoding),
        )
        took_s = self.step.step_s(batch)
        self.now_s += took_s
        self.gaps_s += [took_s] * len(decoding)
        for request, taken in prompts:
            request.computed += taken
            if request.computed >= request.prompt_tokens:
                request.generated, request.first_s = 1, self.now_s
        for request in decoding:
            request.generated += 1
        for request in [r for r in self.running if r.generated >= r.output_tokens]:
            request.last_s = self.now_s
            self.running.remove(request)


def replay(
    step: StepModel, requests: list[Served], *, replicas: int = 1, seqs_max: int, batched_tokens_max: int
) -> list[float]:
    """Serve every request, each by the replica with the least left to do; return all gaps between tokens."""
    engines = [Engine(step, seqs_max=seqs_max, batched_tokens_max=batched_tokens_max) for _ in range(replicas)]
    for request in sorted(requests, key=lambda r: r.arrival_s):
        for engine in engines:
            engine.advance(request.arrival_s)
        min(engines, key=lambda e: e.load).waiting.append(request)
    for engine in engines:
        engine.advance(float("inf"))
    return [gap for engine in engines for gap in engine.gaps_s]
