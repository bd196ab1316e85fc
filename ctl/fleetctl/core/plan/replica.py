"""One replica under load: step time, residency and the tails of TTFT and gaps, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.core.perf.frontend import FRONTEND_S, GATEWAY_S, NETWORK_S
from fleetctl.core.perf.sequence_kv import ALIKE, SequenceKv
from fleetctl.core.perf.step import StepBatch, StepModel, chunk_context_tokens
from fleetctl.core.plan.kv_overflow import KvOverflow
from fleetctl.core.plan.margin import NO_MARGIN, ForecastMargin
from fleetctl.core.plan.workload import Z_99, LaneDemand

if TYPE_CHECKING:
    from collections.abc import Iterator

OVERHEAD_S = FRONTEND_S + GATEWAY_S + NETWORK_S
_FIXED_POINT_ROUNDS = 400
_FIXED_POINT_PRECISION = 1e-5  # relative, of the number running
_KNEE_PRECISION = 5e-5  # relative; the fixed point's own makes it no finer
_BISECTIONS = 24  # of a doubling: one part in ten million


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """A replica's steady state at one request rate."""

    rps: float
    step_s: float  # mean iteration: the time per output token
    decode_step_s: float  # an iteration without a prompt in it
    mixed_step_s: float  # one with the usual amount of prompt in it
    mixed_share: float  # of iterations
    running: float  # mean decoding sequences
    prefill_load: float  # share of the prompt throughput in use, 0-1

    @property
    def running_p99(self) -> float:
        """Return the sequences resident one time in a hundred: arrivals are at least Poisson."""
        return self.running + Z_99 * math.sqrt(self.running)


class _Iteration(NamedTuple):
    """The mean iteration of a replica in balance."""

    step_s: float
    decode_s: float
    mixed_s: float
    mixed_share: float
    full_s: float  # one with as much prompt as fits
    chunk_tokens: int  # of prompt that fit


