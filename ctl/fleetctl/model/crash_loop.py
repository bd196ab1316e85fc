"""An engine that ended so often in a short time that its machine starts it no more, while the machine runs on."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.units import format_count, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashLoop:
    """How it ended, as its machine tells it."""

    ends: int
    within_s: float
    exit_reason: str  # of the last end: "exit 1", "signal 9"
    log_tail: str = ""  # what it wrote last; bounded

    @property
    def text(self) -> str:
        """How often and how, in words."""
        times = format_count(self.ends, "time")
        return f"its engine ended {times} in {format_duration(self.within_s)}: {self.exit_reason}"
