"""The client's own accounts of every lane: the gateway's stopwatches, windows and judge, fed by what the client sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.judge import judge_live, judge_run
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.model.gateway import LaneSnapshot
from fleetctl.model.slo import LaneSlo, Metric
from fleetctl.model.verdict import BreachRecord, SloVerdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

UNNAMED_LANE = "-"  # no answer named its lane
_LANES_MAX = 64  # lane names come from the other side
_NO_SLO = LaneSlo(targets=())  # what ends under no lane is held to the objective alone


class ClientAccounts:
    """Every lane's accounts. Without any SLO nothing is judged."""

    def __init__(self, slos: Mapping[str, LaneSlo], *, objective: float, now_s: float) -> None:
        self._slos = {name: _seen_by_clients(slo) for name, slo in slos.items()}
        self._objective = objective
        self._start_s = now_s
        self._lanes: dict[str, LaneAccounts] = {}
        self._breaches: dict[str, BreachRecord | None] = {}
        self._open: dict[RequestStopwatch, bool] = {}  # -> whether it is a stream

    def lane_name(self, lane: str) -> str:
        """Return the name a lane is counted under."""
        name = lane or UNNAMED_LANE
        return name if name in self._lanes or len(self._lanes) < _LANES_MAX else UNNAMED_LANE

    def begin(self, lane: str, started_s: float, *, is_stream: bool) -> RequestStopwatch:
        """Return the stopwatch of a request of this lane, which was sent at `started_s`."""
        watch = RequestStopwatch(self._accounts(lane), started_s)
        self._open[watch] = is_stream
        return watch

    def close(self, watch: RequestStopwatch) -> None:
        """Forget a request that is over."""
        self._open.pop(watch, None)

    def check(self, now_s: float) -> None:
        """Count those that are late already."""
        for watch, is_stream in self._open.items():
            watch.check(now_s, is_stream=is_stream)

    def live(self, now_s: float, now: datetime) -> dict[str, SloVerdict]:
        """Return every lane's verdict now, as the fleet's own status has it."""
        if not self._slos:
            return {}
        self.check(now_s)
        found = {}
        for name, lane in self._lanes.items():
            snapshot = LaneSnapshot(name=name, in_flight=0, queued=0, oldest_wait_s=0.0, windows=lane.snapshot(now_s))
            before = self._breaches.get(name)
            found[name] = judge_live(snapshot, objective=self._objective, before=before, now=now)
            self._breaches[name] = found[name].record
        return found

    def stats(self, lane: str, now_s: float) -> LaneStats:
        """Return everything counted of a lane since the start."""
        found = self._lanes.get(lane)
        if found is None:
            return LaneStats()
        found.fold(now_s)
        return found.windows.lifetime()

    def whole(self, lane: str, now_s: float) -> SloVerdict:
        """Return the verdict on a lane's whole run."""
        slo = self._slos.get(lane, _NO_SLO)
        return self._judged(self.stats(lane, now_s), slo, now_s)

    def total(self, now_s: float) -> tuple[LaneStats, SloVerdict]:
        """Return all lanes as one, and the verdict on the share of good requests among them."""
        stats = LaneStats()
        for lane in self._lanes:
            stats.merge(self.stats(lane, now_s))
        return stats, self._judged(stats, _NO_SLO, now_s)

    def _judged(self, stats: LaneStats, slo: LaneSlo, now_s: float) -> SloVerdict:
        if not self._slos:
            return SloVerdict()
        return judge_run(stats.window(now_s - self._start_s, slo), objective=self._objective)

    def _accounts(self, lane: str) -> LaneAccounts:
        name = self.lane_name(lane)
        if name not in self._lanes:
            self._lanes[name] = LaneAccounts(self._slos.get(name, _NO_SLO), now_s=self._start_s)
        return self._lanes[name]


def _seen_by_clients(slo: LaneSlo) -> LaneSlo:
    """Return the promises a client can measure: the wait in the gateway's queue is hidden from it."""
    return LaneSlo(targets=tuple(target for target in slo.targets if target.metric is not Metric.QUEUE_WAIT))
