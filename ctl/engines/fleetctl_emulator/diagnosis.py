"""What the emulator says last is what the engine it plays would, or an error of its own arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.engine_kit.last_words import last_words
from fleetctl.model.engine_fault import EngineFaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.model.engine_fault import EngineFault
    from fleetctl.model.node import NodeProcess
    from fleetctl.ports.engine import Engine


def diagnose(log_tail: str, played: Sequence[Engine]) -> EngineFault | None:
    """Return the fault that the first engine knows, of those that can be played; else the line that looks like one."""
    found = (engine.diagnose(log_tail) for engine in played)
    known = (fault for fault in found if fault is not None and fault.kind is not EngineFaultKind.UNKNOWN)
    return next(known, None) or last_words(log_tail, ())


def diagnose_start(log_tail: str, ended: tuple[NodeProcess, ...], played: Sequence[Engine]) -> EngineFault | None:
    """Return why it will never be ready, by the first engine that says so of those that can be played."""
    found = (engine.diagnose_start(log_tail, ended) for engine in played)
    return next((fault for fault in found if fault is not None), None)
