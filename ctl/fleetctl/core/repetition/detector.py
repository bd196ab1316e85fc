"""Finds the point from which a text only repeats itself, looking at a little of it every now and then.

Text is as JSON wrote it: bytes, escapes and all, since what repeats does so in any spelling, and nothing need be decoded.
A look at text that does not repeat costs one search for its last bytes among those before (about a microsecond) and comes
every 32 tokens. Text that does is compared with itself one period earlier, each byte once.
"""

from __future__ import annotations

from collections import deque

import msgspec

from fleetctl.core.repetition.units import LOOP_TOKENS, tokens_needed

PERIOD_TOKENS_MAX = 64
# A period is estimated from bytes: one of 64 tokens may come out a few longer.
_PERIOD_TOKENS_SLACK = 2
# Three rounds tell a loop from a refrain or a template that was filled in twice.
_ROUNDS_MIN = 3
# What is searched for among the bytes before. At 32 it is hardly ever there by chance, and the search is at its fastest.
_NEEDLE_BYTES = 32
FIRST_LOOK_BYTES = 2 * _NEEDLE_BYTES
# Two rounds of the longest period, of long words or of characters that are written as escapes.
TAIL_BYTES = 2048
# Places where the last bytes stood before, looked at for a period: some units hold the same bytes several times.
_TRIES = 4
_LOOK_TOKENS = 32
# Tokens of a byte may follow long ones: a look comes before they are a loop.
_STEP_BYTES_MIN, _STEP_BYTES_MAX = 8, 128
# Two rounds of the longest period, in tokens like the last ones; those before may have been longer.
_ROUNDS_SEARCHED, _SEARCHED_BYTES_MIN = 3 * PERIOD_TOKENS_MAX, 768
# Looks remembered, to know how many tokens some bytes were: 512 tokens of text.
_MARKS = 16
# More than most tokens have: bytes stand in for tokens where several come in an event that does not count them.
_TOKEN_BYTES_MAX = 12
NEVER = 2**62  # bytes: no text gets so long


class Loop(msgspec.Struct, frozen=True, gc=False):
    """What an answer repeats; in tokens, as near as events and bytes tell them."""

    begin_token: int  # the first of the first round
    period_tokens: int
    found_token: int  # the last one that had come when it was sure


