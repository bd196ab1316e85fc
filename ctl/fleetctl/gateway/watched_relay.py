"""A relay that looks for loops in what it passes on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.gateway.relay import EventRelay
from fleetctl.gateway.stream_fault import LOOPED

_COUNT = b'"completion_tokens":'
_DIGITS = re.compile(rb"\d{1,12}")

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.loop_watch import LoopWatch
    from fleetctl.gateway.transcript import Transcript
    from fleetctl.gateway.usage import ShownUsage


_FEED_OTHER = EventRelay._feed_other  # noqa: SLF001  # its own; super() costs as much again, for every event


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
        events = _FEED_OTHER(self, data)
        watch = self._watch
        if watch is None or not events:
            return events
        head, start, end = watch.shape
        at = len(events) - len(end)
        if (
            start < at
            and start
            and events.startswith(head)
            and events.endswith(end)
            and events.find(b"\n", start) == len(events) - 2
        ):
            tail = watch.tail
            tail += events[start:at]
            if len(tail) < watch.due:
                return events
            watch.look_at_tail(self.tokens)
        else:
            is_kept = self.transcript is not None and self.transcript.is_fit
            watch.take(events, self._marker, self.tokens, is_kept=is_kept)
        self._holds_more()
        return events

    def _holds_more(self) -> bool:
        """Look at the text that is kept, and say when it is to be looked at again."""
        watch = self._watch
        if watch is not None:
            self._text_bytes_seen = min(self._text_bytes_max, watch.look(self._text, self._generated()))
            if watch.is_ending:
                self.fault = LOOPED
            if watch.is_done:
                self._watch = None
        return super()._holds_more()

    def _generated(self) -> int:
        """Return the tokens generated so far, by the engine's own count in the last event where there is one."""
        counted = self._counted
        at = counted.rfind(_COUNT)
        found = _DIGITS.match(counted, at + len(_COUNT)) if at >= 0 else None
        return int(found[0]) if found is not None else self.counts()[1]


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
