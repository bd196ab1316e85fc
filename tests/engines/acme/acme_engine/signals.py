"""Acme's series, read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import reading
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals

PREFIX = "acme_"
RUNNING, WAITING = "acme_slots_busy", "acme_backlog"


def read(exposition: str) -> EngineSignals:
    """Read a page; Acme tells its cache in percent and never preempts."""
    page = parse(exposition)
    percent = page.total("acme_cache_fill_percent")
    return reading.signals(
        running=page.total(RUNNING),
        waiting=page.total(WAITING),
        kv_usage=None if percent is None else percent / 100,
        preemptions=0.0,
        prompt_tokens=page.total("acme_tokens_read_total"),
        output_tokens=page.total("acme_tokens_written_total"),
    )
