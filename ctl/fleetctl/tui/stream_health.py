"""Whether the stream is alive, judged by its own rhythm."""

from __future__ import annotations

from fleetctl.tui.header_view import Freshness

_STALE_AFTER_S = 5.0
_STALE_AFTER_GAPS = 3.0  # of a slower stream's own rhythm


class StreamHealth:
    """Remembers when a live status came last, in monotonic seconds."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._gap_s = 0.0

    def heard(self, now_s: float) -> None:
        """Note when a live status came."""
        self._gap_s = now_s - self._last_s if self._last_s is not None else 0.0
        self._last_s = now_s

    def freshness(self, now_s: float, *, is_cut: bool) -> Freshness:
        """Return how current the last status is; `is_cut` says that the stream itself knows it is not."""
        if self._last_s is None:
            return Freshness(is_live=False)
        age_s = now_s - self._last_s
        is_late = age_s > max(_STALE_AFTER_S, _STALE_AFTER_GAPS * self._gap_s)
        return Freshness(is_live=not (is_late or is_cut), age_s=age_s)
