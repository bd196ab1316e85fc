"""What a replica's engine has said of its KV cache lately, and what was sent there: who took the room."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.client_label import client_label
from fleetctl.model.eviction import KvFiller

if TYPE_CHECKING:
    from collections.abc import Iterable

READ_EVERY_S = 5.0
_READINGS_MAX = 120  # ten minutes
# Requests that were there lately; some 10 KB a replica.
_SENT_MAX = 128
_FILLERS_MAX = 3
# The published reserve is a fifth; from here on engines preempt.
KV_FULL = 0.9
_NEARLY = 0.03  # of the highest reading
_SAME_S = 0.25


class SentRequest(msgspec.Struct, frozen=True, gc=False):
    """What one request brought to a KV cache."""

    at_s: float
    ended_s: float
    client: int
    name: str  # of its key; "": it has none
    lane: str
    prompt_tokens: int  # uncached
    output_tokens: int


class KvPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """How full a KV cache was over some time, and by whom."""

    usage: float | None = None  # the highest reading
    since_s: float = 0.0
    until_s: float = 0.0
    fillers: tuple[KvFiller, ...] = ()
    filled_tokens: int = 0


class KvRecord:
    """One replica's, from the first table that names it on."""

    __slots__ = (
        "_preemptions",
        "_prompt_tokens",
        "_readings",
        "capacity_tokens",
        "preempted",
        "reports_cached",
        "restarted_s",
        "sent",
        "since_s",
    )

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s
        self.capacity_tokens = 0.0  # as its engine says; 0: it does not
        self.restarted_s: float | None = None  # when its engine was seen to have begun anew
        self.reports_cached = False  # it has said of some prompt how much was cached: where it says nothing, none was
        self.preempted: deque[tuple[float, int]] = deque(maxlen=_READINGS_MAX)  # streams, by when it was read
        self._preemptions: float | None = None
        self._prompt_tokens = 0.0
        self._readings: deque[tuple[float, float]] = deque(maxlen=_READINGS_MAX)
        self.sent: deque[SentRequest] = deque(maxlen=_SENT_MAX)  # requests that were there and are over

    def read(self, read_s: float, usage: float | None, preemptions: float, prompt_tokens: float) -> int:
        """Take in a reading that may be decided on; return how many streams were preempted since the one before.

        `usage` None: the engine never says, and leaves no level on record.

        Nothing is known of the time before the first reading, nor between the last one of an engine and its restart.
        """
        if self._readings and abs(read_s - self._readings[-1][0]) < _SAME_S:
            self._readings.pop()  # it came again, beside others' that are new
        if usage is not None:
            self._readings.append((read_s, usage))
        before, self._preemptions = self._preemptions, preemptions
        has_restarted = prompt_tokens < self._prompt_tokens
        self._prompt_tokens = prompt_tokens
        if has_restarted:
            self.restarted_s = read_s
        if before is None or has_restarted or preemptions <= before:
            return 0
        count = round(preemptions - before)
        if count:
            self.preempted.append((read_s, count))
        return count

    def has_begun_anew(self, since_s: float) -> bool:
        """Whether its engine is another process than it was then."""
        return self.since_s > since_s or (self.restarted_s is not None and self.restarted_s > since_s)

    def preempted_since(self, since_s: float) -> int:
        """Return how many streams it has preempted since then."""
        return sum(count for at_s, count in self.preempted if at_s >= since_s)

    def last_reading_s(self) -> float | None:
        """Return when its engine was last read. None: it never was."""
        return self._readings[-1][0] if self._readings else None

    def was_full(self, *, since_s: float, until_s: float) -> bool:
        """Whether it was full at some reading between two instants."""
        return any(since_s <= at_s <= until_s and usage >= KV_FULL for at_s, usage in self._readings)

    def period(self, since_s: float, until_s: float, present: Iterable[SentRequest]) -> KvPeriod:
        """Return how full it was between two instants and who filled it; `present` are requests that are not over."""
        usages = [reading for reading in self._readings if since_s - READ_EVERY_S <= reading[0] <= until_s]
        usage = max((each for _, each in usages), default=None)
        full = [at_s for at_s, each in usages if usage is not None and each >= usage - _NEARLY]
        taken: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for request in (*self.sent, *present):
            if request.at_s <= until_s and request.ended_s > since_s:
                sums = taken[_client(request), request.lane]
                sums[0] += 1
                sums[1] += request.prompt_tokens + request.output_tokens
        most = sorted(taken.items(), key=lambda each: (-each[1][1], each[0]))
        return KvPeriod(
            usage=usage,
            since_s=full[0] if full else 0.0,
            until_s=full[-1] if full else 0.0,
            fillers=tuple(
                KvFiller(client=client, lane=lane, prompts=prompts, tokens=tokens)
                for (client, lane), (prompts, tokens) in most[:_FILLERS_MAX]
            ),
            filled_tokens=sum(tokens for _, tokens in taken.values()),
        )


def _client(request: SentRequest) -> str:
    """Return whose it was: by the key's name, else by what traces call the client."""
    return f"{'key' if request.name else 'client'} {client_label(request.client, request.name)}"
