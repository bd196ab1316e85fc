"""Refits what a GPU's kernels achieve to what an engine was measured to do: one factor on memory, one on compute."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.perf.frontend import FRONTEND_S, TPOT_ERROR_UNMEASURED, TTFT_ERROR_UNMEASURED
from fleetctl.core.perf.step import CALIBRATED, StepBatch, StepModel, chunk_context_tokens, step_model
from fleetctl.model.catalogue import AchievedShares, GpuSpec, ModelCard, Precision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOWEST = 1e-5  # of a peak: a CPU that a GPU's figures stand in for is some thousand times slower
_ROUNDS = 3  # TTFT has decode steps in it, and TPOT prompts
_BISECTIONS = 40
_JUDGED_MIN = 3  # rows that were not fitted, for a claim on the error
_COVERED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """What one engine did under a steady load; tokens are means, times in seconds."""

    prompt_tokens: float
    output_tokens: float
    decoding: float  # sequences that decode at once, on average
    tpot_s: float
    ttft_s: float | None = None  # None: not told, or mostly a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInstanceShape:
    """What was measured: a model on GPUs of one kind."""

    card: ModelCard
    gpu: GpuSpec
    tensor_parallel: int
    precision: Precision
    kv_precision: Precision
    batched_tokens_max: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """A GPU's shares as an engine showed them, and by how much they miss what they were not fitted to."""

    achieved: AchievedShares
    tpot_error: float  # that nine of ten rows stay inside
    ttft_error: float
    fitted: int
    judged: int  # rows held out; 0: there were too few, and the errors are those of an unmeasured GPU


def refit(shape: EngineInstanceShape, loads: Sequence[MeasuredLoad], *, source: str) -> Refit:
    """Return the shares under which the model's medians are the measured ones. Raises ValueError without rows.

    Of six rows and more every second is held out, and judges.
    """
    if not loads:
        raise ValueError("nothing was measured")
    ranked = sorted(loads, key=lambda load: (load.prompt_tokens, load.decoding))
    has_held_out = len(ranked) >= 2 * _JUDGED_MIN
    fitted, held_out = (ranked[::2], ranked[1::2]) if has_held_out else (ranked, [])
    memory = compute = 1.0
    prompts = [load for load in fitted if load.ttft_s is not None]
    for _ in range(_ROUNDS):
        memory = _factor(lambda f, c=compute: _bias(_tpots(shape, _scaled(shape.gpu, f, c, ""), fitted)))  # type: ignore[misc]  # bound now
        if prompts:
            compute = _factor(lambda f, m=memory: _bias(_ttfts(shape, _scaled(shape.gpu, m, f, ""), prompts)))  # type: ignore[misc]
    achieved = _scaled(shape.gpu, memory, compute, source)
    judging = [load for load in held_out if load.ttft_s is not None]
    return Refit(
        achieved=achieved,
        tpot_error=_spread(_tpots(shape, achieved, held_out), TPOT_ERROR_UNMEASURED),
        ttft_error=_spread(_ttfts(shape, achieved, judging), TTFT_ERROR_UNMEASURED),
        fitted=len(fitted),
        judged=len(held_out),
    )


def _tpots(shape: EngineInstanceShape, achieved: AchievedShares, loads: Sequence[MeasuredLoad]) -> list[float]:
    step = _step(shape, achieved)
    return [modelled_tpot_s(step, load, shape.batched_tokens_max) / load.tpot_s for load in loads]


def _ttfts(shape: EngineInstanceShape, achieved: AchievedShares, loads: Sequence[MeasuredLoad]) -> list[float]:
    step = _step(shape, achieved)
    return [modelled_ttft_s(step, load, shape.batched_tokens_max) / (load.ttft_s or math.inf) for load in loads]


def modelled_tpot_s(step: StepModel, load: MeasuredLoad, batched_tokens_max: int) -> float:
    """Return the time an output token takes beside the others: steps alone, and those with a prompt in them."""
    chunks, mixed_s = _mixed(step, load, batched_tokens_max)
    share = min(1.0, load.decoding * chunks / max(1.0, load.output_tokens))
    seqs = max(1.0, load.decoding)
    decode_s = step.decode_step_s(seqs, load.prompt_tokens + load.output_tokens / 2)
    return (1 - share) * decode_s + share * mixed_s


