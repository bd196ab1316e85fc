"""What a lane's requests came to, as they come."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import RecentArrivals
from fleetctl.core.slo.breach import Limits, RequestMeasurements, Uncounted, classify
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.streams import ReplicaStreams, median_gap_s, stall_limit_s
from fleetctl.core.slo.windows import SlidingWindows
from fleetctl.model.budget import RequestTotals
from fleetctl.model.gateway import TokenTotals

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneWindow
    from fleetctl.model.slo import BreachKind, LaneSlo

_PACE_S = 5.0
_PACE_WINDOW_S = 60.0  # whose median says what a stall is
# Longer than a stream may be silent, and than most scrapes are apart; whoever is idle for longer begins anew.
_IDLE_S = 900.0


class LaneAccounts:
    """The figures of a lane in sliding windows, written by its requests.

    Content events come a hundred thousand times a second, so streams only note them: `gaps_s` of their replica takes the
    time since a stream's last chunk, `together` here counts tokens that came with another and have no gap before them, and
    `fold` does the rest.
    """

    __slots__ = (
        "_kinds",
        "_output_tokens",
        "_paced_s",
        "_prompt_tokens",
        "arrivals",
        "bad",
        "endings",
        "gap_limit_s",
        "good",
        "limits",
        "paced_gaps_s",
        "paced_together",
        "slo",
        "stall_limit_s",
        "stream_gap_limit_s",
        "streams",
        "together",
        "ttft_limit_s",
        "windows",
    )

    def __init__(self, slo: LaneSlo, *, now_s: float) -> None:
        self.hold_to(slo)
        self.windows = SlidingWindows(LaneStats, now_s=now_s)
        # By replica; "" has the streams of none that is known.
        self.streams: dict[str, ReplicaStreams] = {"": ReplicaStreams(now_s)}
        self.stall_limit_s = stall_limit_s(None)
        self._paced_s = now_s  # when that was last brought up to date
        self.arrivals = RecentArrivals(now_s)
        self.together = 0
        self.paced_gaps_s: list[float] = []  # between tokens of answers whose chunks are held back, and such tokens
        self.paced_together = 0
        self.endings: Counter[str] = Counter()  # since the start, by Ending
        self.good = 0  # requests that kept every promise, since the start
        self.bad = 0  # those that spend the error budget, likewise
        self._kinds: defaultdict[str, int] = defaultdict(int)  # those by BreachKind
        self._prompt_tokens = self._output_tokens = 0  # of requests that are over, since the start

    def hold_to(self, slo: LaneSlo) -> None:
        """Judge requests that end from now on by this SLO."""
        self.slo = slo
        self.limits = limits = Limits.of(slo)
        # Each request takes these over; infinite where nothing is promised.
        self.stream_gap_limit_s = limits.stream_gap_s if limits.stream_gap_s is not None else math.inf
        self.gap_limit_s = limits.itl_s if limits.itl_s is not None else math.inf
        self.ttft_limit_s = limits.ttft_s if limits.ttft_s is not None else math.inf

    def offered(self, now_s: float, *, is_again: bool = False) -> None:
        """Count an arrival; one that its client has sent before says nothing of how bursty demand is."""
        self.windows.open_cell(now_s).offered += 1
        if not is_again:
            self.arrivals.add(now_s)

    def dispatched(self, now_s: float, wait_s: float) -> None:
        """Count a request's first dispatch."""
        cell = self.windows.open_cell(now_s)
        cell.dispatched += 1
        cell.queue_wait.add(wait_s)

    def missed(self, now_s: float, kind: BreachKind) -> None:
        """Count a miss at the moment it is certain, which may be long before the request's end."""
        self.bad += 1
        self._kinds[kind] += 1
        self.windows.open_cell(now_s).breached[kind] += 1

    def take_back(self, missed_s: float, kind: BreachKind) -> None:
        """Uncount a miss that `missed` counted at `missed_s`, for a request that turns out to be another lane's."""
        self.bad -= 1
        self._kinds[kind] -= 1
        change = LaneStats()
        change.breached[kind] = -1
        self.windows.amend(change, missed_s)

    def shed(self, now_s: float, reason: str) -> None:
        """Count why a request was refused; the miss itself is counted by `missed`."""
        self.windows.open_cell(now_s).shed[reason] += 1

    def looped(self, now_s: float) -> None:
        """Count an answer that was found to repeat itself, at the moment that it was."""
        self.windows.open_cell(now_s).looped += 1

    def preempted(self, now_s: float, count: int) -> None:
        """Count streams that lost their place in an engine of the lane."""
        self.windows.open_cell(now_s).preempted += count

    def prefix_lost(self, now_s: float, tokens: int) -> None:
        """Count a turn of a conversation whose cached prefix had to make room for others."""
        cell = self.windows.open_cell(now_s)
        cell.prefixes_lost += 1
        cell.prefix_tokens_lost += tokens

    def first_token(self, now_s: float, ttft_s: float, tokens: int) -> None:
        """Count the first content event of a stream, and those that came with it."""
        cell = self.windows.open_cell(now_s)
        cell.ttft.add(ttft_s)
        cell.output_tokens += tokens
        if tokens > 1:
            cell.itl.add(0.0, tokens - 1)
            cell.together += tokens - 1

    def alike_gaps(self, now_s: float, gap_s: float, count: int) -> None:
        """Count content events of any streams that each came `gap_s` after the one before."""
        cell = self.windows.open_cell(now_s)
        cell.itl.add(gap_s, count)
        cell.output_tokens += count

    def fold(self, now_s: float) -> None:
        """Move what streams noted in `gaps_s` and `together` into the windows; called several times a second."""
        together, cell = self.together, None
        for streams in self.streams.values():
            if streams.gaps_s:
                cell = cell or self.windows.open_cell(now_s)
                cell.output_tokens += len(streams.gaps_s)
                cell.itl.merge(streams.fold(now_s, streams.gaps_s))
            if streams.paced_gaps_s:
                cell = cell or self.windows.open_cell(now_s)
                cell.paced_gap.merge(streams.fold(now_s, streams.paced_gaps_s))
        if together and cell is not None:
            cell.itl.add(0.0, together)
            cell.together += together
            cell.output_tokens += together
            self.together = 0
        if self.paced_gaps_s:
            self._fold_paced(now_s)
        if now_s - self._paced_s >= _PACE_S:
            self._learn_pace(now_s)

    def _fold_paced(self, now_s: float) -> None:
        cell, together = self.windows.open_cell(now_s), self.paced_together
        for gap_s in self.paced_gaps_s:
            cell.paced_itl.add(gap_s)
        if together:
            cell.paced_itl.add(0.0, together)
        cell.output_tokens += len(self.paced_gaps_s) + together
        self.paced_gaps_s.clear()
        self.paced_together = 0

    def _learn_pace(self, now_s: float) -> None:
        """Bring up to date what a stall is, and forget replicas that have been idle for long."""
        self._paced_s = now_s
        over, recent = self.windows.parts_over(_PACE_WINDOW_S, now_s)
        self.stall_limit_s = stall_limit_s(median_gap_s(over.stream_gaps(recent)))
        for replica_id in [name for name, each in self.streams.items() if name and now_s - each.used_s > _IDLE_S]:
            del self.streams[replica_id]

    def streams_of(self, replica_id: str, now_s: float) -> ReplicaStreams:
        """Return where the streams of a request that is sent to this replica now are noted."""
        found = self.streams.get(replica_id)
        if found is None:
            found = self.streams[replica_id] = ReplicaStreams(now_s)
        found.used_s = now_s
        return found

    def finished(  # noqa: PLR0913  # what a request came to
        self,
        now_s: float,
        measured: RequestMeasurements,
        *,
        prompt_tokens: int,
        output_tokens: int,
        more_output_tokens: int,
        missed: BreachKind | None = None,
        limits: Limits | None = None,
    ) -> BreachKind | Uncounted | None:
        """Judge and count an ended request; return how it missed its promise. None: it was good.

        Of all its `output_tokens`, `more_output_tokens` were not counted as they came; a miss that was is `missed`. `limits`: its own.
        """
        cell = self.windows.open_cell(now_s)
        self.endings[measured.ending] += 1
        cell.prompt_tokens += prompt_tokens
        self._prompt_tokens += prompt_tokens
        self._output_tokens += output_tokens
        if more_output_tokens > 0:
            cell.output_tokens += more_output_tokens
        if measured.streamed and measured.ttft_s is not None:
            cell.streams.ended(measured.chunks, output_tokens, measured.stalls)
            if measured.chunks and self.limits.tokens_per_chunk is not None:
                cell.unit.add(output_tokens / measured.chunks)
        if measured.ending is Ending.COMPLETE:
            cell.e2e.add(measured.total_s)
        if missed is not None:
            cell.finished += 1
            cell.finished_output_tokens += output_tokens
            return missed
        found = classify(measured, limits or self.limits)
        if isinstance(found, Uncounted):
            return found
        cell.finished += 1
        cell.finished_output_tokens += output_tokens
        if found is None:
            cell.good += 1
            self.good += 1
        else:
            self.bad += 1
            self._kinds[found] += 1
            cell.breached[found] += 1
        return found

    def totals(self) -> RequestTotals:
        """Return what spends the error budget and what does not, since the start."""
        kinds = {str(kind): count for kind, count in self._kinds.items() if count}
        return RequestTotals(good=self.good, bad=self.bad, kinds=kinds)

    def token_totals(self) -> TokenTotals:
        """Return the tokens of requests that are over, since the start."""
        return TokenTotals(prompt=self._prompt_tokens, output=self._output_tokens)

    def snapshot(self, now_s: float) -> tuple[LaneWindow, ...]:
        """Return every window, shortest first."""
        self.fold(now_s)
        slo = self.slo
        return tuple([over.window(seconds, slo, recent) for seconds, over, recent in self.windows.parts(now_s)])
