"""What a lane's requests came to, as they come."""

from __future__ import annotations

import math
from collections import Counter
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
    a stream's last event, `events` counts them, and `fold` does the rest.
    """

    __slots__ = (
        "_bad",
        "_good",
        "endings",
        "events",
        "gap_limit_s",
        "gaps_s",
        "limits",
        "slo",
        "ttft_limit_s",
        "windows",
    )

    def __init__(self, slo: LaneSlo, *, now_s: float) -> None:
        self.hold_to(slo)
        self.windows = SlidingWindows(LaneStats, now_s=now_s)
        self.gaps_s: list[float] = []
        self.events = 0
        self.endings: Counter[str] = Counter()  # since the start, by Ending
        self._good = 0
        self._bad = 0

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
        self._bad += 1
        self.windows.open_cell(now_s).breached[kind] += 1

    def take_back(self, missed_s: float, kind: BreachKind) -> None:
        """Uncount a miss that `missed` counted at `missed_s`, for a request that turns out to be another lane's."""
        self._bad -= 1
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
        """Move what streams noted in `gaps_s` and `events` into the windows; called several times a second."""
        gaps_s, events = self.gaps_s, self.events
        if not events:
            return
        cell = self.windows.open_cell(now_s)
        add = cell.itl.add
        for gap_s in gaps_s:
            add(gap_s)
        if events > len(gaps_s):
            add(0.0, events - len(gaps_s))  # Those that came together with another have no gap before them.
        cell.output_tokens += events
        gaps_s.clear()
        self.events = 0

    def finished(
        self,
        now_s: float,
        measured: RequestMeasurements,
        *,
        prompt_tokens: int,
        output_tokens: int,
        more_output_tokens: int,
        has_missed: bool = False,
    ) -> bool:
        """Judge and count an ended request; return whether it was good.

        Of all its `output_tokens`, `more_output_tokens` were not counted as they came; `has_missed` was.
        """
        cell = self.windows.open_cell(now_s)
        self.endings[measured.ending] += 1
        cell.prompt_tokens += prompt_tokens
        if more_output_tokens > 0:
            cell.output_tokens += more_output_tokens
        if measured.ending is Ending.COMPLETE:
            cell.e2e.add(measured.total_s)
        if has_missed:
            cell.finished += 1
            cell.finished_output_tokens += output_tokens
            return False
        found = classify(measured, self.limits)
        if isinstance(found, Uncounted):
            return False
        cell.finished += 1
        cell.finished_output_tokens += output_tokens
        if found is None:
            cell.good += 1
            self._good += 1
        else:
            self._bad += 1
            cell.breached[found] += 1
        return found is None

    def totals(self) -> RequestTotals:
        """Return what spends the error budget and what does not, since the start."""
        return RequestTotals(good=self._good, bad=self._bad)

    def snapshot(self, now_s: float) -> tuple[LaneWindow, ...]:
        """Return every window, shortest first."""
        self.fold(now_s)
        return tuple(stats.window(seconds, self.slo) for seconds, stats in self.windows.sums(now_s))
