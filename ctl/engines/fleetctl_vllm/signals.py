"""vLLM's series, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import reading
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals
    from fleetctl.telemetry.exposition import Exposition

PREFIX = "vllm:"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


def read(exposition: str) -> EngineSignals:
    """Read a page; figures of several engine cores (data parallel) are added, the fullest KV cache counts."""
    page = parse(exposition)
    return reading.signals(
        running=page.total(RUNNING),
        waiting=page.total(WAITING),
        kv_usage=page.highest("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        preemptions=page.total("vllm:num_preemptions_total", "vllm:num_preemptions"),
        prompt_tokens=page.total("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
        output_tokens=page.total("vllm:generation_tokens_total", "vllm:generation_tokens"),
        kv_tokens=_kv_tokens(page),
    )


def _kv_tokens(page: Exposition) -> float | None:
    """Return what the KV caches of all engine cores hold. None: the page does not say, or not yet."""
    labels = [sample.labels for sample in page.samples("vllm:cache_config_info")]
    counts = [(each.get("num_gpu_blocks", ""), each.get("block_size", "")) for each in labels]
    if not counts or not all(blocks.isdecimal() and size.isdecimal() for blocks, size in counts):
        return None
    return float(sum(int(blocks) * int(size) for blocks, size in counts))
