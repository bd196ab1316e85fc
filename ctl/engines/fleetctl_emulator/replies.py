"""Responses under way: they take tokens from the engine and put them on the wire, or keep them to the end."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from fleetctl_emulator.formats import ChoiceProgress, EventFormat
from fleetctl_emulator.sequence import SequenceStatus
from fleetctl_emulator.tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl_emulator.requests import PredictedAnswer
    from fleetctl_emulator.sequence import Sequence

# A client that does not read gets its tokens later and merged, as vLLM's output collector does it.
HELD_BYTES_MAX = 64 * 1024

# Where a frame's tail has the counts so far.
_COUNTS = b'"usage":{}'


class End(Enum):
    """How a response ended."""

    DONE = "done"
    ABORTED = "aborted"  # the engine is shutting down
    FAILED = "failed"  # a fault
    CUT = "cut"  # a fault closed the connection


class Choice:
    """One answer of a response; takes the tokens of its sequence."""

    __slots__ = (
        "_counts", "_head", "_tail", "format", "is_closed", "is_garbled", "predicted", "reply", "sent", "sequence",
    )  # fmt: skip

    def __init__(
        self, reply: Reply, sequence: Sequence, predicted: PredictedAnswer, event_format: EventFormat, index: int
    ) -> None:
        self.reply, self.sequence, self.predicted, self.format = reply, sequence, predicted, event_format
        self.sent = 0  # tokens on the wire
        self.is_closed = False
        self.is_garbled = False
        frame = event_format.frame(index) if reply.is_stream else None
        self._counts = frame is not None and _COUNTS in frame[1]
        self._head, self._tail = (frame if self._counts else reply.frame(frame)) if frame else (b"", b"")

    def on_token(self, sequence: Sequence) -> None:
        """Pass the newest token on."""
        reply, generated = self.reply, sequence.generated
        if (
            0 < self.sent > generated - reply.interval
            and sequence.status is SequenceStatus.RUNNING
            and not reply.break_at
        ):
            return
        end = generated * TOKEN_BYTES
        is_plain = self._head and 0 < self.sent == generated - 1 and end <= len(self.predicted.text)
        if not is_plain or sequence.status is not SequenceStatus.RUNNING or reply.break_at:
            reply.advance(self)
        elif reply.keeps_up():
            self.sent = generated
            text = self.predicted.text[end - TOKEN_BYTES : end]
            if self._counts:
                prompt = sequence.prompt.tokens
                counts = self.format.counts % (prompt, prompt + generated, generated)
                reply.write_events(self._head + text + self._tail.replace(_COUNTS, counts))
            else:
                reply.write(self._head + text + self._tail)

    def pending(self, index: int) -> bytes:
        """Return the events of every token not sent yet, merged; they count as sent."""
        progress, text = (
            self.progress(index),
            self.predicted.text[self.sent * TOKEN_BYTES : self.sequence.generated * TOKEN_BYTES],
        )
        events = b"" if self.sent else self.format.opening(progress)
        is_last = self.sequence.status is SequenceStatus.FINISHED
        if is_last and not self.is_closed:
            events += self.format.last(progress, text)
            self.is_closed = True
        elif self.sequence.generated > self.sent:
            events += self.format.event(progress, text)
        self.sent = self.sequence.generated
        return events

    def progress(self, index: int) -> ChoiceProgress:
        """Return how far this choice is."""
        return ChoiceProgress(
            index=index,
            prompt_tokens=self.sequence.prompt.tokens,
            cached_tokens=self.sequence.cached_tokens,
            generated=self.sequence.generated,
            finish_reason=self.predicted.finish_reason,
            stop_reason=self.predicted.stop_reason,
            text=self.predicted.text,
        )


class Reply:
    """A response with its choices; `ended` says how it ended. This one is sent whole, at the end."""

    is_stream = False
    interval = 1  # tokens an event carries, but for the first and the last

    def __init__(
        self, event_format: EventFormat, ended: asyncio.Future[End], broken: Callable[[Reply, Choice], bool]
    ) -> None:
        self.format = event_format
        self.ended = ended
        self.choices: list[Choice] = []
        self.break_at = 0  # tokens; a fault looks at every token from here on
        self._broken = broken
        self._open = 0

    def add(self, sequence: Sequence, predicted: PredictedAnswer) -> None:
        """Take on one more choice."""
        choice = Choice(self, sequence, predicted, self.format, len(self.choices))
        sequence.sink = choice
        self.choices.append(choice)
        self._open += 1

    def end(self, how: End) -> None:
        """End the response; the first end counts."""
        if not self.ended.done():
            self.ended.set_result(how)

    def advance(self, choice: Choice) -> None:
        """Pass a choice's new token on, where it is not an ordinary one."""
        if self.break_at and choice.sequence.generated >= self.break_at and self._broken(self, choice):
            return
        if choice.sequence.status is SequenceStatus.FINISHED:
            self._open -= 1
        self._show(choice)
        if not self._open:
            self.end(End.DONE)

    def all_progress(self) -> list[ChoiceProgress]:
        """Return how far every choice is."""
        return [choice.progress(index) for index, choice in enumerate(self.choices)]

    def keeps_up(self) -> bool:
        """Return whether the client keeps up."""
        return True

    def frame(self, frame: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return an event's surroundings with those of its transfer."""
        return frame

    def write(self, data: bytes) -> None:
        """Put bytes on the wire."""

    def write_events(self, events: bytes) -> None:
        """Put whole events on the wire."""

    def _show(self, choice: Choice) -> None:
        """Put a choice's news on the wire."""


class StreamReply(Reply):
    """Writes every step's token at once, straight to the transport: one write per step."""

    is_stream = True

    def __init__(
        self,
        event_format: EventFormat,
        ended: asyncio.Future[End],
        broken: Callable[[Reply, Choice], bool],
        transport: asyncio.WriteTransport,
        *,
        is_chunked: bool,
        interval: int = 1,
    ) -> None:
        self.transport = transport
        self.interval = interval
        self._is_chunked = is_chunked
        self._is_complete = False
        self.burst_s = 0.0  # between two bursts of events; 0: each leaves at once
        self._held: list[bytes] | None = None  # of the next burst; None: nothing was sent yet
        super().__init__(event_format, ended, broken)

    def keeps_up(self) -> bool:
        """Return whether the client keeps up."""
        return self.transport.get_write_buffer_size() <= HELD_BYTES_MAX

    def frame(self, frame: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return an event's surroundings with those of its transfer."""
        if not self._is_chunked:
            return frame
        head, tail = frame
        return b"%x\r\n%s" % (len(head) + TOKEN_BYTES + len(tail), head), tail + b"\r\n"

    def write(self, data: bytes) -> None:
        """Put bytes on the wire: now, or with the next burst."""
        if self._held is not None:
            self._held.append(data)
            return
        self.transport.write(data)
        if self.burst_s:
            self._held = []
            asyncio.get_running_loop().call_later(self.burst_s, self._burst)

    def flush(self) -> None:
        """Put what is held on the wire, and hold nothing back any more."""
        held, self._held, self.burst_s = self._held, None, 0.0
        if held:
            self.transport.write(b"".join(held))

    def _burst(self) -> None:
        """Put a burst on the wire, and see to the next one."""
        if self._held is not None and not self.ended.done():
            self.transport.write(b"".join(self._held))
            self._held = []
            asyncio.get_running_loop().call_later(self.burst_s, self._burst)

    def write_events(self, events: bytes) -> None:
        """Put whole events on the wire."""
        if events:
            self.write(b"%x\r\n%s\r\n" % (len(events), events) if self._is_chunked else events)

    def rest(self) -> bytes:
        """Return every event not sent yet; empty when the stream is complete."""
        self.flush()
        if self._is_complete:
            return b""
        self._is_complete = True
        events = b"".join(choice.pending(index) for index, choice in enumerate(self.choices) if not choice.is_closed)
        return events + self.format.closing(self.all_progress())

    def _show(self, choice: Choice) -> None:
        if self.keeps_up():
            last = not self._open
            self.write_events(self.rest() if last else choice.pending(self.choices.index(choice)))
