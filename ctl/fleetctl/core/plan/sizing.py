"""Sizes one lane on one instance: batch limits, chunk size, and the fewest replicas that keep every promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.step import StepBatch, chunk_context_tokens
from fleetctl.core.plan.checks import Failure, OperatingPoint, evaluate, failure, holds
from fleetctl.core.plan.instances import Instance
from fleetctl.core.plan.replica import ReplicaModel
from fleetctl.model.plan import Constraint
from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec

# Prompt tokens an iteration may carry, largest first.
CHUNKS = (16384, 8192, 4096, 2048, 1024, 512, 256, 128)
# Of the best so far, tried too, round by round: an ITL limit often lies just under a power of two's step.
_BETWEEN = ((0.625, 0.75, 0.875, 1.25, 1.5, 1.75), (0.92, 1.08), (0.96, 1.04))
_TILE_TOKENS = 16  # rows of the smallest tile of a tensor core's GEMM
SEQS_MAX = 256  # vLLM's default on most GPUs; more is never needed to saturate one
KV_FREE = 0.2  # of the KV cache stays free: the published reserve against preemption
GPU_MEMORY_UTILIZATION = 0.92  # the default of vLLM 0.32
REPLICAS_SEARCHED_MAX = 4096
LONG_PROMPT = 0.99  # of prompts: the one whose last chunk still has to fit a step inside the ITL promise
_TIE = 1.05
_CONTEXT_STEP_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Batch limits an instance may run with."""

    batched_tokens: int
    seqs: int  # that a batch of one rank may hold, as the engine is started
    running_max: int  # of them; fewer than a pinned `seqs` where the KV cache holds no more
    batch_slots: Constraint  # what limits `seqs`
    model_len: int
    kv_tokens: int  # of one rank
    gpu_memory_utilization: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingResult:
    """The result of sizing a lane: one instance, one choice of settings, and the fewest replicas."""

    instance: Instance
    settings: Settings
    needed: int  # replicas
    state: OperatingPoint  # at `needed`, each of which is as many servers as it has ranks
    fewer: Failure | None = None  # what fails with one replica less; None at one replica
    proof: str = ""  # what a proof found of `needed`; empty: the closed form alone did

    @property
    def knee_rps(self) -> float:
        """Return the rate at which one replica saturates, with all its ranks."""
        return self.state.replica.knee_rps * self.instance.ranks

    def at(self, replicas: int) -> OperatingPoint:
        """Return the lane's state over so many replicas; over those needed, where these are too few."""
        return evaluate(self.state.replica, max(1, replicas) * self.instance.ranks) or self.state


def size(
    lane: LaneSpec, instance: Instance, demand: LaneDemand, *, guests_itl_s: float | None = None
) -> SizingResult | None:
    """Return the settings with the fewest replicas, then the highest knee; None where no number keeps every promise.

    Knees within 5 % of the highest are alike; among them the lowest TTFT wins. Where other lanes may be lent the
    replicas, a step that computes a prompt is kept inside the ITL that those promise, if it costs no replica.
    """
    found = _sizings(lane, instance, demand, choices(lane, instance, demand))
    if not found and lane.launch.max_num_batched_tokens is None:
        found = _sizings(lane, instance, demand, _all_between(lane, instance, demand))
    for shares in _BETWEEN:
        if found and found[-1].needed > 1 and lane.launch.max_num_batched_tokens is None:
            finer = _between(lane, instance, demand, shares, found)
            found += _sizings(lane, instance, demand, finer, most=found[-1].needed)
    fewest = found[-1].needed if found else 0
    found = [s for s in found if s.needed == fewest]
    # Powers of two are what engines pad batches to: another size is taken for a replica less, not for a lower TTFT.
    found = [s for s in found if s.settings.batched_tokens in CHUNKS] or found
    if guests_itl_s is not None:
        found = [s for s in found if _lent_step_s(s) <= guests_itl_s] or found
    # From the highest, not in fixed bands: a border between two of these would part knees that are 1 % apart.
    alike_rps = max((s.state.replica.knee_rps for s in found), default=0.0) / _TIE
    ties = [s for s in found if s.state.replica.knee_rps >= alike_rps]
    best = ties[0] if len(ties) == 1 else min(ties, key=lambda s: s.state.ttft.quantile_s(0.99), default=None)
    return best and _with_failure(lane, best)


def _with_failure(lane: LaneSpec, best: SizingResult) -> SizingResult:
    """Return the result with what fails with one replica less: to say so takes longer than to find that it does."""
    if best.needed == 1:
        return best
    replica, fewer = best.state.replica, best.needed - 1
    found = evaluate(replica, fewer * best.instance.ranks)
    return replace(best, fewer=failure(lane, found, replica, best.settings.batch_slots))


