"""Watches one answer for a loop, by the text that its relay keeps for a continuation, or by the last of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.repetition.detector import FIRST_LOOK_BYTES, TAIL_BYTES, LoopDetector
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
_IDS_BYTES_MAX = 2 * TAIL_BYTES  # then all but the last are dropped


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

    __slots__ = ("_detector", "_ids", "_request", "_stops", "is_ending", "may_have_ids")

    def __init__(self, request: ActiveRequest, *, stops: bool) -> None:
        """`stops`: the answer is to end at a loop."""
        self._request, self._stops = request, stops
        self.is_ending = False  # a loop was found, and is to end the answer
        self._detector: LoopDetector | None = None  # of a short answer there is none
        self.may_have_ids = True
        self._ids: TokenIds | None = None  # None: not looked for yet

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to look for: a loop was found."""
        return self._request.loop is not None

    def look(self, text: bytearray, tokens: int, dropped: int) -> int:
        """Look at a text, all of it but so many bytes, if it is time; return at how many bytes it is time again."""
        if dropped + len(text) < FIRST_LOOK_BYTES:
            return FIRST_LOOK_BYTES - dropped
        detector = self._detector = self._detector or LoopDetector()
        if dropped + len(text) >= detector.next_bytes:
            self._note(detector.look(text, tokens, dropped=dropped))
        return detector.next_bytes - dropped

    def restart(self, tokens: int) -> None:
        """Look at another text from now on: what was found of the one before, of so many tokens, says nothing of it."""
        self._detector = LoopDetector(tokens)

    def take_ids(self, events: bytes) -> None:
        """Take in complete events of which the text tells nothing, if they have the ids of their tokens."""
        if self._ids is None:  # all of a stream's events have them, or none
            self.may_have_ids = events.find(b'"token_ids"') >= 0
            self._ids = TokenIds()
        if self.may_have_ids:
            self._note(self._ids.take(events))

    def _note(self, loop: Loop | None) -> None:
        if loop is not None and self._request.loop is None:
            _note(self._request, loop)
            self.is_ending = self._stops


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
        if len(ids) > _IDS_BYTES_MAX:
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
