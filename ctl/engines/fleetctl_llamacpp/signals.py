"""llama.cpp's series, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import reading
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals

PREFIX = "llamacpp:"
RUNNING, WAITING = "llamacpp:requests_processing", "llamacpp:requests_deferred"


def read(exposition: str) -> EngineSignals:
    """Read a page, which exists only with --metrics.

    It says nothing of the KV cache. No slot is ever preempted: each has its whole context. Prompt tokens that come from
    the cache are counted apart, and were not counted by older builds. Tokens are counted at an answer's end; what moves
    until then is the count of batches run.
    """
    page = parse(exposition)
    computed, cached = page.total("llamacpp:prompt_tokens_total"), page.total("llamacpp:prompt_tokens_cached_total")
    return reading.signals(
        running=page.total(RUNNING),
        waiting=page.total(WAITING),
        kv_usage=reading.UNREPORTED,
        preemptions=0.0,
        prompt_tokens=computed + (cached or 0.0) if computed is not None else None,
        output_tokens=page.total("llamacpp:tokens_predicted_total"),
        steps=page.total("llamacpp:n_decode_total"),
    )
