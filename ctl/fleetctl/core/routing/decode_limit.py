"""How many streams a replica may decode at once, found from the gaps between their tokens.

Each stream in an engine's batch makes its steps longer, and the plan's `max_num_seqs` is for contexts of mean length and
the lane's own prompts. So the number is moved until the mean gap keeps a margin to the strictest ITL promised there, and
until no more gaps are over it than the promise allows: steps that compute a prompt are longer than the mean one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

# Of the ITL limit, where the mean gap is held: steps differ by a tenth with the lengths of what runs.
_HELD_AT: Final = 0.92
# Beneath it by so much, a replica that uses what it may gets more.
_RAISED_BELOW: Final = 0.85
_LOWERED_MOST: Final = 0.9
_RAISED_BY: Final = 1.05
_RAISED_MOST: Final = 2.0  # in a second, after an engine was slow and is no longer
# Fewer streams are no remedy for gaps over the limit where the mean is far from it: then it is the prompts, or a pause.
_STREAMS_FROM = 0.6
_LOWERED_FOR_MISSES = 0.9
_SECOND_COUNTS = 0.1  # of the share of gaps over the limit, what the last second moves it by
_RAISED_MISSED_MOST = 0.5  # of the share that the promise allows
# Fewer gaps say nothing.
GAPS_MIN: Final = 20


@dataclass(slots=True)
class DecodeLimit:
    """One replica's; infinite until its streams miss, or nearly do."""

    streams: float = math.inf
    missed_share: float = 0.0  # of the gaps lately

    def note(
        self,
        ratio: float,
        *,
        in_flight: int,
        ceiling: int,
        missed_share: float = 0.0,
        allowed_share: float = 1.0,
    ) -> None:
        """Take the mean gap of about a second over what is promised, and how many requests made it.

        `missed_share` of the gaps were over what is promised, where `allowed_share` may be.
        """
        if ratio > _HELD_AT:  # what is missed then comes of the mean, and says nothing of the time after
            self.streams = max(1.0, min(self.streams, in_flight) * max(_LOWERED_MOST, _HELD_AT / ratio))
            return
        self.missed_share += _SECOND_COUNTS * (missed_share - self.missed_share)
        if min(missed_share, self.missed_share) > allowed_share and ratio > _STREAMS_FROM:
            self.streams = max(1.0, min(self.streams, in_flight * _LOWERED_FOR_MISSES))
            return
        may_raise = ratio <= _STREAMS_FROM or self.missed_share <= _RAISED_MISSED_MOST * allowed_share
        if may_raise and ratio < _RAISED_BELOW and in_flight >= _LOWERED_MOST * self.of(ceiling):
            # Tokens that all came at once have no gap at all.
            factor = max(_RAISED_BY, _RAISED_BELOW / max(ratio, _RAISED_BELOW / _RAISED_MOST))
            raised = max(self.streams * factor, self.streams + 0.5)
            self.streams = raised if raised < ceiling else math.inf

    def of(self, ceiling: int) -> int:
        """Return how many requests the replica may have, `ceiling` at most."""
        return ceiling if self.streams >= ceiling else max(1, int(self.streams))
