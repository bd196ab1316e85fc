"""What a request pays outside the engine's steps, and how wrong the step model has been on data it was not fitted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.model.catalogue import GpuSpec

# The API server's share of TTFT: HTTP, chat template, tokenization, first event out. inference-perf's KubeCon 2025
# runs (vLLM 0.11, Llama-3.1-8B, one H100, 1 to 62 requests/s): median TTFT less the modelled steps.
FRONTEND_S = 0.015
# Client parse to first byte out through an asyncio gateway, one core, TTFT added at the median 74 us; its tail is
# scheduling on a busy core, so a millisecond is set aside.
GATEWAY_S = 0.001
# Gateway to engine and back within a zone. Promises are measured at the gateway, so the client's own way to it is
# not in them.
NETWORK_S = 0.001

# Median absolute errors on rows that were not fitted, as `python -m tests.bench.perf_validation` prints them. TPOT: 4-11 %
# (gpt-oss-120b TP4/TP8, another inference-perf variant, an RTX PRO 6000 log); TTFT P99 below the knee: 16-18 %; the knee
# itself: 15 % too high. gpt-oss-120b's TTFT is worse: 23-27 % too low.
TPOT_ERROR = 0.10
TTFT_ERROR = 0.20

# Of a GPU without measured shares in the catalogue. Reckoned with an H100's, a layer of those whose kernels were measured (A100,
# L40S, H200, B200, B300, GB200, RTX PRO 6000; 16 and 8 bits) comes out wrong by up to 33 % at 64 tokens and 22 % at 512 or more, nine
# times in ten (aiconfigurator-core 0.12.0, vLLM 0.24); on top of the error above, as independent ones add up.
TPOT_ERROR_UNMEASURED = 0.35
TTFT_ERROR_UNMEASURED = 0.30


def forecast_errors(gpu: GpuSpec) -> tuple[float, float]:
    """Return by which shares forecasts of (TPOT, TTFT) on a GPU may be off, in either direction."""
    shares = gpu.achieved
    if shares is None:
        return TPOT_ERROR_UNMEASURED, TTFT_ERROR_UNMEASURED
    tpot, ttft = shares.tpot_error, shares.ttft_error
    return TPOT_ERROR if tpot is None else tpot, TTFT_ERROR if ttft is None else ttft
