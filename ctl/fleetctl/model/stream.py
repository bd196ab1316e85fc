"""How evenly answers reach their clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from fleetctl.model.slo import Quantiles


class StreamFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What left for clients over some time. A chunk is what is written to a client at once; docs/slo.md has every rule.

    Gaps count as they come. All else counts when its answer ends: a streamed one of which a token came, however it ended.
    """

    gap: Quantiles = Quantiles()  # between two chunks of an answer
    answers: int = 0
    stalled_answers: int = 0  # with a stall or more
    stalls: int = 0
    chunks: int = 0  # of answers that ended whole
    tokens: int = 0  # of the same, as engines count them where they do; else one for each event with content
    tokens_per_chunk: float | None = None  # of all chunks; None: none left
    stall_rate: float | None = None  # the share of answers with a stall; None: no answer ended

    @classmethod
    def of(
        cls, gap: Quantiles, *, answers: int, stalled_answers: int, stalls: int, chunks: int, tokens: int
    ) -> StreamFigures:
        """Return these counts and what follows from them."""
        return cls(
            gap=gap,
            answers=answers,
            stalled_answers=stalled_answers,
            stalls=stalls,
            chunks=chunks,
            tokens=tokens,
            tokens_per_chunk=tokens / chunks if chunks else None,
            stall_rate=stalled_answers / answers if answers else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUnit:
    """In which unit a lane's tokens leave."""

    tokens_per_chunk: float
    gap_s: float  # between two chunks, P50
    engine: str  # name and version of the replicas it was measured at
    launch_digest: str  # of all they were started with
    at: datetime  # when it was measured