@dataclass(frozen=True, kw_only=True)
class ReplicaModel:
    """A replica of one instance with its batch limits, serving one lane's requests."""

    step: StepModel
    demand: LaneDemand
    batched_tokens_max: int
    seqs_max: int
    kv_tokens: int = 0  # that its cache holds; 0: not asked for
    sequence_kv: SequenceKv = ALIKE
    margin: ForecastMargin = NO_MARGIN

    @cached_property
    def _output_mean(self) -> float:
        return self.demand.output.mean

    @cached_property
    def work(self) -> tuple[tuple[float, float], ...]:
        """Every prompt point as (uncached tokens, attended tokens of those)."""
        miss = 1.0 - self.demand.prefix_hit
        return tuple((p * miss, chunk_context_tokens(p * (1 - miss), p * miss)) for p in self.demand.prompt.points)

    @cached_property
    def work_mean(self) -> float:
        """Mean uncached tokens a request."""
        return math.fsum(w for w, _ in self.work) / len(self.work)

    @cached_property
    def work_scv(self) -> float:
        """Squared coefficient of variation of the uncached tokens."""
        second = math.fsum(w * w for w, _ in self.work) / len(self.work)
        return max(0.0, second / self.work_mean**2 - 1.0)

    @cached_property
    def attended_per_token(self) -> float:
        """Mean tokens one uncached prompt token attends to."""
        return math.fsum(a for _, a in self.work) / len(self.work) / self.work_mean

    @cached_property
    def resident_tokens(self) -> float:
        """Mean KV tokens of a sequence, over the time it decodes: long answers weigh more."""
        output = self.demand.output
        return self.demand.prompt.mean + output.second_moment / (2 * output.mean)

    @property
    def held_tokens(self) -> float:
        """Tokens of cache that a sequence takes, over the time it decodes."""
        return self.sequence_kv.held(self.resident_tokens)

    @cached_property
    def _overflow(self) -> KvOverflow:
        return _shared_overflow(self.demand, self.sequence_kv)

    def overflows(self, state: SteadyState) -> float:
        """Return the most that the chance can be that its sequences need more KV cache than it has; those read are resident too."""
        return self._overflow.chance(state.running + state.prefill_load, self.kv_tokens) if self.kv_tokens else 0.0

    def mixed_s(self, prompt_tokens: float, running: float) -> float:
        """Return an iteration's duration with this much prompt beside `running` decoding sequences."""
        attended = prompt_tokens * self.attended_per_token
        return self.step.step_s(StepBatch(prompt_tokens, attended, running, running * self.resident_tokens))

    def chunk_tokens(self, running: float) -> int:
        """Return the prompt tokens that fit into an iteration beside `running` sequences."""
        return max(1, math.floor(self.batched_tokens_max - running))

    def operate(self, rps: float) -> SteadyState | None:
        """Return the steady state at `rps`, or None where there is none: prompts or sequences pile up.

        The least fixed point of B = rps * output * step(B), with prompts arriving by Poisson and chunks sharing steps,
        approached from below by the mapping itself: chunks make it uneven, and a secant would step over the least.
        """
        pace = rps * self._output_mean
        running = pace * self.step.decode_step_s(1, self.resident_tokens)
        for _ in range(_FIXED_POINT_ROUNDS):
            if running > self.seqs_max:
                return None
            iteration = self._iteration(running)
            if rps * self.work_mean * iteration.full_s >= iteration.chunk_tokens:
                return None
            rise = pace * iteration.step_s - running
            if rise <= _FIXED_POINT_PRECISION * running:
                return self._state(rps, running, iteration)
            running += rise
        return None

    def _state(self, rps: float, running: float, iteration: _Iteration) -> SteadyState:
        return SteadyState(
            rps=rps,
            step_s=iteration.step_s,
            decode_step_s=iteration.decode_s,
            mixed_step_s=iteration.mixed_s,
            mixed_share=iteration.mixed_share,
            running=running,
            prefill_load=rps * self.work_mean * iteration.full_s / iteration.chunk_tokens,
        )

    def _iteration(self, running: float) -> _Iteration:
        """Return the mean iteration beside which so many sequences decode, in balance: each step ends as many as come."""
        chunk = self.chunk_tokens(running)
        requests = running / self._output_mean  # that arrive in one
        share = -math.expm1(-self._chunks_per_request(chunk) * requests)
        tokens = min(chunk, requests * self.work_mean / share) if share else 0.0
        mixed = self.mixed_s(tokens, running)
        decode = self.step.decode_step_s(max(running, 1.0), self.resident_tokens)
        return _Iteration(
            step_s=(1 - share) * decode + share * mixed,
            decode_s=decode,
            mixed_s=mixed,
            mixed_share=share,
            full_s=self.mixed_s(chunk, running),
            chunk_tokens=chunk,
        )

    def _chunks_per_request(self, chunk: int) -> float:
        known = self._chunk_counts.get(chunk)
        if known is None:
            known = sum(math.ceil(w / chunk) for w, _ in self.work) / len(self.work)
            self._chunk_counts[chunk] = known
        return known

    @cached_property
    def _chunk_counts(self) -> dict[int, float]:
        return _shared_chunk_counts(self.work)

    def is_within_knee(self, rps: float, share: float) -> bool:
        """Whether `rps` is at most this share of the knee: one steady state tells, where the knee takes dozens."""
        return self._sustains(rps / share)

    def has_free_slot(self, state: SteadyState) -> bool:
        """Whether a sequence finds a slot in the batch 99 times in 100."""
        return state.running_p99 <= self.seqs_max

    @cached_property
    def knee_rps(self) -> float:
        """The rate at which a replica saturates: prompts pile up, or no slot in the batch is free.

        Of a number running follows the rate, so it is sought by that; only where more running would not carry more is it
        sought by the rate.
        """
        most = running_most(self.seqs_max)
        low, high = 0.0, most
        if self._carried(most) is None:
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                low, high = (low, middle) if self._carried(middle) is None else (middle, high)
        else:
            low = most
        found = (self._carried(low) or 0.0) * (1.0 - _KNEE_PRECISION)
        if found and self._sustains(found) and not self._sustains(found * (1.0 + 4.0 * _KNEE_PRECISION)):
            return found
        return self._knee_by_rate()

    def _carried(self, running: float) -> float | None:
        """Return the rate at which so many decode; None: prompts would pile up."""
        iteration = self._iteration(running)
        rps = running / (self._output_mean * iteration.step_s)
        return rps if rps * self.work_mean * iteration.full_s < iteration.chunk_tokens else None

    def _knee_by_rate(self) -> float:
        low, high = 0.0, 1.0
        while self._sustains(high) and high < 1e5:
            low, high = high, high * 2
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._sustains(middle) else (low, middle)
        return low

    def _sustains(self, rps: float) -> bool:
        state = self.operate(rps)
        return state is not None and self.has_free_slot(state)

    def prefill_times_s(self, state: SteadyState) -> list[float]:
        """Return every prompt point's own way through the engine: its chunks, beside decodes and companions."""
        chunk = self.chunk_tokens(state.running)
        full_s = self.mixed_s(chunk, state.running) - chunk * self.attended_per_token * self.step.context_flop_s
        companions = state.rps * self.work_mean * state.step_s
        times = []
        for tokens, attended in self.work:
            chunks = math.ceil(tokens / chunk)
            last = min(chunk, tokens - (chunks - 1) * chunk + companions)
            batch = StepBatch(last, 0.0, state.running, state.running * self.resident_tokens)
            times.append((chunks - 1) * full_s + self.step.step_s(batch) + attended * self.step.context_flop_s)
        return times

    def gap_s(self, state: SteadyState, fraction: float) -> float:
        """Return a quantile of the gap between two tokens: most are decode steps, the tail has a prompt in it."""
        tail = 1.0 - fraction
        if state.mixed_share <= tail:
            return state.decode_step_s
        chunk, running = self.chunk_tokens(state.running), state.running
        companions = state.rps * self.work_mean * state.step_s
        context = running * self.resident_tokens
        # A chunk attends to all of its own prompt before it: of a long prompt the last ones take the longest.
        steps_s = sorted(
            self.step.step_s(StepBatch(tokens, chunk_context_tokens(before, tokens), running, context))
            for prompt in self.demand.prompt.points
            for before, tokens in self._chunks(prompt, chunk, companions)
        )
        rank = min(len(steps_s) - 1, math.ceil((1.0 - tail / state.mixed_share) * len(steps_s)))
        return max(state.decode_step_s, steps_s[rank])

    def _chunks(self, prompt: float, chunk: int, companions: float) -> Iterator[tuple[float, float]]:
        """Yield a prompt's chunks as (its own tokens before it, tokens, those of other prompts in the last one included)."""
        before = prompt * self.demand.prefix_hit
        while prompt - before > chunk:
            yield before, chunk
            before += chunk
        yield before, min(chunk, prompt - before + companions)


def running_most(seqs_max: int) -> float:
    """Return the mean number running whose 99th percentile is all of so many slots."""
    return (math.sqrt(Z_99 * Z_99 + 4.0 * seqs_max) - Z_99) ** 2 / 4.0


@lru_cache(maxsize=16)  # lanes; a plan has hundreds of replicas for each
def _shared_chunk_counts(work: tuple[tuple[float, float], ...]) -> dict[int, float]:
    """Return where the mean number of chunks a prompt takes is kept by chunk: it is the requests', whatever serves them."""
    del work  # the key
    return {}


@lru_cache(maxsize=64)  # lanes, by how a cache holds their sequences
def _shared_overflow(demand: LaneDemand, kept: SequenceKv) -> KvOverflow:
    return KvOverflow(demand, kept)