def _sizings(
    lane: LaneSpec, instance: Instance, demand: LaneDemand, tried: Iterable[Settings], *, most: int | None = None
) -> list[SizingResult]:
    """Return what settings need, of those that need no more replicas than any before them, and no more than `most`."""
    found: list[SizingResult] = []
    for settings in tried:
        result = _fewest(lane, instance, demand, settings, most=most)
        if result is not None:
            found.append(result)
            most = result.needed
    return found


def _between(
    lane: LaneSpec, instance: Instance, demand: LaneDemand, shares: Sequence[float], found: Sequence[SizingResult]
) -> Iterator[Settings]:
    """Yield settings with other chunks around that of those that need the fewest replicas."""
    fewest = min(s.needed for s in found)
    alike = [s for s in found if s.needed == fewest]  # only of these is a knee worth its computing
    best = max(alike, key=lambda s: s.state.replica.knee_rps).settings.batched_tokens
    yield from _odd(lane, instance, demand, {round(best * share / _TILE_TOKENS) * _TILE_TOKENS for share in shares})


def _all_between(lane: LaneSpec, instance: Instance, demand: LaneDemand) -> Iterator[Settings]:
    """Yield settings with chunks between all powers of two: one is over the ITL, the next too slow for the TTFT."""
    yield from _odd(lane, instance, demand, {round(chunk * share) for chunk in CHUNKS for share in (1.25, 1.5, 1.75)})


def _odd(lane: LaneSpec, instance: Instance, demand: LaneDemand, chunks: Iterable[int]) -> Iterator[Settings]:
    seqs = lane.launch.max_num_seqs or 1
    for tokens in sorted(chunks):
        if tokens in CHUNKS or not CHUNKS[-1] < tokens < CHUNKS[0] or tokens < seqs:
            continue
        settings = _settings(lane, instance, demand, tokens)
        if settings is not None:
            yield settings


