"""What a lane's requests came to, as they come."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from fleetctl.core.slo.breach import Limits, RequestMeasurements, Uncounted, classify
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.windows import SlidingWindows
from fleetctl.model.budget import RequestTotals

if TYPE_CHECKING:
    from fleetctl.model.gateway import LaneWindow
    from fleetctl.model.slo import BreachKind, LaneSlo


class LaneAccounts:
    """The figures of a lane in sliding windows, written by its requests.

    Content events come a hundred thousand times a second, so streams only note them here: `gaps_s` takes the time since
    a stream's last event, `together` counts those that came with another and have no gap before them, and `fold` does the rest.
    """

    __slots__ = (
        "_good",
        "_kinds",
        "bad",
        "endings",
        "gap_limit_s",
        "gaps_s",
        "limits",
        "slo",
        "together",
        "ttft_limit_s",
        "windows",
    )

    def __init__(self, slo: LaneSlo, *, now_s: float) -> None:
        self.hold_to(slo)
        self.windows = SlidingWindows(LaneStats, now_s=now_s)
        self.gaps_s: list[float] = []
        self.together = 0
        self.endings: Counter[str] = Counter()  # since the start, by Ending
        self._good = 0
        self.bad = 0  # requests that spend the error budget, since the start
        self._kinds: defaultdict[str, int] = defaultdict(int)  # those by BreachKind

    def hold_to(self, slo: LaneSlo) -> None:
        """Judge requests that end from now on by this SLO."""
        self.slo = slo
        self.limits = limits = Limits.of(slo)
        # Each request takes these over; infinite where nothing is promised.
        self.gap_limit_s = limits.itl_s if limits.itl_s is not None else math.inf
        self.ttft_limit_s = limits.ttft_s if limits.ttft_s is not None else math.inf

    def offered(self, now_s: float) -> None:
        """Count an arrival."""
        self.windows.open_cell(now_s).offered += 1

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

    def first_token(self, now_s: float, ttft_s: float, tokens: int) -> None:
        """Count the first content event of a stream, and those that came with it."""
        cell = self.windows.open_cell(now_s)
        cell.ttft.add(ttft_s)
        cell.output_tokens += tokens
        if tokens > 1:
            cell.itl.add(0.0, tokens - 1)

    def alike_gaps(self, now_s: float, gap_s: float, count: int) -> None:
        """Count content events of any streams that each came `gap_s` after the one before."""
        cell = self.windows.open_cell(now_s)
        cell.itl.add(gap_s, count)
        cell.output_tokens += count

    def fold(self, now_s: float) -> None:
        """Move what streams noted in `gaps_s` and `together` into the windows; called several times a second."""
        gaps_s, together = self.gaps_s, self.together
        if not gaps_s:
            return
        cell = self.windows.open_cell(now_s)
        add = cell.itl.add
        for gap_s in gaps_s:
            add(gap_s)
        if together:
            add(0.0, together)
        cell.output_tokens += len(gaps_s) + together
        gaps_s.clear()
        self.together = 0

    def finished(
        self,
        now_s: float,
        measured: RequestMeasurements,
        *,
        prompt_tokens: int,
        output_tokens: int,
        more_output_tokens: int,
        missed: BreachKind | None = None,
    ) -> BreachKind | Uncounted | None:
        """Judge and count an ended request; return how it missed its promise. None: it was good.

        Of all its `output_tokens`, `more_output_tokens` were not counted as they came; a miss that was is `missed`.
        """
        cell = self.windows.open_cell(now_s)
        self.endings[measured.ending] += 1
        cell.prompt_tokens += prompt_tokens
        if more_output_tokens > 0:
            cell.output_tokens += more_output_tokens
        if measured.ending is Ending.COMPLETE:
            cell.e2e.add(measured.total_s)
        if missed is not None:
            cell.finished += 1
            cell.finished_output_tokens += output_tokens
            return missed
        found = classify(measured, self.limits)
        if isinstance(found, Uncounted):
            return found
        cell.finished += 1
        cell.finished_output_tokens += output_tokens
        if found is None:
            cell.good += 1
            self._good += 1
        else:
            self.bad += 1
            self._kinds[found] += 1
            cell.breached[found] += 1
        return found

    def totals(self) -> RequestTotals:
        """Return what spends the error budget and what does not, since the start."""
        kinds = {str(kind): count for kind, count in self._kinds.items() if count}
        return RequestTotals(good=self._good, bad=self.bad, kinds=kinds)

    def snapshot(self, now_s: float) -> tuple[LaneWindow, ...]:
        """Return every window, shortest first."""
        self.fold(now_s)
        return tuple(stats.window(seconds, self.slo) for seconds, stats in self.windows.sums(now_s))