def modelled_ttft_s(step: StepModel, load: MeasuredLoad, batched_tokens_max: int) -> float:
    """Return a prompt's way to its first token: half a running step, its own chunks, the API server."""
    chunks, mixed_s = _mixed(step, load, batched_tokens_max)
    return FRONTEND_S + min(1.0, load.decoding) * modelled_tpot_s(step, load, batched_tokens_max) / 2 + chunks * mixed_s


def _mixed(step: StepModel, load: MeasuredLoad, batched_tokens_max: int) -> tuple[int, float]:
    chunks = max(1, math.ceil(load.prompt_tokens / batched_tokens_max))
    attended = chunk_context_tokens(0, load.prompt_tokens) / chunks
    resident = load.decoding * (load.prompt_tokens + load.output_tokens / 2)
    return chunks, step.step_s(StepBatch(load.prompt_tokens / chunks, attended, load.decoding, resident))


def _step(shape: EngineInstanceShape, achieved: AchievedShares) -> StepModel:
    return step_model(
        shape.card,
        replace(shape.gpu, achieved=achieved),
        tensor_parallel=shape.tensor_parallel,
        precision=shape.precision,
        kv_precision=shape.kv_precision,
    )


def _scaled(gpu: GpuSpec, memory: float, compute: float, source: str) -> AchievedShares:
    base = gpu.achieved or AchievedShares(
        gemm_memory_16bit=CALIBRATED.memory, gemm_flops_16bit=CALIBRATED.flops_16bit,
        attention_memory=CALIBRATED.attention_memory, attention_flops=CALIBRATED.attention_flops,
        gemm_memory_8bit=CALIBRATED.memory_quantized, gemm_flops_8bit=CALIBRATED.flops_8bit,
    )  # fmt: skip

    def share(value: float, factor: float) -> float:
        return min(1.0, value * factor)

    return AchievedShares(
        gemm_memory_16bit=share(base.gemm_memory_16bit, memory),
        gemm_memory_8bit=share(base.gemm_memory_8bit, memory),
        attention_memory=share(base.attention_memory, memory),
        gemm_flops_16bit=share(base.gemm_flops_16bit, compute),
        gemm_flops_8bit=share(base.gemm_flops_8bit, compute),
        attention_flops=share(base.attention_flops, compute),
        source=source,
    )


def _factor(bias: Callable[[float], float]) -> float:
    """Return the factor at which a falling bias is none, between the lowest share and twice the known one."""
    low, high = math.log(_LOWEST), math.log(2.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if bias(math.exp(middle)) > 0 else (low, middle)
    return math.exp((low + high) / 2)


def _bias(ratios: Sequence[float]) -> float:
    return statistics.median(ratios) - 1.0


def _spread(ratios: Sequence[float], otherwise: float) -> float:
    """Return the relative miss, of what was forecast, that nine rows of ten stay inside."""
    if len(ratios) < _JUDGED_MIN:
        return otherwise
    misses = sorted(abs(1.0 / ratio - 1.0) for ratio in ratios)
    return misses[min(len(misses) - 1, math.ceil(_COVERED * len(misses)) - 1)]


def length_boundary(counts: Sequence[tuple[float, float]]) -> float | None:
    """Return the length that parts short from long prompts best; None where all are in one bucket.

    `counts` are (upper bound of a bucket in tokens, prompts in it), by bound; the two classes' variance of the logarithm of
    the length is least (Otsu, 1979).
    """
    filled = [(math.log(bound), bound, count) for bound, count in counts if count > 0 and 0 < bound < math.inf]
    if len(filled) < 2:
        return None

    def variance(part: Sequence[tuple[float, float, float]]) -> float:
        weight = math.fsum(count for _, _, count in part)
        mean = math.fsum(log * count for log, _, count in part) / weight
        return math.fsum(count * (log - mean) ** 2 for log, _, count in part)

    cut = min(range(1, len(filled)), key=lambda n: variance(filled[:n]) + variance(filled[n:]))
    return filled[cut - 1][1]
