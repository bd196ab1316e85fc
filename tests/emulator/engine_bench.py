"""An emulated engine on a virtual clock, and the figures its properties are checked on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fleetctl.core.perf.step import StepModel, step_model
from fleetctl.model.catalogue import GpuSpec, ModelCard, Precision
from fleetctl_emulator.scheduler import Order, Scheduler, SchedulerLimits, StepResult
from fleetctl_emulator.sequence import Sequence, SequenceStatus
from fleetctl_emulator.timing import StepTimer
from fleetctl_emulator.tokens import AnswerText, Prompt

L40S = GpuSpec(name="L40S", memory_bytes=48 * 2**30, memory_bytes_per_s=864e9, flops={"bf16": 362.05e12, "fp8": 733e12})
LLAMA_8B = ModelCard(
    id="meta-llama/Llama-3.1-8B-Instruct", params=8_030_261_248, active_params=8_030_261_248, num_layers=32,
    hidden_size=4096, num_heads=32, num_kv_heads=8, head_dim=128, vocab_size=128_256, context_tokens_max=131_072,
)  # fmt: skip


MODEL_8B_L40S: StepModel = step_model(
    LLAMA_8B, L40S, tensor_parallel=1, precision=Precision.BF16, kv_precision=Precision.BF16
)


def timed(seed: int = 0) -> StepTimer:
    return StepTimer(MODEL_8B_L40S, speed=1.0, rng=random.Random(seed))


def prompt_of(tokens: int, *, topic: int = 0) -> Prompt:
    """A prompt whose first tokens are shared by every prompt of the same topic."""
    return Prompt(b"".join(f"{topic % 10}{i % 1000:03d}".encode() for i in range(tokens)))


@dataclass
class Arrival:
    at_s: float
    prompt: Prompt
    output_tokens: int
    priority: int = 0
    abort_at_s: float | None = None


@dataclass
class Bench:
    """Drives a scheduler by its own durations, and keeps a log of all that happened."""

    limits: SchedulerLimits
    seed: int = 0
    log: list[str] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    checks: list[Callable[[Scheduler, StepResult], None]] = field(default_factory=list)

    def run(self, arrivals: list[Arrival], steps_max: int = 200_000) -> Bench:
        self.scheduler = Scheduler(self.limits, timed(self.seed).duration_s)
        answer = AnswerText("0")
        todo = sorted(enumerate(arrivals), key=lambda pair: (pair[1].at_s, pair[0]))
        aborts: list[tuple[float, Sequence]] = []
        now, busy = 0.0, False
        for _ in range(steps_max):
            while todo and todo[0][1].at_s <= now:
                _, spec = todo.pop(0)
                sequence = Sequence(
                    number=len(self.sequences), prompt=spec.prompt, answer=answer,
                    output_tokens=spec.output_tokens, priority=spec.priority, arrived_s=now,
                )  # fmt: skip
                self.sequences.append(sequence)
                self.scheduler.add(sequence)
                if spec.abort_at_s is not None:
                    aborts.append((spec.abort_at_s, sequence))
            for at, sequence in list(aborts):
                if at <= now:
                    self.scheduler.abort(sequence)
                    aborts.remove((at, sequence))
            result = self.scheduler.step(now)
            self._note(result)
            busy = result.duration_s is not None
            if busy:
                assert result.duration_s is not None
                now += result.duration_s
            elif todo:
                now = max(now, todo[0][1].at_s)
            elif not self.scheduler.waiting:
                return self
        raise AssertionError(f"still busy after {steps_max} steps")

    def _note(self, result: StepResult) -> None:
        self.results.append(result)
        numbers = {
            "sampled": result.sampled, "admitted": result.admitted,
            "resumed": result.resumed, "preempted": result.preempted,
        }  # fmt: skip
        moves = " ".join(f"{name}={[s.number for s in found]}" for name, found in numbers.items() if found)
        self.log.append(f"{result.at_s:.9f} {moves} batch={result.batch} for={result.duration_s}")
        for check in self.checks:
            check(self.scheduler, result)

    @property
    def finished(self) -> list[Sequence]:
        return [s for s in self.sequences if s.status is SequenceStatus.FINISHED]


def limits(**changes: object) -> SchedulerLimits:
    given: dict[str, Any] = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "kv_blocks": 4096,
        "order": Order.ARRIVAL,
    }
    return SchedulerLimits(**(given | changes))
