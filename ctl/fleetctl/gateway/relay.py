"""Passes a stream of events on, looking at each only as far as timing, honesty and a continuation need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.core.repetition.detector import TAIL_BYTES
from fleetctl.gateway import wire
from fleetctl.gateway.event_reader import CONTENT, DONE, EventReader
from fleetctl.gateway.event_shape import EventShape, ShapeLearner, read_event, shape_of
from fleetctl.gateway.stream_fault import STOPPED
from fleetctl.gateway.transcript import Transcript, goes_on, sole_event
from fleetctl.gateway.usage import SHOWS_NONE, ShownUsage, read_usage

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.prompt_count import PromptCount
    from fleetctl.gateway.splicer import Splicer

_LF = 10
_UNKEPT_BYTES_MAX = 2 * TAIL_BYTES  # of a text that nobody goes on with: then all but the last are dropped


class EventRelay(EventReader):
    """One client's stream, over however many replicas it takes.

    `feed` returns complete events to be written, or the fault that ends this replica's part. One that differs from the
    last by its text alone costs three searches for short patterns.
    """

    __slots__ = (
        "_counted", "_is_counted", "_learner", "_learns", "_looked", "_plain", "_shape", "_text", "_text_bytes_max", "_text_bytes_seen",
        "_text_dropped", "new_tokens", "splice", "transcript",
    )  # fmt: skip

    def __init__(
        self,
        limits: GatewayLimits,
        *,
        transcript: Transcript | None = None,
        is_counted: bool = False,
        shown: ShownUsage | None = None,
    ) -> None:
        """`is_counted`: the gateway asked for counts with every event; the client sees those that are `shown`."""
        super().__init__(limits, shown or SHOWS_NONE)
        self.transcript = transcript
        self._text = transcript.text if transcript is not None else bytearray()
        # Nothing need be done about the text until there is as much as was seen.
        self._text_bytes_max = transcript.text_bytes_max if transcript is not None else _UNKEPT_BYTES_MAX
        self._text_bytes_seen, self._text_dropped = self._text_bytes_max, 0
        self._is_counted = is_counted
        self._shape: EventShape | None = None  # of the events that are plain text, once one was seen
        self._learner: ShapeLearner | None = None  # of a stream that is not kept, from its first token on
        self._learns = True
        self._counted = b""  # the last event with the engine's own count
        self.splice: Splicer | PromptCount | None = None  # rewrites a continuation's events
        self._plain = self._looked = self.new_tokens = 0  # content events: of the shape, all others, of the last feed

    @property
    def tokens(self) -> int:
        """Content events passed on so far."""
        return self._plain + self._looked

    def feed(self, data: bytes) -> bytes:
        """Return the complete events to pass on; sets `new_tokens` and, at a fault, `fault`."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        shape = self._shape
        if shape is not None:
            head, start, tail, tail_bytes = shape.parts
            size = len(data)
            at = size - tail_bytes if tail_bytes else data.find(tail, start)
            # JSON has no line breaks of its own: the first one ends the event, and nothing may follow it.
            if (
                at > start
                and data.startswith(head)
                and data.find(b"\n", start) == size - 2
                and (data.endswith(tail) if tail_bytes else data[-1] == _LF)
            ):
                text = self._text
                text += data[start:at]
                if not tail_bytes:
                    self._counted = data  # before anybody asks how many tokens the text has
                if len(text) <= self._text_bytes_seen or self._holds_more():
                    if not tail_bytes:
                        data = data[:at] + shape.plain_tail
                    self._plain += 1
                    self.new_tokens = 1
                    return data
        return self._feed_other(data)

    def _feed_other(self, data: bytes) -> bytes:
        if not data.endswith(b"\n\n"):
            data = self._cut(data)
        self.new_tokens = 0
        if self._shape is not None and data and (several := self._several(data, self._shape)):
            return several
        if self.splice is not None and data:
            data = self.splice(data)
            self.fault = STOPPED if self.splice.is_over else self.fault
        if not data:
            return b""
        if self.transcript is not None and self.transcript.is_fit:
            return self._read(data, self.transcript)
        fed, strips = data, self._is_counted and not self._shown.in_events
        if strips:
            data = b"".join([self._shown_event(event) for event in wire.events(data)])
        marker = self._marker
        new = data.count(marker) - data.count(self._empty) if marker else 0
        if new != data.count(b"\n\n") or not new:
            data, new = self._look(data)
        elif new == 1 and self._learns:
            learner = self._learner = self._learner or ShapeLearner()
            self._shape = learner.learn(fed, marker, self._plain, strips=strips)
            self._learns = not learner.has_given_up
        self.last = data
        self.new_tokens = new
        self._looked += new
        return data

    def restart(self, splice: Splicer | PromptCount) -> None:
        """Get ready for the part another replica will send, which will be counted as this one was."""
        self._pending = self._marker = self._empty = b""
        self._shape = self.fault = None
        self._learns = False
        self.splice = splice
        if self.transcript is not None:
            prompt_tokens, tokens = self.counts()
            self.transcript.restart(prompt_tokens, tokens, plain_events=self._plain)
        self._counted = b""

    def counts(self) -> tuple[int | None, int]:
        """Return prompt tokens, if they are known, and the tokens generated so far, as the engine counts where it does."""
        kept = self.transcript
        return kept.usage(self._counted, plain_events=self._plain) if kept and kept.is_fit else (None, self.tokens)

    def _holds_more(self) -> bool:
        """Whether the text may get longer than it was seen to be; one that is not kept loses its beginning for that."""
        more = len(self._text) - self._text_bytes_max
        if more > 0 and not (self.transcript is not None and self.transcript.is_fit):
            self._text_dropped += len(self._text) - TAIL_BYTES
            del self._text[:-TAIL_BYTES]
            self._text_bytes_max = self._text_bytes_seen = _UNKEPT_BYTES_MAX
            more = 0
        return more <= 0

    def _several(self, data: bytes, shape: EventShape) -> bytes:
        """Take in events that are all of the shape at once, as they come when there is much to do. b"": they are not."""
        pieces = shape.pieces(data)
        joined = b"".join(pieces)
        # A line break within a piece: an event of another shape was taken for text.
        if not all(pieces) or b"\n" in joined:
            return b""
        text = self._text
        text += joined
        self._plain += len(pieces)
        if shape.strips:
            self._counted = data  # before anybody asks how many tokens the text has
        if len(text) > self._text_bytes_seen and not self._holds_more():
            self._plain -= len(pieces)
            return b""
        if shape.strips:
            data = shape.head + shape.between.join(pieces) + shape.plain_tail
        self.new_tokens = len(pieces)
        return data

    def _read(self, data: bytes, transcript: Transcript) -> bytes:
        """Take in events one by one, and learn the shape that the next ones will have."""
        read = None if self.ending or self.splice is not None else sole_event(data)
        if read is not None and (passed_on := self._read_sole(data, read, transcript)):
            return passed_on
        data, self.new_tokens = self._look(data)
        self._looked += self.new_tokens
        if self.ending and data.find(b'"usage"') < 0 and not goes_on(data):
            return self._with_usage(data)  # nothing but its end
        return b"".join([self._read_event(event, transcript) for event in wire.events(data)])

    def _read_sole(self, event: bytes, read: dict[str, Any], transcript: Transcript) -> bytes:
        """Take in an event that came alone and holds text, or opens an answer. b"": it holds something else."""
        if read.get("usage"):
            self.usage = read_usage(event) or self.usage
        event, is_plain = self._note(event, read, transcript)
        if not is_plain and not transcript.is_fit:
            return b""
        self.new_tokens = int(is_plain)
        self._looked += self.new_tokens
        return event

    def _read_event(self, event: bytes, transcript: Transcript) -> bytes:
        if event.find(b"data:") < 0 or (event.find(b"[DONE]") >= 0 and DONE.match(event)):
            return self._with_usage(event)
        if self.ending and not goes_on(event):
            return self._read_end(event, transcript)
        read = read_event(event)
        if read is None:
            transcript.drop()
            return event
        return self._note(event, read, transcript)[0]

    def _note(self, event: bytes, read: dict[str, Any], transcript: Transcript) -> tuple[bytes, bool]:
        """Keep an event's text; return what the client sees of the event, and whether it is plain text."""
        is_plain = transcript.note(read)
        strips = False
        if read.get("usage"):
            self._counted = event
            strips = self._is_counted and not self._shown.in_events
        self._shape = shape_of(event, strips=strips) if is_plain and self.splice is None else None
        return (self._shown_event(event) if strips else event), is_plain

    def _read_end(self, event: bytes, transcript: Transcript) -> bytes:
        """Take in an event after which no text comes: the one that says why the answer ended, or its usage."""
        if event.find(b'"usage"') < 0:
            transcript.note_end(has_token=not self._counted and CONTENT.search(event) is not None)
            return event
        if b'"completion_tokens"' in event:
            self._counted = event
        shows = not self._is_counted or (self._shown.in_events and b"finish_reason" in event)
        return event if shows else self._shown_event(event)
