"""The client's own accounts of every lane: the gateway's stopwatches, windows and judge, fed by what the client sees."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.dispersion import ArrivalCounts
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.breach import Limits
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import judge_live, judge_run
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.model.tiers import slo_of
from fleetctl.model.verdict import BreachRecord, Compliance, SloVerdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from fleetctl.model.slo import BreachKind
    from fleetctl.model.tiers import TierSpec
    from fleetctl.model.traffic import ArrivalBurst, Dispersion

UNNAMED_LANE = "-"  # no answer named its lane
_LANES_MAX = 64  # lane names come from the other side
_NO_SLO = LaneSlo(targets=())  # a lane that the fleet's profile does not have is held to the objective alone


class ClientStopwatch(RequestStopwatch):
    """A request's times, which may move to another lane's accounts when its answer names one."""

    __slots__ = ("_miss_found", "accounts", "is_stream", "lane", "tier")

    def __init__(self, lane: str, tier: str, accounts: LaneAccounts, started_s: float, *, is_stream: bool) -> None:
        super().__init__(accounts, started_s)
        self.lane = lane
        self.tier = tier
        self.accounts = accounts
        self.is_stream = is_stream
        self._miss_found: tuple[float, BreachKind] | None = None  # when, and what

    @property
    def has_missed(self) -> bool:
        """Whether it was counted as missed before its end."""
        return self._miss_found is not None

    def take_back(self) -> None:
        """Uncount what was found of it."""
        if self._miss_found is not None:
            self.accounts.take_back(*self._miss_found)
            self._miss_found = None

    def _miss(self, now_s: float, kind: BreachKind) -> None:
        if self._miss_found is None:
            self._miss_found = now_s, kind
            super()._miss(now_s, kind)


class ClientAccounts:
    """Every lane's accounts. Without any SLO nothing is judged."""

    def __init__(
        self,
        slos: Mapping[str, LaneSlo],
        *,
        objective: float,
        now_s: float,
        tiers: Sequence[TierSpec] = (),
        planned: Mapping[str, Dispersion] | None = None,
    ) -> None:
        self._slos = {name: _seen_by_clients(slo) for name, slo in slos.items()}
        self.promised = tuple(self._slos.values())  # of every lane, as far as a client can see it
        if slos:
            self._slos = {UNNAMED_LANE: _loosest(self.promised), **self._slos}
        self._tiers = {tier.name: tier for tier in tiers}
        self._limits: dict[tuple[str, str], Limits] = {}  # by lane and tier
        self._objective = objective
        self._start_s = now_s
        self._lanes: dict[str, LaneAccounts] = {}
        self._arrivals: dict[str, ArrivalCounts] = {}
        self._planned = planned or {}  # how bursty each lane's arrivals are planned to be
        self._breaches: dict[str, BreachRecord | None] = {}
        self._undecided: Counter[str] = Counter()  # by lane: cut short before they were good or missed
        self._open: set[ClientStopwatch] = set()

    def lane_name(self, lane: str) -> str:
        """Return the name a lane is counted under."""
        name = lane or UNNAMED_LANE
        return name if name in self._lanes or len(self._lanes) < _LANES_MAX else UNNAMED_LANE

    def begin(self, lane: str, started_s: float, *, is_stream: bool, tier: str = "") -> ClientStopwatch:
        """Return the stopwatch of a request of this lane and tier, which was sent at `started_s`.

        Empty: none is known yet. Until an answer names them it may wait as long as the most patient lane and tier allow.
        """
        name = self.lane_name(lane)
        watch = ClientStopwatch(name, tier, self._accounts(name), started_s, is_stream=is_stream)
        if self._tiers and self._slos:
            watch.hold_to(self._limits_of(name, tier))
        self._open.add(watch)
        return watch

    def named(self, watch: ClientStopwatch, lane: str, tier: str = "") -> ClientStopwatch:
        """Return the stopwatch to go on with, now that an answer has begun and named its lane, and its tier if it has one."""
        if (self.lane_name(lane), tier) == (watch.lane, watch.tier):
            return watch
        watch.take_back()
        self._open.discard(watch)
        return self.begin(lane, watch.started_s, is_stream=watch.is_stream, tier=tier)

    def end(
        self,
        watch: ClientStopwatch,
        now_s: float,
        ending: Ending,
        *,
        is_stream: bool,
        output_tokens: int = 0,
        message: str,
    ) -> None:
        """Count a request that is over; one that was cut short inside every limit is undecided.

        `output_tokens` are as the engine counts them; 0: it did not.
        """
        self._open.discard(watch)
        if ending is Ending.REFUSED:
            watch.refused(now_s, message)
            return
        missed = watch.accounts.bad
        uncounted = output_tokens - watch.token_count if output_tokens else 0
        watch.stop(now_s, ending, is_stream=is_stream, prompt_tokens=0, output_tokens_uncounted=uncounted)
        has_missed = watch.has_missed or watch.accounts.bad > missed
        if ending is Ending.CANCELLED and not has_missed:
            self._undecided[watch.lane] += 1

    def offered(self, lane: str, due_s: float) -> None:
        """Count a request among its lane's arrivals, when it was due."""
        counts = self._arrivals.setdefault(self.lane_name(lane), ArrivalCounts())
        counts.add(max(0.0, due_s - self._start_s))

    def burst(self, lane: str, duration_s: float) -> ArrivalBurst:
        """Return how bursty a lane's arrivals of the first `duration_s` were, beside what it is planned for."""
        counts = self._arrivals.get(lane, ArrivalCounts())
        return counts.burst(duration_s, self._planned.get(lane))

    def total_burst(self, duration_s: float) -> ArrivalBurst:
        """Return how bursty all arrivals were; plans say it by lane alone."""
        whole = ArrivalCounts()
        for counts in self._arrivals.values():
            whole.merge(counts)
        return whole.burst(duration_s)

    def check(self, now_s: float) -> None:
        """Count those that are late already."""
        for watch in self._open:
            watch.check(now_s, is_stream=watch.is_stream)

    def live(self, now_s: float, now: datetime) -> dict[str, SloVerdict]:
        """Return every lane's verdict now, as the fleet's own status has it."""
        if not self._slos:
            return {}
        self.check(now_s)
        found = {}
        windows = {name: lane.snapshot(now_s) for name, lane in self._lanes.items()}
        if UNNAMED_LANE in windows:
            good = [sum(w.good for w in same) for same in zip(*windows.values(), strict=True)]
            windows[UNNAMED_LANE] = tuple(map(_with_good, windows[UNNAMED_LANE], good))
        for name in self._lanes:
            snapshot = LaneSnapshot(name=name, in_flight=0, queued=0, oldest_wait_s=0.0, windows=windows[name])
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
        if lane == UNNAMED_LANE and self._slos:
            return self._unnamed(now_s)
        slo = self._slos.get(lane, _NO_SLO)
        return self._judged(self.stats(lane, now_s), slo, now_s, undecided=self._undecided[lane])

    def _unnamed(self, now_s: float) -> SloVerdict:
        """Judge what no answer named a lane for among everything that was good.

        What is answered well has a lane, so these alone would look like a lane in which everything fails, however few they are.
        """
        good = sum(self.stats(lane, now_s).good for lane in self._lanes)
        stats, undecided = self.stats(UNNAMED_LANE, now_s), self._undecided[UNNAMED_LANE]
        window = stats.window(now_s - self._start_s, self._slos[UNNAMED_LANE])
        among = judge_run(_with_good(window, good), objective=self._objective, undecided=undecided)
        own = replace(among, good=stats.good, offered=among.offered - good + stats.good)
        is_few = own.compliance is Compliance.KEPT and (own.attained or 0.0) < self._objective
        return replace(own, compliance=Compliance.NONE) if is_few else own

    def total(self, now_s: float) -> tuple[LaneStats, SloVerdict]:
        """Return all lanes as one, and the verdict on the share of good requests among them."""
        stats, windows = LaneStats(), []
        for lane in self._lanes:
            own = self.stats(lane, now_s)
            stats.merge(own)
            windows.append(own.window(now_s - self._start_s, self._slos.get(lane, _NO_SLO)))
        if not self._slos:
            return stats, SloVerdict()
        # What one lane may refuse covers nothing of another's.
        covered, judged = sum(each.covered for each in windows), sum(each.judged for each in windows)
        shed = sum(each.shed_share * each.judged for each in windows) / judged if judged else 0.0
        whole = msgspec.structs.replace(stats.window(now_s - self._start_s, _NO_SLO), covered=covered, shed_share=shed)
        return stats, judge_run(whole, objective=self._objective, undecided=self._undecided.total())

    def _judged(self, stats: LaneStats, slo: LaneSlo, now_s: float, *, undecided: int) -> SloVerdict:
        if not self._slos:
            return SloVerdict()
        window = stats.window(now_s - self._start_s, slo)
        return judge_run(window, objective=self._objective, undecided=undecided)

    def _limits_of(self, lane: str, tier: str) -> Limits:
        """Return what a lane promises to a tier; the loosest of those that it may be of, where either is not known."""
        found = self._limits.get((lane, tier))
        if found is None:
            own, one = self._slos.get(lane, _NO_SLO), self._tiers.get(tier)
            lanes = self.promised if lane == UNNAMED_LANE else (own,)
            promised = [slo_of(slo, each) for slo in lanes for each in ([one] if one else self._tiers.values())]
            is_known = one is not None and lane != UNNAMED_LANE
            # Lanes and tiers of other names come from the other side: of those nothing is kept.
            found = Limits.of(promised[0] if is_known else _loosest(promised))
            if lane in self._slos and (is_known or not tier):
                self._limits[lane, tier] = found
        return found

    def _accounts(self, name: str) -> LaneAccounts:
        if name not in self._lanes:
            self._lanes[name] = LaneAccounts(self._slos.get(name, _NO_SLO), now_s=self._start_s)
        return self._lanes[name]


def _seen_by_clients(slo: LaneSlo) -> LaneSlo:
    """Return the promises a client can measure: the wait in the gateway's queue is hidden from it."""
    return replace(slo, targets=tuple(target for target in slo.targets if target.metric is not Metric.QUEUE_WAIT))


def _with_good(window: LaneWindow, good: int) -> LaneWindow:
    return msgspec.structs.replace(window, good=good)


def _loosest(slos: Collection[LaneSlo]) -> LaneSlo:
    """Return the loosest limit of any lane on the first token and on the whole answer, where any lane has one."""
    targets: list[LatencyTarget] = []
    for metrics in ({Metric.TTFT}, {Metric.E2E, Metric.COMPLETION}):
        found = [target for slo in slos for metric in metrics if (target := slo.strictest(metric)) is not None]
        targets.extend(sorted(found, key=lambda target: target.limit_s)[-1:])
    return LaneSlo(targets=tuple(targets))
