"""When the next chunk of a coalesced answer leaves."""

from __future__ import annotations

# Even where the lane's interval asks for longer, what is held leaves within this: beyond it pacing is delay.
HELD_S_MAX = 1.0
# A little faster than tokens come, so that what has piled up drains.
_CATCH_UP = 0.9
# The rate of fewer intervals is that of the first burst.
_INTERVALS_MIN = 2.0


class ChunkPace:
    """One answer's chunks: of `tokens`, or of what has come within `within_s`; after a burst that long apart, or less.

    Chunks of an engine that streams evenly leave when they are full. Those of a burst leave one after the other, `within_s`
    apart, or as far as the answer's own rate allows where that is less: an answer is never slowed down. All times are seconds
    of the caller's clock.
    """

    __slots__ = ("_began_s", "_came", "_left_s", "_spacing_s", "_within_s", "tokens")

    def __init__(self, *, tokens: int, within_s: float) -> None:
        self.tokens = tokens
        self._within_s = self._spacing_s = within_s
        self._began_s = self._left_s = 0.0
        self._came = 0  # tokens, before the last that came

    def came(self, now_s: float, count: int) -> None:
        """Note tokens, and learn from those before them how fast they come."""
        if not self._came:
            self._began_s = now_s
        elapsed_s = now_s - self._began_s
        if elapsed_s >= _INTERVALS_MIN * self._within_s:
            self._spacing_s = min(self._within_s, _CATCH_UP * self.tokens * elapsed_s / self._came)
        self._came += count

    def left(self, now_s: float) -> None:
        """Note that a chunk leaves."""
        self._left_s = now_s

    def due_s(self, held: int, since_s: float) -> float:
        """Return when the next chunk leaves, where so many tokens are held, the first of them since `since_s`."""
        spaced_s = self._left_s + min(self._spacing_s, HELD_S_MAX * self.tokens / held)
        return spaced_s if held >= self.tokens else max(spaced_s, since_s + self._within_s)
