"""What a request pays outside the engine's steps, and how wrong the step model has been on data it was not fitted to."""

from __future__ import annotations

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
