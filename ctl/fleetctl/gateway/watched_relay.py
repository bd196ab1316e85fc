"""A relay that looks for loops in what it passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.gateway.relay import EventRelay
from fleetctl.gateway.stream_fault import LOOPED

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.loop_watch import LoopWatch
    from fleetctl.gateway.transcript import Transcript
    from fleetctl.gateway.usage import ShownUsage


class WatchedRelay(EventRelay):
    """Where the text is kept for a continuation, no event costs more than without: only a longer text is looked at."""

    __slots__ = ("_watch",)

    def __init__(
        self,
        limits: GatewayLimits,
        watch: LoopWatch | None,
        *,
        transcript: Transcript | None = None,
        is_counted: bool = False,
        shown: ShownUsage | None = None,
    ) -> None:
        super().__init__(limits, transcript=transcript, is_counted=is_counted, shown=shown)
        self._watch = watch
        self._text_bytes_seen = 0 if watch is not None else self._text_bytes_max

    def _feed_other(self, data: bytes) -> bytes:
        events = super()._feed_other(data)
        watch = self._watch
        if events and watch is not None:
            is_kept = self.transcript is not None and self.transcript.is_fit
            watch.take(events, self._marker, self.tokens, is_kept=is_kept)
            self._holds_more()
        return events

    def _holds_more(self) -> bool:
        """Look at the text that is kept, and say when it is to be looked at again."""
        watch = self._watch
        if watch is not None:
            self._text_bytes_seen = min(self._text_bytes_max, watch.look(self._text, self.counts()[1]))
            self.fault = LOOPED if watch.is_ending else self.fault
        return super()._holds_more()


def relay_of(
    limits: GatewayLimits,
    watch: LoopWatch | None,
    *,
    transcript: Transcript | None,
    is_counted: bool,
    shown: ShownUsage,
) -> EventRelay:
    """Return the relay of a stream; where nobody watches, one that is none the slower for it."""
    if watch is None:
        return EventRelay(limits, transcript=transcript, is_counted=is_counted, shown=shown)
    return WatchedRelay(limits, watch, transcript=transcript, is_counted=is_counted, shown=shown)
