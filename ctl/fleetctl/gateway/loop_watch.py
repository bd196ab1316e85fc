"""Watches one answer for a loop, by the text that its relay keeps for a continuation, or by a tail of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from fleetctl.core.repetition.detector import TAIL_BYTES, LoopDetector
from fleetctl.core.repetition.units import LOOP_TOKENS
from fleetctl.gateway import wire
from fleetctl.model.generation import LoopAction

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.repetition.detector import Loop

# Of a choice; a prompt's have a longer name. Engines send them to whoever asked for them.
_TOKEN_IDS = re.compile(rb'"token_ids"\s*:\s*\[([0-9, ]*)\]')
# As the relay tells tokens: text that is not empty.
_SHOWN = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)"\s*:\s*"(?!")')
_BACKSLASH = 92
_TAIL_BYTES_HIGH = 2 * TAIL_BYTES  # then all but the last are dropped


class _LoopingMessage(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _LoopingChoice(msgspec.Struct):
    message: _LoopingMessage | None = None
    text: str | None = None


class _WholeBody(msgspec.Struct):
    choices: list[_LoopingChoice] = []


_decode_body = msgspec.json.Decoder(_WholeBody).decode


class LoopWatch:
    """One stream of one choice. What several choices say comes mixed, and is not watched."""

    __slots__ = (
        "_detector", "_dropped", "_ids", "_is_kept", "_kept_bytes", "_request", "_stops", "due", "is_ending", "shape", "tail",
    )  # fmt: skip

    def __init__(self, request: ActiveRequest, *, stops: bool) -> None:
        """`stops`: the answer is to end at a loop."""
        self._request, self._stops = request, stops
        self.is_ending = False  # a loop was found, and is to end the answer
        self._detector = LoopDetector()
        self._is_kept, self._kept_bytes = True, 0  # all of the text, by the relay, when it was last looked at
        self.tail = bytearray()  # of a text that is not
        self.due = self._dropped = 0  # look at it when it is so long
        # Of a single event whose text is not kept: what comes before it, how long that is, what comes after it.
        self.shape = (b"", 0, b"")
        self._ids: TokenIds | Literal[False] | None = None  # None: not looked for yet

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to look for: a loop was found."""
        return self._request.loop is not None

    def look(self, text: bytearray, tokens: int) -> int:
        """Look at a text that is kept, if it is time; return at how many bytes it is time again."""
        detector = self._detector
        self._kept_bytes = len(text)
        if len(text) >= detector.next_bytes:
            self._note(detector.look(text, tokens))
        return detector.next_bytes

    def take(self, events: bytes, marker: bytes, tokens: int, *, is_kept: bool) -> None:
        """Take in complete events; `marker` comes before the text in each, which the relay keeps all of, or none."""
        if not is_kept:
            self._take_text(events, marker, tokens)
        if self._ids is None:  # all of a stream's events have them, or none
            self._ids = TokenIds() if events.find(b'"token_ids"') >= 0 else False
        if self._ids:
            self._note(self._ids.take(events))

    def _note(self, loop: Loop | None) -> None:
        if loop is not None and self._request.loop is None:
            _note(self._request, loop)
            self.is_ending = self._stops

    def _take_text(self, events: bytes, marker: bytes, tokens: int) -> None:
        if self._is_kept:
            if self._kept_bytes:  # until now: what was found of it says nothing of what follows
                self._detector = LoopDetector(tokens)
            self._is_kept = False
        if not marker:
            return
        pieces = events.split(marker)
        self.tail += b"".join([_text_of(piece) for piece in pieces[1:]])
        if len(pieces) == 2 and events.find(b"\n\n") == len(events) - 2:
            end = pieces[1][len(_text_of(pieces[1])) :]
            self.shape = (pieces[0] + marker, len(pieces[0]) + len(marker), end)
        self.look_at_tail(tokens)

    def look_at_tail(self, tokens: int) -> None:
        """Look at the text that nobody else keeps, if it is time."""
        tail, detector = self.tail, self._detector
        if self._dropped + len(tail) >= detector.next_bytes:
            self._note(detector.look(tail, tokens, dropped=self._dropped))
        if len(tail) > _TAIL_BYTES_HIGH:
            self._dropped += len(tail) - TAIL_BYTES
            del tail[:-TAIL_BYTES]
        self.due = min(detector.next_bytes - self._dropped, _TAIL_BYTES_HIGH + 1)


class TokenIds:
    """The tokens that show no text: special ones, or bytes of characters that never end. Only their ids tell a loop."""

    __slots__ = ("_count", "_detector", "_dropped", "_ids")

    def __init__(self) -> None:
        self._detector: LoopDetector | None = None  # of those since any text was seen
        self._ids = bytearray()
        self._dropped = self._count = 0

    def take(self, events: bytes) -> Loop | None:
        """Take in the ids of some events; return the loop that they are found to end in."""
        for event in wire.events(events):
            found = b",".join(_TOKEN_IDS.findall(event)).replace(b" ", b"")
            if not found:
                continue
            if _SHOWN.search(event):
                self._detector = None
            elif self._detector is None:
                self._detector, self._dropped = LoopDetector(self._count, is_text=False), 0
                self._ids.clear()
            self._count += found.count(b",") + 1
            if self._detector is not None:
                self._add(found + b",", self._detector)
        return self._detector.loop if self._detector is not None else None

    def _add(self, found: bytes, detector: LoopDetector) -> None:
        ids = self._ids
        ids += found
        if self._dropped + len(ids) >= detector.next_bytes:
            detector.look(ids, self._count, dropped=self._dropped)
        if len(ids) > _TAIL_BYTES_HIGH:
            self._dropped += len(ids) - TAIL_BYTES
            del ids[:-TAIL_BYTES]


def watch_of(request: ActiveRequest, loops: LoopAction | None) -> LoopWatch | None:
    """Return who watches a stream, if anybody is to; None: its answer is not to be watched."""
    return LoopWatch(request, stops=loops is LoopAction.STOP) if loops is not None else None


def note_loop(request: ActiveRequest, body: bytes) -> None:
    """Note the loop that the text of a whole answer, or of one of its choices, ends in; where it has one."""
    output_tokens = request.stopwatch.token_count + request.output_tokens_uncounted
    if output_tokens < LOOP_TOKENS:
        return
    try:
        choices = _decode_body(body).choices
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # an engine's own shape: nothing is known of its text
    for choice in choices:
        message = choice.message
        text = choice.text or (message and (message.content or message.reasoning_content or message.reasoning)) or ""
        written = msgspec.json.encode(text)[1:-1]
        tail = bytearray(written[-TAIL_BYTES:])
        loop = LoopDetector().look(tail, output_tokens // len(choices), dropped=len(written) - len(tail))
        if loop is not None:
            _note(request, loop)
            return


def _note(request: ActiveRequest, loop: Loop) -> None:
    request.loop = loop
    request.lane.accounts.looped(request.heard_s)


def _text_of(piece: bytes) -> bytes:
    """Return a JSON string from its beginning to where it ends."""
    end = piece.find(b'"')
    while end > 0 and piece[end - 1] == _BACKSLASH:
        escaped = end - len(piece[:end].rstrip(b"\\"))
        if escaped % 2 == 0:
            break  # the backslashes are themselves escaped
        end = piece.find(b'"', end + 1)
    return piece[:end] if end >= 0 else piece
