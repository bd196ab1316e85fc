"""What a lane's requests came to, as they come."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.core.slo.breach import Ending, Limits, RequestMeasurements, Uncounted, classify
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.windows import WINDOWS_S, SlidingWindows

if TYPE_CHECKING:
    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.model.gateway import LaneWindow


class LaneAccounts:
    """The figures of a lane in sliding windows, written by its requests.

    Content events come a hundred thousand times a second, so streams only note them here: `gaps_s` takes the time since
    a stream's last event, `events` counts them, and `fold` does the rest.
    """

    __slots__ = ("endings", "events", "gaps_s", "limits", "windows")

    def __init__(self, limits: Limits, *, now_s: float) -> None:
        self.limits = limits
        self.windows = SlidingWindows(LaneStats, now_s=now_s)
        self.gaps_s: list[float] = []
        self.events = 0
        self.endings: Counter[str] = Counter()  # since the start, by Ending

    def offered(self, now_s: float) -> None:
        """Count an arrival."""
        self.windows.open_cell(now_s).offered += 1

    def dispatched(self, now_s: float, wait_s: float) -> None:
        """Count a request's first dispatch."""
        cell = self.windows.open_cell(now_s)
        cell.dispatched += 1
        cell.queue_wait.add(wait_s)

    def shed(self, now_s: float, refusal: Refusal) -> None:
        """Count a refusal."""
        self.windows.open_cell(now_s).shed[refusal] += 1

    def first_token(self, now_s: float, ttft_s: float, tokens: int) -> None:
        """Count the first content event of a stream, and those that came with it."""
        cell = self.windows.open_cell(now_s)
        cell.ttft.add(ttft_s)
        cell.output_tokens += tokens
        if tokens > 1:
            cell.itl.add(0.0, tokens - 1)

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
        self, now_s: float, measured: RequestMeasurements, *, prompt_tokens: int, more_output_tokens: int
    ) -> None:
        """Judge and count an ended request. `more_output_tokens` were not counted as they came."""
        cell = self.windows.open_cell(now_s)
        self.endings[measured.ending] += 1
        cell.prompt_tokens += prompt_tokens
        cell.output_tokens += max(0, more_output_tokens)
        if measured.ending is Ending.COMPLETE:
            cell.e2e.add(measured.total_s)
        verdict = classify(measured, self.limits)
        if isinstance(verdict, Uncounted):
            return
        cell.finished += 1
        if verdict is None:
            cell.good += 1
        else:
            cell.breached[verdict] += 1

    def snapshot(self, now_s: float) -> tuple[LaneWindow, ...]:
        """Return every window, shortest first."""
        self.fold(now_s)
        return tuple(self.windows.over(seconds, now_s).window(seconds) for seconds in WINDOWS_S)
