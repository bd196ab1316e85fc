"""Measures an answer whose chunks leave later than its tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.stopwatch import RequestStopwatch

if TYPE_CHECKING:
    from fleetctl.core.slo.accounts import LaneAccounts


class PacedStopwatch(RequestStopwatch):
    """TTFT and the gaps between tokens are the engine's, as they come; chunks, their gaps and stalls are those that leave."""

    __slots__ = ("_chunks", "_left_s", "came")

    def __init__(self, accounts: LaneAccounts, started_s: float) -> None:
        super().__init__(accounts, started_s)
        self.came = 0  # tokens since whoever holds them back last looked, and set this to 0
        self._chunks = 0
        self._left_s = 0.0

    def tokens(self, now_s: float, count: int) -> None:
        """Note content events that came together."""
        self.came += count
        if self.ttft_s is None:
            super().tokens(now_s, count)
            return
        gap_s = now_s - self._last_token_s
        accounts = self._accounts
        accounts.paced_gaps_s.append(gap_s)
        accounts.paced_together += count - 1
        self._gaps += count
        if gap_s > self._gap_limit_s:
            self._gaps_over += 1
        if gap_s > self._large_gap_s:
            self._keep_gap(gap_s)
        self._last_token_s = now_s

    def left(self, now_s: float) -> None:
        """Note that a chunk leaves."""
        if self._chunks:
            gap_s = now_s - self._left_s
            self._streams.paced_gaps_s.append(gap_s)
            if gap_s > self._stall_limit_s:
                self._note_stall(now_s)
            if gap_s > self._stream_gap_limit_s:
                self._stream_gaps_over += 1
        self._chunks += 1
        self._left_s = now_s

    @property
    def chunk_count(self) -> int:
        """Return how many chunks have left."""
        return self._chunks

    def _note_stall(self, now_s: float) -> None:
        if now_s - max(self._left_s, self._resumed_s) > self._stall_limit_s:
            self.stalls += 1
