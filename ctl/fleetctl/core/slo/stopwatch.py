"""Measures one request, and counts it in its lane's figures: a miss as soon as it is certain, the rest when it is over."""

from __future__ import annotations

import math
from heapq import heappush, heapreplace
from typing import TYPE_CHECKING

from fleetctl.core.slo.breach import RequestMeasurements
from fleetctl.core.slo.endings import Ending
from fleetctl.model.slo import BreachKind

if TYPE_CHECKING:
    from fleetctl.core.slo.accounts import LaneAccounts
    from fleetctl.core.slo.breach import Limits


# Fewer gaps say more of one prompt that shared their steps than of the engine.
_GAPS_COMPARED_MIN = 16
# The P99 of so many hundred gaps is among them; of more gaps it is no longer than the least of these.
_LARGEST_GAPS = 8
_COMPLETE = Ending.COMPLETE  # an enum's members are slow to look up


def _or_infinite(limit_s: float | None) -> float:
    return math.inf if limit_s is None else limit_s


class RequestStopwatch:
    """The times of one request, in seconds of the caller's clock."""

    __slots__ = (
        "_accounts",
        "_gap_limit_s",
        "_gaps",
        "_gaps_over",
        "_gaps_taken",
        "_large_gap_s",
        "_last_token_s",
        "_limits",
        "_noted_gap_s",
        "_over_taken",
        "_resumed_s",
        "_stall_limit_s",
        "_stream_gap_limit_s",
        "_stream_gaps_over",
        "_streams",
        "_taken_s",
        "_together",
        "_ttft_limit_s",
        "breach",
        "ended_s",
        "ending",
        "is_good",
        "largest_gaps_s",
        "stalls",
        "started_s",
        "ttft_s",
        "wait_s",
    )  # fmt: skip

    # Of one that is over.
    ended_s: float
    ending: Ending | None  # None: it was refused with 429

    def __init__(self, accounts: LaneAccounts, started_s: float) -> None:
        self._accounts = accounts
        self.started_s = started_s
        self.wait_s: float | None = None  # submission -> first dispatch
        self.ttft_s: float | None = None  # submission -> first content event
        self.is_good = False  # once it has been stopped: inside every limit
        self.largest_gaps_s: list[float] | None = None  # a heap of a few; None: there was none
        self._large_gap_s = 0.0  # a longer one is among them
        self._noted_gap_s = 0.0  # a longer one is among them, or over the limit
        self._last_token_s = 0.0
        self._gaps = 0
        self._gaps_over = 0
        self._gaps_taken = self._over_taken = 0  # by the last `take_gaps`, and up to when
        self._taken_s = 0.0
        self.breach: BreachKind | None = None  # how it has missed its promise, as soon as that is certain
        self._streams = accounts.streams[""]  # where its chunks are noted
        self._together = 0  # tokens that came with the one before
        self.stalls = 0
        self._stall_limit_s = accounts.stall_limit_s
        self._stream_gap_limit_s = accounts.stream_gap_limit_s
        self._stream_gaps_over = 0
        self._resumed_s = 0.0  # when the client last began to read again
        self._gap_limit_s = accounts.gap_limit_s
        self._ttft_limit_s = accounts.ttft_limit_s
        self._limits: Limits | None = None  # of its own; None: its lane's

    def hold_to(self, limits: Limits) -> None:
        """Judge it by these limits in place of its lane's."""
        self._limits = limits
        self._gap_limit_s = _or_infinite(limits.itl_s)
        self._ttft_limit_s = _or_infinite(limits.ttft_s)
        self._stream_gap_limit_s = _or_infinite(limits.stream_gap_s)

    @property
    def limits(self) -> Limits:
        """Return what it is judged by."""
        return self._limits or self._accounts.limits

    def dispatched(self, now_s: float, replica_id: str = "") -> None:
        """Note a dispatch to a replica; only the first one ends the wait."""
        self._streams = self._accounts.streams_of(replica_id, now_s)
        if self.wait_s is None:
            self.wait_s = now_s - self.started_s
            self._accounts.dispatched(now_s, self.wait_s)

    def tokens(self, now_s: float, count: int) -> None:
        """Note content events that came together; called for every read of every stream."""
        if self.ttft_s is None:
            self.ttft_s = now_s - self.started_s
            if self.ttft_s > self._ttft_limit_s:
                self._miss(now_s, BreachKind.TTFT)
            self._accounts.first_token(now_s, self.ttft_s, count)
            self._gaps += count - 1
            self._together += count - 1
        else:
            gap_s = now_s - self._last_token_s
            self._streams.gaps_s.append(gap_s)
            self._gaps += count
            if count > 1:
                self._accounts.together += count - 1
                self._together += count - 1
            if gap_s > self._noted_gap_s:
                self._note_gap(gap_s, now_s)
        self._last_token_s = now_s

    def resumed(self, now_s: float) -> None:
        """Note that the client reads again: until now nothing could leave for it, and that is no stall of ours."""
        self._resumed_s = now_s

    def _note_gap(self, gap_s: float, now_s: float) -> None:
        """Count a gap that is over a limit, and keep one that is among the largest: a long stream has few of either."""
        if gap_s > self._gap_limit_s:
            self._gaps_over += 1
        if gap_s > self._stall_limit_s:
            self._note_stall(now_s)
        if gap_s > self._stream_gap_limit_s:
            self._stream_gaps_over += 1
        if gap_s > self._large_gap_s:
            self._keep_gap(gap_s)
            self._noted_gap_s = min(self._gap_limit_s, self._stall_limit_s, self._stream_gap_limit_s, self._large_gap_s)

    def _note_stall(self, now_s: float) -> None:
        """Count a stall, if nothing left for so long although the client was reading."""
        if now_s - max(self._last_token_s, self._resumed_s) > self._stall_limit_s:
            self.stalls += 1

    def _keep_gap(self, gap_s: float) -> None:
        largest = self.largest_gaps_s
        if largest is None:
            self.largest_gaps_s = [gap_s]
        elif len(largest) < _LARGEST_GAPS:
            heappush(largest, gap_s)
        else:
            heapreplace(largest, gap_s)
            self._large_gap_s = largest[0]

    @property
    def token_count(self) -> int:
        """Return how many content events have come."""
        return self._gaps + 1 if self.ttft_s is not None else 0

    @property
    def chunk_count(self) -> int:
        """Return how many chunks have left: content events that came together left together."""
        return self.token_count - self._together

    @property
    def tpot_s(self) -> float | None:
        """The mean time per output token so far. None: there are too few to compare."""
        return self.mean_gap_s if self._gaps >= _GAPS_COMPARED_MIN else None

    @property
    def mean_gap_s(self) -> float | None:
        """The mean time between its content events so far. None: there are not two."""
        if self.ttft_s is None or not self._gaps:
            return None
        return (self._last_token_s - self.started_s - self.ttft_s) / self._gaps

    @property
    def gaps(self) -> tuple[int, int]:
        """Return how many gaps there were between its content events, and how many of them were over the limit."""
        return self._gaps, self._gaps_over

    def gap_s_p99(self) -> float | None:
        """Return the gap that one in a hundred is longer than; of a very long stream one it is no longer than. None: none."""
        largest = self.largest_gaps_s
        if largest is None:
            return None
        return sorted(largest, reverse=True)[min(self._gaps // 100, len(largest) - 1)]

    @property
    def _counted_tokens(self) -> int:
        return 0 if self.ttft_s is None else self._gaps + 1

    @property
    def is_late(self) -> bool:
        """Whether it was counted as missed before its end: a limit has passed."""
        return self.breach is not None

    @property
    def has_missed(self) -> bool:
        """Whether it has missed its promise, were it over now."""
        return self.breach is not None or self._gaps_over > self.limits.jitter_share * self._gaps

    def take_gaps(self) -> tuple[int, float, int]:
        """Return how many gaps between its tokens there were since the last call, how long together, and how many over."""
        noted, noted_s, noted_over = self._gaps_taken, self._taken_s, self._over_taken
        self._gaps_taken, self._taken_s, self._over_taken = self._gaps, self._last_token_s, self._gaps_over
        taken_s = self._last_token_s - (noted_s or self.started_s + (self.ttft_s or 0.0))
        return self._gaps - noted, taken_s, self._gaps_over - noted_over

    def more_tokens(self, last_s: float, count: int, *, gaps_over: int) -> None:
        """Note `count` more content events, the last at `last_s`, after gaps of which so many were over the limit.

        How long the gaps were is the caller's to count.
        """
        self._gaps += count
        self._gaps_over += gaps_over
        self._last_token_s = last_s

    def check(self, now_s: float, *, is_stream: bool) -> None:
        """Count a request that has passed a limit while it still waits or runs; called now and then for each."""
        if self.breach is not None:
            return
        age_s, limits = now_s - self.started_s, self._limits or self._accounts.limits
        if limits.total_s is not None and age_s > limits.total_s:
            self._miss(now_s, BreachKind.TIMEOUT)
        elif (is_stream and self.ttft_s is None and age_s > self._ttft_limit_s) or (
            self.wait_s is None and limits.queue_wait_s is not None and age_s > limits.queue_wait_s
        ):
            self._miss(now_s, BreachKind.TTFT)

    def refused(self, now_s: float, reason: str) -> None:
        """Count a request that was turned away with 429."""
        self.ended_s, self.ending = now_s, None
        self._accounts.shed(now_s, reason)
        self._miss(now_s, BreachKind.REFUSED)

    def stop(
        self, now_s: float, ending: Ending, *, is_stream: bool, prompt_tokens: int, output_tokens_uncounted: int
    ) -> None:
        """Count the request, unless it was refused. `output_tokens_uncounted` were not noted by `tokens`."""
        self.ended_s, self.ending, total_s = now_s, ending, now_s - self.started_s
        output_tokens, chunks = self._counted_tokens + max(0, output_tokens_uncounted), 0
        if is_stream and self.ttft_s is not None:
            if ending is _COMPLETE:
                chunks = self.chunk_count
            else:  # a silence that the end cut short was one all the same
                self._note_stall(now_s)
            self._streams.ended(now_s, chunks, output_tokens, self.stalls)
        found = self._accounts.finished(
            now_s,
            RequestMeasurements(
                ending=ending,
                total_s=total_s,
                streamed=is_stream,
                ttft_s=self.ttft_s,
                queue_wait_s=self.wait_s if self.wait_s is not None else total_s,
                gaps=self._gaps,
                gaps_over=self._gaps_over,
                chunks=chunks,
                stalls=self.stalls,
                stream_gaps=max(0, self.chunk_count - 1),
                stream_gaps_over=self._stream_gaps_over,
                tokens=output_tokens,
            ),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            more_output_tokens=output_tokens_uncounted,
            missed=self.breach,
            limits=self._limits,
        )
        self.is_good = found is None
        if isinstance(found, BreachKind):
            self.breach = found

    def _miss(self, now_s: float, kind: BreachKind) -> None:
        """Count the request as missed, once."""
        if self.breach is None:
            self.breach = kind
            self._accounts.missed(now_s, kind)
