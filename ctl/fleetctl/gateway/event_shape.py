"""The shape of a stream's ordinary events: they differ from one another by their text alone, and cost little to take in."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# How the text of an event is spelled; nothing else of an event changes from one token to the next.
_TEXT = re.compile(rb'"(?:content|text)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_USAGE_KEY = b',"usage":{'
_END = b"}\n\n"
_BACKSLASH = 92
# Events of a shape that make up for learning it; where fewer come, as of choices that alternate, it is given up in the end.
_HITS_MIN, _MISSES_MAX = 8, 16


class EventShape(msgspec.Struct, frozen=True, gc=False):
    """What surrounds the text in one stream's ordinary events, byte for byte."""

    head: bytes
    head_bytes: int
    tail: bytes  # up to the usage where that is taken out, else to the event's end
    plain_tail: bytes  # what follows the text for the client
    between: bytes  # what is between two texts for the client
    strips: bool  # the event's usage is taken out
    # The first three, and the tail's length where it is the event's end; else 0.
    parts: tuple[bytes, int, bytes, int]

    def pieces(self, events: bytes) -> list[bytes]:
        """Return the text of each of several such events, and [b""] if they are not all such events."""
        if not self.strips:
            is_whole = events.startswith(self.head) and events.endswith(self.plain_tail)
            return events[self.head_bytes : -len(self.plain_tail)].split(self.between) if is_whole else [b""]
        head, start, tail = self.head, self.head_bytes, self.tail
        pieces = []
        for event in events[:-2].split(b"\n\n"):
            at = event.find(tail, start)
            if at < 0 or not event.startswith(head):
                return [b""]
            pieces.append(event[start:at])
        return pieces


class ShapeLearner:
    """Learns the shape of a stream that nobody keeps. Where events have none in common it gives up."""

    __slots__ = ("_hits", "_misses")

    def __init__(self) -> None:
        self._hits = self._misses = 0

    @property
    def has_given_up(self) -> bool:
        """Whether too many events were like none before."""
        return self._misses >= _MISSES_MAX

    def learn(self, event: bytes, marker: bytes, hits: int, *, strips: bool) -> EventShape | None:
        """Return the shape of an ordinary event that is not like the last ones; None: it has none, or is not looked at.

        `marker` comes before its text; `hits` events were of the shapes learned so far.
        """
        if hits - self._hits >= _HITS_MIN:
            self._misses = 0
        self._hits = hits
        self._misses += 1
        if self.has_given_up or self._misses & (self._misses - 1):
            return None
        start = event.find(marker) + len(marker)
        end = start + len(text_of(event[start:]))
        return _shape_around(event[:start], event[end:], strips=strips)


def shape_of(event: bytes, *, strips: bool) -> EventShape | None:
    """Return the shape of an event that is plain text. None: it has no such shape, and each is to be read."""
    match = _TEXT.search(event)
    if match is None or _TEXT.search(event, match.end()) is not None:
        return None
    return _shape_around(event[: match.start(1)], event[match.end(1) :], strips=strips)


def text_of(piece: bytes) -> bytes:
    """Return a JSON string from its beginning to where it ends."""
    end = piece.find(b'"')
    while end > 0 and piece[end - 1] == _BACKSLASH:
        escaped = end - len(piece[:end].rstrip(b"\\"))
        if escaped % 2 == 0:
            break  # the backslashes are themselves escaped
        end = piece.find(b'"', end + 1)
    return piece[:end] if end >= 0 else piece


def _shape_around(head: bytes, rest: bytes, *, strips: bool) -> EventShape | None:
    if not strips:
        return _shape(head, rest, rest, strips=False)
    before, key, usage = rest.rpartition(_USAGE_KEY)
    if not key or not usage.endswith(b"}" + _END):
        return None
    tail, plain_tail = before + _USAGE_KEY, before + _END
    if read_event(head + plain_tail) is None:
        return None
    return _shape(head, tail, plain_tail, strips=True)


def _shape(head: bytes, tail: bytes, plain_tail: bytes, *, strips: bool) -> EventShape:
    parts = (head, len(head), tail, 0 if strips else len(tail))
    return EventShape(head, len(head), tail, plain_tail, plain_tail + head, strips, parts)


def read_event(event: bytes) -> dict[str, Any] | None:
    """Return what an event, or one line of it, holds. None: it is no JSON object on a line of its own."""
    try:
        found = msgspec.json.decode(event[5:]) if event.startswith(b"data:") else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