def _lent_step_s(sizing: SizingResult) -> float:
    """Return the longest iteration of a replica with half of its seats taken, as one is that is lent."""
    return worst_step_s(sizing.state.replica, max(1, sizing.settings.running_max // 2))


def replica_model(instance: Instance, demand: LaneDemand, settings: Settings) -> ReplicaModel:
    """Return the replica these settings make; of several ranks, one of them."""
    return ReplicaModel(
        step=instance.step,
        demand=demand,
        batched_tokens_max=settings.batched_tokens,
        seqs_max=settings.running_max,
        kv_tokens=settings.kv_tokens,
        sequence_kv=instance.sequence_kv,
        margin=instance.margin,
    )


def choices(lane: LaneSpec, instance: Instance, demand: LaneDemand) -> tuple[Settings, ...]:
    """Return every lawful pair of chunk and batch size. What the user pinned is not varied."""
    pinned, seqs = lane.launch.max_num_batched_tokens, lane.launch.max_num_seqs or 1
    # An engine refuses a step that could not hold one token of every sequence of a batch.
    sizes = [pinned] if pinned is not None else [size for size in CHUNKS if size >= seqs] or [seqs]
    found = (_settings(lane, instance, demand, tokens) for tokens in sizes)
    return tuple(settings for settings in found if settings is not None)


def holds_longest(lane: LaneSpec, demand: LaneDemand, instance: Instance) -> bool:
    """Whether the weights and the longest request of a lane fit an instance, in the smallest of chunks."""
    share = lane.launch.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
    kv_tokens = instance.kv_tokens(gpu_memory_utilization=share, max_num_batched_tokens=CHUNKS[-1])
    return _model_len(lane, instance, demand, kv_tokens) > 0


def _settings(lane: LaneSpec, instance: Instance, demand: LaneDemand, batched_tokens: int) -> Settings | None:
    """Return the largest batch that keeps the ITL promise and a fifth of the KV cache; None where even one does not."""
    share = lane.launch.gpu_memory_utilization or GPU_MEMORY_UTILIZATION
    kv_tokens = instance.kv_tokens(
        gpu_memory_utilization=share,
        max_num_batched_tokens=batched_tokens,
        max_num_seqs=lane.launch.max_num_seqs or 0,
    )
    model_len = _model_len(lane, instance, demand, kv_tokens)
    if not model_len:
        return None
    probe = ReplicaModel(
        step=instance.step, demand=demand, batched_tokens_max=batched_tokens, seqs_max=1, margin=instance.margin
    )
    limits = {
        # Half of an iteration's room stays for prompts, or a full batch would starve them.
        Constraint.DECODE: min(SEQS_MAX, batched_tokens // 2),
        Constraint.KV_MEMORY: math.floor(kv_tokens / instance.sequence_kv.held(model_len))
        if instance.reserves_context
        else math.floor(kv_tokens * (1 - KV_FREE) / instance.sequence_kv.held(probe.resident_tokens)),
        Constraint.ITL: _seqs_within_itl(lane, probe),
    }
    batch_slots = min(limits, key=lambda c: limits[c])
    seqs = lane.launch.max_num_seqs or limits[batch_slots]
    held = limits[Constraint.KV_MEMORY]
    # An engine that keeps room for a whole context in each slot would not start with more of them than fit.
    if min(seqs, held) < 1 or (instance.reserves_context and seqs > held):
        return None
    return Settings(
        batched_tokens=batched_tokens,
        seqs=seqs,
        running_max=min(seqs, held),
        batch_slots=batch_slots,
        model_len=model_len,
        kv_tokens=kv_tokens,
        gpu_memory_utilization=share,
    )


def _seqs_within_itl(lane: LaneSpec, probe: ReplicaModel) -> int:
    """Return the most sequences beside which a full chunk still fits the ITL promise: no gap then exceeds it.

    With a pinned chunk the user has decided; only decode-only steps must fit.
    """
    promised = lane.slo.strictest(Metric.ITL)
    if promised is None:
        return SEQS_MAX
    is_pinned = lane.launch.max_num_batched_tokens is not None
    limit_s = promised.limit_s / probe.margin.of(Metric.ITL)
    low, high = 0, SEQS_MAX + 1
    while high - low > 1:
        seqs = (low + high) // 2
        fits = (0.0 if is_pinned else 1.0) * worst_step_s(probe, seqs) <= limit_s
        fits = fits and probe.step.decode_step_s(seqs, probe.resident_tokens) <= limit_s
        low, high = (seqs, high) if fits else (low, seqs)
    return low


def worst_step_s(replica: ReplicaModel, seqs: int) -> float:
    """Return the longest iteration with up to `seqs` decoding, and the end of a long prompt in all that they leave of the step.

    A chunk attends to all of its prompt before it; streams run long enough to meet one prompt in a hundred.
    """
    return max(_full_step_s(replica, 1), _full_step_s(replica, seqs))


def _full_step_s(replica: ReplicaModel, seqs: int) -> float:
    chunk = max(0, replica.batched_tokens_max - seqs)
    attended = chunk_context_tokens(max(0.0, replica.demand.prompt.quantile(LONG_PROMPT) - chunk), chunk)
    return replica.step.step_s(StepBatch(chunk, attended, seqs, seqs * replica.resident_tokens))


def _model_len(lane: LaneSpec, instance: Instance, demand: LaneDemand, kv_tokens: int) -> int:
    """Return the longest request to serve: what the model and the KV cache hold; 0 where the cache holds too little.

    What is expected sets the batch, not this: a rare longer request takes more of the cache, and is served. The part of
    the cache that is planned to stay free is not promised to one request either, for an engine that measures a smaller
    cache than was reckoned with would refuse to start. Where each seat holds a whole context it is as long as expected.
    """
    tail = demand.prompt.points[-1] + demand.output.points[-1]
    longest, held = instance.card.context_tokens_max, instance.sequence_kv
    most = min(longest, held.longest(kv_tokens))
    if lane.launch.max_model_len is not None:
        return lane.launch.max_model_len if lane.launch.max_model_len <= most else 0
    if most < min(tail, longest):
        return 0
    if instance.reserves_context:
        return min(most, _rounded_up(tail))  # whatever is longer costs seats
    safe = math.floor(held.longest(math.floor(kv_tokens * (1 - KV_FREE))) / _CONTEXT_STEP_TOKENS) * _CONTEXT_STEP_TOKENS
    return min(most, max(safe, _rounded_up(tail)))


def _rounded_up(tokens: float) -> int:
    return math.ceil(tokens / _CONTEXT_STEP_TOKENS) * _CONTEXT_STEP_TOKENS


def _fewest(
    lane: LaneSpec, instance: Instance, demand: LaneDemand, settings: Settings, *, most: int | None = None
) -> SizingResult | None:
    """Return the fewest replicas these settings need: doubling, then bisection; every check eases with replicas.

    None where no number is enough, or more than `most` are needed.
    """
    replica = replica_model(instance, demand, settings)
    states: dict[int, OperatingPoint | None] = {}

    def state_of(replicas: int) -> OperatingPoint | None:
        if replicas not in states:
            states[replicas] = evaluate(replica, replicas * instance.ranks)
        return states[replicas]

    def is_enough(replicas: int) -> bool:
        return holds(lane, state_of(replicas), replica)

    if most is None and not is_enough(REPLICAS_SEARCHED_MAX):
        return None
    low, high = 0, most or 1
    while not is_enough(high):
        if most is not None or high >= REPLICAS_SEARCHED_MAX:
            return None
        low, high = high, high * 2
    while high - low > 1:
        # What is known to be enough is rarely far from the fewest: the next settings are alike.
        middle = high - 1 if most == high else (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    state = state_of(high)
    if state is None:
        raise AssertionError("a count that keeps every promise is not saturated")
    return SizingResult(instance=instance, settings=settings, needed=high, state=state)
