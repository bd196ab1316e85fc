"""A relay that looks for loops in what it passes on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleetctl.core.repetition.detector import FIRST_LOOK_BYTES
from fleetctl.gateway.event_shape import text_of
from fleetctl.gateway.relay import EventRelay
from fleetctl.gateway.stream_fault import LOOPED

_COUNT = b'"completion_tokens":'
_BACKSLASH = 92
_DIGITS = re.compile(rb"\d{1,12}")
# Of a read that is taken in by parts, some 30 events each: a loop takes 160 tokens, so most of what follows it is in later ones.
_PART_BYTES = 8192

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.loop_watch import LoopWatch
    from fleetctl.gateway.transcript import Transcript
    from fleetctl.gateway.usage import ShownUsage


_FEED_OTHER = EventRelay._feed_other  # noqa: SLF001  # its own; super() costs as much again, for every event


class WatchedRelay(EventRelay):
    """An event that is like the last ones costs no more than without: only a text that has grown is looked at."""

    __slots__ = ("_is_kept", "_watch")

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
        self._is_kept = transcript is not None  # all of the text
        if watch is not None:
            self._text_bytes_seen = min(self._text_bytes_max, FIRST_LOOK_BYTES - 1)

    def _feed_other(self, data: bytes) -> bytes:
        if len(data) > _PART_BYTES and self._watch is not None:
            return self._feed_parts(data)
        return self._feed_part(data)

    def _feed_parts(self, data: bytes) -> bytes:
        """Take in what an engine that was behind sends at once as if it had come in parts.

        A real vLLM on a busy machine writes a thousand events together: the answer is to end where its loop is found, not
        where that read ends, and what is found goes by how many tokens had come until there.
        """
        passed_on, new_tokens, start = [], 0, 0
        while start < len(data) and self.fault is None:
            boundary = data.find(b"\n\n", start + _PART_BYTES)
            end = boundary + 2 if boundary >= 0 else len(data)
            passed_on.append(self._feed_part(data[start:end]))
            new_tokens += self.new_tokens
            start = end
        self.new_tokens = new_tokens
        return b"".join(passed_on)

    def _feed_part(self, data: bytes) -> bytes:
        plain = self._plain
        events = _FEED_OTHER(self, data)
        watch = self._watch
        if watch is None or not events or self._plain != plain:  # its text was taken in
            return events
        if self._is_kept and not (self.transcript is not None and self.transcript.is_fit):
            self._keep_no_more(watch)
        marker, text = self._marker, self._text
        if not self._is_kept and marker:
            if self.new_tokens == 1:
                start = events.find(marker) + len(marker)
                end = events.find(b'"', start)
                text += events[start:end] if events[end - 1] != _BACKSLASH else text_of(events[start:])
            else:
                text += b"".join([text_of(piece) for piece in events.split(marker)[1:]])
        if watch.may_have_ids:
            watch.take_ids(events)
        if len(text) > self._text_bytes_seen or watch.is_ending:
            self._holds_more()
        return events

    def _keep_no_more(self, watch: LoopWatch) -> None:
        """Watch what comes from now on, of a stream that no other replica could go on with."""
        self._is_kept = False
        self._text.clear()
        self._text_bytes_seen = 0
        watch.restart(self.tokens - self.new_tokens)

    def _holds_more(self) -> bool:
        """Look at the text, and say when it is to be looked at again."""
        watch = self._watch
        if watch is None:
            return super()._holds_more()
        due = watch.look(self._text, self._generated(), self._text_dropped) + self._text_dropped
        if watch.is_ending:
            self.fault = LOOPED
        if watch.is_done:
            self._watch = None
        holds_more = super()._holds_more()
        self._text_bytes_seen = min(self._text_bytes_max, due - self._text_dropped - 1)
        return holds_more

    def _generated(self) -> int:
        """Return the tokens generated so far, by the engine's own count in the last event where there is one."""
        if not self._is_kept:
            return self.tokens  # the last count that was noted may be of long ago
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
