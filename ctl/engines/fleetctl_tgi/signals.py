"""TGI's series, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import reading
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals

PREFIX = "tgi_"
RUNNING, WAITING = "tgi_batch_current_size", "tgi_queue_size"


def read(exposition: str) -> EngineSignals:
    """Read a page. TGI shows a series only once it was touched, so a page is INVALID until the first request.

    KV usage is the running batch's token budget over the cache's: TGI reserves a request's whole budget up front,
    and so never preempts. It counts an answer's tokens at its end; what moves until then is the count of batches run.
    """
    page = parse(exposition)
    used = page.total("tgi_batch_current_max_tokens")
    there = page.total("tgi_batch_max_total_tokens")
    return reading.signals(
        running=page.total(RUNNING),
        waiting=page.total(WAITING),
        kv_usage=used / there if used is not None and there else None,
        preemptions=0.0,
        prompt_tokens=page.total("tgi_request_input_length_sum"),
        output_tokens=page.total("tgi_request_generated_tokens_sum"),
        steps=page.total("tgi_batch_inference_count"),
        kv_tokens=there,
    )
