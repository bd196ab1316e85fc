"""Reads a steady load off a live vLLM: what its histograms grew by between two looks at `/metrics`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.calibration import MeasuredLoad
from fleetctl.core.perf.frontend import FRONTEND_S
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.telemetry.exposition import Exposition

# vLLM's series, and what older releases call them.
_ITL = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
_PREFILL = ("vllm:request_prefill_time_seconds",)
_PROMPT = ("vllm:request_prompt_tokens",)
_OUTPUT = ("vllm:request_generation_tokens",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWindow:
    """What an engine did in a window; `prompts` are (upper bound in tokens, how many) of its histogram."""

    load: MeasuredLoad | None  # None: nothing was decoded
    requests: int
    prompts: tuple[tuple[float, float], ...]


def engine_window(before: str, after: str, elapsed_s: float) -> EngineWindow:
    """Return what two pages of one engine say of the time between them.

    TTFT is the time that a request is read, from scheduling to its first token (vLLM 0.32, v1/metrics/stats.py), with half a
    running step and the API server before it: without the wait in a queue, which a plan adds.
    """
    first, last = parse(before), parse(after)
    itl_s, gaps = _grown(first, last, _ITL)
    requests = _grown(first, last, _PROMPT)[1]
    prompts = _buckets(first, last, _PROMPT[0])
    if gaps <= 0 or requests <= 0:
        return EngineWindow(load=None, requests=int(requests), prompts=prompts)
    prefill_s, prefilled = _grown(first, last, _PREFILL)
    return EngineWindow(
        load=MeasuredLoad(
            prompt_tokens=_grown(first, last, _PROMPT)[0] / requests,
            output_tokens=_grown(first, last, _OUTPUT)[0] / requests,
            decoding=itl_s / elapsed_s,
            tpot_s=itl_s / gaps,
            ttft_s=prefill_s / prefilled + itl_s / gaps / 2 + FRONTEND_S if prefilled > 0 else None,
        ),
        requests=int(requests),
        prompts=prompts,
    )


def _grown(first: Exposition, last: Exposition, names: tuple[str, ...]) -> tuple[float, float]:
    """Return (sum, count) that a histogram grew by; what a restart set back counts from zero."""
    name = next((each for each in names if last.total(f"{each}_count") is not None), names[0])

    def more(series: str) -> float:
        then, now = first.total(series) or 0.0, last.total(series) or 0.0
        return now if now < then else now - then

    return more(f"{name}_sum"), more(f"{name}_count")


def _buckets(first: Exposition, last: Exposition, name: str) -> tuple[tuple[float, float], ...]:
    def cumulative(page: Exposition) -> dict[float, float]:
        found: dict[float, float] = {}
        for sample in page.samples(f"{name}_bucket"):
            bound = float(sample.labels.get("le", "nan").replace("+Inf", "inf"))
            found[bound] = found.get(bound, 0.0) + sample.value
        return found

    then, now = cumulative(first), cumulative(last)
    counts, below = [], 0.0
    for bound in sorted(now):
        total = now[bound] - then.get(bound, 0.0)
        if math.isfinite(bound):
            counts.append((bound, max(0.0, total - below)))
        below = total
    return tuple(counts)
