"""SGLang's series, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import reading
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals

PREFIX = "sglang:"
RUNNING, WAITING = "sglang:num_running_reqs", "sglang:num_queue_reqs"


def read(exposition: str) -> EngineSignals:
    """Read a page; figures of several schedulers are added, the fullest token pool counts.

    SGLang counts a request's tokens at its end; what moves until then is the count of the gaps between them.
    """
    page = parse(exposition)
    return reading.signals(
        running=page.total(RUNNING),
        waiting=page.total(WAITING),
        kv_usage=page.highest("sglang:token_usage"),
        preemptions=page.total("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
        prompt_tokens=page.total("sglang:prompt_tokens_total"),
        output_tokens=page.total("sglang:generation_tokens_total"),
        steps=page.total("sglang:inter_token_latency_seconds_count"),
        kv_tokens=page.total("sglang:max_total_num_tokens"),
    )
