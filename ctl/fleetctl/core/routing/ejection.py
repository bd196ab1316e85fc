"""When a failing replica is left alone, and when it is asked again."""

from __future__ import annotations

from dataclasses import dataclass

CONSECUTIVE_FAILURES = 3
BACKOFF_S_START = 1.0
BACKOFF_S_MAX = 30.0


@dataclass(slots=True)
class Ejection:
    """Counts failures in a row. After three a replica is out for 1 s, doubling up to 30 s while its probes fail."""

    failures: int = 0
    until_s: float = 0.0  # 0: not ejected
    rounds: int = 0  # ejections in a row

    @property
    def is_ejected(self) -> bool:
        """Whether it is out, or being probed."""
        return self.until_s > 0.0

    def failed(self, now_s: float, *, may_eject: bool = True) -> None:
        """Count a refused connect, an early close, a stall, or an error that is the replica's own doing."""
        self.failures += 1
        if may_eject and self.failures >= CONSECUTIVE_FAILURES:
            self.eject(now_s)

    def eject(self, now_s: float) -> None:
        """Leave it alone, for longer than the last time if it has not answered since."""
        # Failures of requests that were already under way when it was ejected say nothing new.
        if now_s >= self.until_s:
            self.until_s = now_s + min(BACKOFF_S_MAX, BACKOFF_S_START * 2.0**self.rounds)
            self.rounds = min(self.rounds + 1, 10)

    def answered(self) -> None:
        """Count an answer: it is back."""
        self.failures = 0
        self.until_s = 0.0
        self.rounds = 0
