"""A page of the emulator's, read by the engine whose series are on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit import reading
from fleetctl.telemetry.exposition import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.observation import EngineSignals
    from fleetctl.ports.engine import Engine


def read(exposition: str, engines: Iterable[Engine]) -> EngineSignals:
    """Return what the first of `engines` with a series on the page reads there; INVALID if none has one."""
    page = parse(exposition)
    for engine in engines:
        if page.mentions(engine.metrics_prefix):
            return engine.signals(exposition)
    return reading.INVALID
