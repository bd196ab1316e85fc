"""Error budgets, burn rates and alerts on the metrics page: the controller's readings, as long as they are young."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.alerts import severity_of
from fleetctl.model.alert import AlertName, AlertState
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.slo_feed import LaneSloReading, SloFeed
    from fleetctl.telemetry.page import MetricsPage

# They come every 5 s; a controller whose ticks fail looks again after 30 s at the latest. What is older is not shown, so that no
# gauge stands still: Prometheus sees it end, and the time of the last reading says why.
_AGE_S_MAX = 60.0
_INACTIVE = "inactive"

Sample = tuple[dict[str, str], float]


class SloGauges:
    """Keeps the controller's last readings."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._feed: SloFeed | None = None
        self._taken_s = 0.0

    def take(self, feed: SloFeed) -> None:
        """Take newer readings."""
        self._feed, self._taken_s = feed, self._clock()

    def write(self, page: MetricsPage, now_s: float) -> None:
        """Add them to the page; of old ones, or none, when they were made alone."""
        feed = self._feed
        made: list[Sample] = [] if feed is None else [({}, feed.at_s)]
        page.family("evaluated_timestamp_seconds", "gauge", "When the controller last read budgets and alerts.", made)
        if feed is not None and now_s - self._taken_s <= _AGE_S_MAX:
            _write_fleet(page, feed)
            _write_budgets(page, feed.lanes)
            _write_alerts(page, feed.lanes)


def _write_fleet(page: MetricsPage, feed: SloFeed) -> None:
    page.family("objective_ratio", "gauge", "Share of good requests promised.", [({}, feed.objective)])
    page.family("window_seconds", "gauge", "Time over which the error budget is counted.", [({}, feed.window_s)])


def _write_budgets(page: MetricsPage, lanes: tuple[LaneSloReading, ...]) -> None:
    budgets = [(each.lane, each.budget) for each in lanes if each.budget is not None]
    left = [({"lane": lane}, b.budget.left) for lane, b in budgets if b.budget.left is not None]
    text = "Share of the error budget that is left: 1 all of it, below 0 overspent; absent without requests."
    page.family("error_budget_remaining_ratio", "gauge", text, left)
    counts = [({"lane": lane, "result": "good"}, float(b.budget.good)) for lane, b in budgets]
    counts += [({"lane": lane, "result": "bad"}, float(b.budget.bad)) for lane, b in budgets]
    page.family("window_requests", "gauge", "Requests within the error budget's window.", counts)
    burn = [
        ({"lane": lane, "window": format_duration(count.window_s)}, count.burn)
        for lane, b in budgets
        for count in b.windows
        if count.burn is not None
    ]
    text = "Bad requests over those allowed within a window: 1 spends just the budget; absent without requests."
    page.family("burn_rate", "gauge", text, burn)


def _write_alerts(page: MetricsPage, lanes: tuple[LaneSloReading, ...]) -> None:
    waiting = [({"lane": each.lane}, float(each.waiting)) for each in lanes if each.waiting is not None]
    text = "Requests waiting at the gateway and in the engines, as the queue-depth alert counts them."
    page.family("waiting_requests", "gauge", text, waiting)
    text = "1 in the state an alert is in: inactive, pending or firing."
    page.family("alert_state", "gauge", text, [sample for each in lanes for sample in _states(each)])


def _states(lane: LaneSloReading) -> Iterator[Sample]:
    known = {alert.name: alert.state for alert in lane.alerts}
    for name in AlertName:
        labels = {"lane": lane.lane, "alert": name.value, "severity": severity_of(name).value}
        state = known.get(name, _INACTIVE)
        for each in (_INACTIVE, *AlertState):
            yield labels | {"state": each}, float(each == state)