class LoopDetector:
    """Watches one text. Whoever feeds it looks once the text has grown to `next_bytes`, and no more once it is found."""

    __slots__ = ("_before", "_begin", "_is_text", "_marks", "_needed", "_period", "_size", "loop", "next_bytes")

    def __init__(self, tokens: int = 0, *, is_text: bool = True) -> None:
        """`tokens` came before what is watched. Not `is_text`: it is figures that stand for tokens, and no data."""
        self._before, self._is_text = tokens, is_text
        self.next_bytes = FIRST_LOOK_BYTES  # of the whole text
        self.loop: Loop | None = None
        self._marks: deque[tuple[int, int]] = deque([(0, tokens)], maxlen=_MARKS)  # (bytes, tokens) of the last looks
        self._size = 0  # bytes that were there at the last look
        # What repeats at the moment: bytes of a round (0: nothing does), where it began, tokens it takes to be a loop.
        self._period = self._begin = self._needed = 0

    def look(self, text: bytearray, tokens: int, *, dropped: int = 0) -> Loop | None:
        """Return the loop that the text has been found to end in, once it is one.

        `text` is all of it but the first `dropped` bytes, and at least the last TAIL_BYTES; `tokens` is how many it has.
        """
        size = dropped + len(text)
        if self._period and not self._goes_on(text, dropped):
            self._period = 0
        before_bytes, before_tokens = self._marks[-1]
        token_bytes = (size - before_bytes) / max(1, tokens - before_tokens)
        if not self._period:
            self._search(text, size, int(_ROUNDS_SEARCHED * token_bytes) + 2 * _NEEDLE_BYTES)
        step = max(_NEEDLE_BYTES, _LOOK_TOKENS * token_bytes)
        if self._period:
            step = min(step, self._judge(text, size, tokens))
        self._marks.append((size, tokens))
        self._size = size
        if self.loop is not None:
            self.next_bytes = NEVER
            self._marks.clear()
        else:
            most = max(_STEP_BYTES_MAX, _LOOK_TOKENS * token_bytes / 2)
            self.next_bytes = size + int(min(max(step, _STEP_BYTES_MIN), most))
        return self.loop

    def _goes_on(self, text: bytearray, dropped: int) -> bool:
        """Whether what came since the last look is what came a period before."""
        start = self._size - dropped
        before = start - self._period
        return before >= 0 and text[start:] == text[before : len(text) - self._period]

    def _search(self, text: bytearray, size: int, within: int) -> None:
        """Look for two rounds at the end of the text, in so many bytes."""
        tail = bytes(text[-min(max(within, _SEARCHED_BYTES_MIN), TAIL_BYTES) :])
        length = len(tail)
        needle = tail[-_NEEDLE_BYTES:]
        end = length - 1
        for _ in range(_TRIES):
            at = tail.rfind(needle, 0, end)
            if at < 0:
                return
            period = length - _NEEDLE_BYTES - at
            if 2 * period > length:
                return
            if tail[-period:] == tail[-2 * period : -period]:
                self._period, self._needed = period, 0
                self._begin = size - period - _common_suffix(tail[period:], tail[:-period])
                return
            end = at + _NEEDLE_BYTES - 1

    def _judge(self, text: bytearray, size: int, tokens: int) -> float:
        """Decide whether what repeats is a loop. Return in how many bytes it may be one, if it goes on."""
        period, repeated = self._period, size - self._begin
        repeated_tokens = max(self._tokens_since(self._begin, size, tokens), repeated / _TOKEN_BYTES_MAX)
        token_bytes = repeated / repeated_tokens
        period_tokens = period / token_bytes
        if period_tokens > PERIOD_TOKENS_MAX + _PERIOD_TOKENS_SLACK:
            return float(_STEP_BYTES_MAX)
        if not self._needed:
            rounds = text[-min(repeated // period, _ROUNDS_MIN) * period :]
            self._needed = tokens_needed(_decoded(rounds)) if self._is_text else LOOP_TOKENS
        needed = max(self._needed * token_bytes, _ROUNDS_MIN * period)
        if repeated >= needed:
            self.loop = Loop(max(1, round(tokens - repeated_tokens) + 1), max(1, round(period_tokens)), tokens)
        return needed - repeated

    def _tokens_since(self, position: int, size: int, tokens: int) -> float:
        """Return how many of the tokens came after the text was so many bytes long."""
        later_bytes, later_tokens = size, tokens
        for at, count in reversed(self._marks):
            if at <= position:
                break
            later_bytes, later_tokens = at, count
        else:
            at, count = 0, self._before
        if size - later_bytes >= _NEEDLE_BYTES and tokens > later_tokens:
            # What repeats may be of longer tokens, or shorter ones, than what came right before.
            return (tokens - later_tokens) * (size - position) / (size - later_bytes)
        return tokens - count - (later_tokens - count) * (position - at) / max(1, later_bytes - at)


def _common_suffix(one: bytes, other: bytes) -> int:
    """Return how many of their last bytes two texts of the same length share."""
    differs = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    return len(one) - (differs.bit_length() + 7) // 8


def _decoded(text: bytearray) -> str:
    """Return JSON-written text that may begin in the middle of a character or of an escape."""
    for start in range(12):  # as long as an escape of two surrogates
        try:
            decoded: str = msgspec.json.decode(b'"%b"' % bytes(text[start:]), type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return decoded
    # It may end in the middle of one as well.
    return bytes(text).decode(errors="replace").replace("\\n", "\n").replace('\\"', '"')
