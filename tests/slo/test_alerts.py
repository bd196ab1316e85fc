"""Alerts over virtual days: they fire as the published table says, end soon after their cause, and neither flap nor guess."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.slo.alerts import BURN_HELD, QUEUE_HELD, AlertSignals, note_alerts, shown_alerts
from fleetctl.core.slo.budget import read_budget
from fleetctl.core.slo.burn import BURN_RULES, FAST_BURN, BurnRule
from fleetctl.core.slo.ledger import add_totals, begin
from fleetctl.model.alert import AlertName, AlertRecord, AlertState
from fleetctl.model.budget import BudgetLedger, LaneBudget, RequestTotals
from fleetctl.model.profile import Objective
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


DAY_S = 86400
OBJECTIVE = Objective(fraction=0.995, window_s=7 * DAY_S)
READING_S = 20


@dataclass(kw_only=True)
class VirtualLane:
    """A lane's days: every request is kept raw beside the ledger, and its alerts are looked at after every reading."""

    rps: float
    seed: int = 7
    restarts_every_s: int = 0  # of the gateway, and of the controller with it; 0: never
    now_s: int = 0
    raw: list[tuple[int, int, int]] = field(default_factory=list)  # when, good, bad
    alerts: tuple[AlertRecord, ...] = ()
    fired: list[tuple[AlertName, int]] = field(default_factory=list)
    ended: list[tuple[AlertName, int]] = field(default_factory=list)
    ledger: BudgetLedger | None = None
    read: LaneBudget | None = None

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._totals, self._started_s = RequestTotals(), 0

    def run(self, seconds: int, bad_share: float) -> None:
        """Let so much time pass with this share of bad requests."""
        for _ in range(seconds // READING_S):
            self._tick(bad_share)

    def _tick(self, bad_share: float) -> None:
        self.now_s += READING_S
        expected = self.rps * READING_S
        total = int(expected) + (self._chance.random() < expected % 1)
        bad = sum(self._chance.random() < bad_share for _ in range(total))
        self.raw.append((self.now_s, total - bad, bad))
        if self.restarts_every_s and self.now_s % self.restarts_every_s == 0:
            self._totals, self._started_s = RequestTotals(), self.now_s
        self._totals = RequestTotals(good=self._totals.good + total - bad, bad=self._totals.bad + bad)
        now, started_at = EPOCH + timedelta(seconds=self.now_s), EPOCH + timedelta(seconds=self._started_s)
        self.ledger = add_totals(
            self.ledger or begin(self._totals, gateway_started_at=started_at, now=now),
            self._totals,
            gateway_started_at=started_at,
            now=now,
            window_s=OBJECTIVE.window_s,
            objective=OBJECTIVE.fraction,
        )
        self.read = read_budget(self.ledger, OBJECTIVE, now)
        self.alerts, fired, ended = note_alerts(self.alerts, AlertSignals(budget=self.read), now)
        self.fired += [(record.name, self.now_s) for record in fired]
        self.ended += [(record.name, self.now_s) for record in ended]

    def raw_burn(self, window_s: float, at_s: int) -> float:
        """Return a window's burn rate by the raw requests alone."""
        found = [(good, bad) for when, good, bad in self.raw if at_s - window_s < when <= at_s]
        total, bad = sum(g + b for g, b in found), sum(b for _, b in found)
        return bad / total / (1.0 - OBJECTIVE.fraction) if total else 0.0


@pytest.mark.parametrize("restarts_every_s", [0, 600])
@pytest.mark.parametrize("bad_share", [0.1, 0.3, 1.0])
def test_the_page_comes_when_the_workbooks_formula_says_and_goes_soon_after_its_cause(
    bad_share: float, restarts_every_s: int
) -> None:
    lane = VirtualLane(rps=20, restarts_every_s=restarts_every_s)
    lane.run(5400, 0.0)
    begun_s = lane.now_s
    lane.run(3600, bad_share)
    # Detection takes the share of the window that is as bad as the whole window may be, and the hold.
    detected_s = FAST_BURN.rate * (1.0 - OBJECTIVE.fraction) / bad_share * FAST_BURN.long_s
    expected_s = begun_s + detected_s + BURN_HELD.total_seconds()
    pages = [at_s for name, at_s in lane.fired if name is AlertName.FAST_BURN]
    assert len(pages) == 1
    # A bucket of the long window, a reading, and what chance does to so many requests.
    assert pages[0] == pytest.approx(expected_s, abs=60 + READING_S + 0.1 * detected_s)
    over_s = lane.now_s
    lane.run(1800, 0.0)
    ends = [at_s for name, at_s in lane.ended if name is AlertName.FAST_BURN]
    assert len(ends) == 1
    assert ends[0] - over_s <= FAST_BURN.short_s + BURN_HELD.total_seconds() + 2 * READING_S


def test_an_hour_at_just_the_page_rate_spends_its_share_of_the_budget() -> None:
    lane = VirtualLane(rps=50)
    lane.run(3600, FAST_BURN.rate * (1.0 - OBJECTIVE.fraction))
    assert lane.read is not None
    in_the_hour = lane.read.over(3600.0)
    week_allows = 50 * OBJECTIVE.window_s * (1.0 - OBJECTIVE.fraction)
    assert in_the_hour.bad / week_allows == pytest.approx(FAST_BURN.budget_share(OBJECTIVE), rel=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_every_alert_of_two_rough_days_stands_on_the_raw_requests(seed: int) -> None:
    chance = random.Random(seed)
    lane = VirtualLane(rps=2, seed=seed, restarts_every_s=1800)
    for _ in range(30):
        calm_s, incident_s = chance.choice([600, 1800, 7200]), chance.choice([60, 300, 1200])
        lane.run(calm_s, chance.choice([0.0, 0.001]))
        lane.run(incident_s, chance.choice([0.02, 0.2, 1.0]))
    for name, at_s in lane.fired:
        rule = next(rule for rule in BURN_RULES if rule.name is name)
        for window_s in (rule.long_s, rule.short_s):
            assert highest_burn_near(lane, rule, window_s, at_s) > rule.rate
    fast = [at_s for name, at_s in lane.fired if name is AlertName.FAST_BURN]
    assert fast, "a rough day pages somebody"
    ended = [at_s for name, at_s in lane.ended if name is AlertName.FAST_BURN]
    # Once a firing, and never again before it ended: no two within twice the hold.
    for first, second in itertools.pairwise(fast):
        assert second - first >= 2 * BURN_HELD.total_seconds()
        assert any(first < at_s <= second for at_s in ended)
    assert lane.read is not None
    whole = [(good, bad) for _, good, bad in lane.raw]
    assert (lane.read.budget.good, lane.read.budget.bad) == (sum(g for g, _ in whole), sum(b for _, b in whole))


def highest_burn_near(lane: VirtualLane, rule: BurnRule, window_s: float, at_s: int) -> float:
    """Return the raw burn rate of the window as the ledger may read it: it begins up to one bucket later."""
    begins = (0.0, 0.01, 0.02, 0.034)
    assert rule.rate > 0
    return max(lane.raw_burn(window_s * (1.0 - late), at_s) for late in begins)


def test_every_window_is_what_the_raw_requests_say() -> None:
    lane = VirtualLane(rps=5, restarts_every_s=3600)
    lane.run(4 * 3600, 0.01)
    lane.run(1800, 0.3)
    lane.run(1800, 0.0)
    assert lane.read is not None
    for window in lane.read.windows:
        assert window.burn is not None
        exact = [lane.raw_burn(window.window_s * (1.0 - late / 100.0), lane.now_s) for late in range(4)]
        assert min(exact) * 0.97 <= window.burn <= max(exact) * 1.03


def test_a_quiet_lane_alerts_nobody_over_one_bad_request() -> None:
    lane = VirtualLane(rps=0.01)
    lane.run(7200, 0.0)
    lane.run(200, 1.0)
    lane.run(3600, 0.0)
    assert lane.fired == []


def test_a_condition_that_comes_and_goes_is_one_alert() -> None:
    def deep(at_s: int) -> int:
        return 30 if at_s < 300 and at_s % 60 < 40 else 3

    looks = list(queue_looks(deep, until_s=400))
    assert [at_s for at_s, fired, _ in looks if fired] == [30]
    assert [at_s for at_s, _, ended in looks if ended] == [280 + QUEUE_HELD.total_seconds()]


def test_a_queue_that_is_deep_for_less_than_half_a_minute_warns_nobody() -> None:
    assert not any(fired for _, fired, _ in queue_looks(lambda at_s: 99 if at_s % 60 < 29 else 0, until_s=600))


def test_while_the_queue_is_not_known_its_alert_stays_as_it_is() -> None:
    known, _, _ = note_alerts((), AlertSignals(waiting=25), EPOCH)
    later = EPOCH + timedelta(seconds=31)
    firing, fired, _ = note_alerts(known, AlertSignals(waiting=25), later)
    assert [record.name for record in fired] == [AlertName.QUEUE_DEPTH]
    blind, _, ended = note_alerts(firing, AlertSignals(), later + timedelta(hours=1))
    assert (blind, ended) == (firing, ())
    shown = shown_alerts(firing, AlertSignals(waiting=26), is_live=True)[0]
    assert (shown.state, shown.since, shown.message) == (AlertState.FIRING, EPOCH, "26 requests waiting (> 24)")


def queue_looks(
    waiting: Callable[[int], int], *, until_s: int
) -> Iterator[tuple[int, tuple[AlertRecord, ...], tuple[AlertRecord, ...]]]:
    """Yield what each second's look at a queue of this depth fires and ends."""
    alerts: tuple[AlertRecord, ...] = ()
    for at_s in range(until_s):
        now = EPOCH + timedelta(seconds=at_s)
        alerts, fired, ended = note_alerts(alerts, AlertSignals(waiting=waiting(at_s)), now)
        yield at_s, fired, ended
