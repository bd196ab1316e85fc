"""The report on a fleet's promises, from what is stored and what is live."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from fleetctl.core.slo.ledger import add_totals, begin
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.action import EntryKind
from fleetctl.model.budget import BudgetLedger, RequestTotals
from fleetctl.model.journal import JournalEntry
from fleetctl.model.profile import Objective
from fleetctl.model.subject import GATEWAY, Subject
from fleetctl.operations.fleets import status
from fleetctl.operations.slo_report import burn_rules, slo_report
from fleetctl.views.slo import slo_markdown
from fleetctl.views.slo_page import requests_by_hour, slo_page

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.operations.site import Site
    from fleetctl.state.sqlite import SqliteStore
    from fleetctl.testing.clocks import ManualClock
    from fleetctl.testing.host import FakeHost

WEEK_S = 7 * 86400.0


def counted(now: datetime, hours: dict[int, tuple[int, int]], *, objective: float = 0.995) -> BudgetLedger:
    """Return a ledger whose gateway counted these (good, bad) so many hours ago, the bad ones late."""
    totals, ledger, started_at = RequestTotals(), None, now - timedelta(days=6)
    for ago, (good, bad) in sorted(hours.items(), reverse=True):
        kinds = {"ttft": totals.bad + bad} if totals.bad + bad else {}
        totals = RequestTotals(good=totals.good + good, bad=totals.bad + bad, kinds=kinds)
        at = now - timedelta(hours=ago)
        ledger = add_totals(
            ledger or begin(RequestTotals(), gateway_started_at=started_at, now=at - timedelta(hours=1)),
            totals,
            gateway_started_at=started_at,
            now=at,
            window_s=WEEK_S,
            objective=objective,
        )
    assert ledger is not None
    return ledger


@pytest.fixture
def rough_fleet(store: SqliteStore, fleet: str, clock: ManualClock) -> str:
    """A fleet with two days behind it: an incident ten hours ago, a smaller one thirty hours ago, and a lane that went."""
    clock.jump(timedelta(hours=48).total_seconds())
    now = clock.now()
    store.put_ledgers(
        fleet,
        {
            "short": counted(now, {40: (5000, 0), 30: (970, 30), 10: (900, 100), 1: (4000, 0)}),
            "gone": counted(now, {20: (10, 1)}),
        },
    )
    at = now - timedelta(hours=10)
    line = JournalEntry(
        seq=0,
        at=at,
        fleet=fleet,
        kind=EntryKind.DECISION,
        subject=Subject.lane("short"),
        action="launch",
        reason="late",
    )
    store.append((
        line,
        replace(line, action="set-step", reason="spill"),
        replace(line, action="launch", shadow=True, reason="would"),
        replace(line, subject=GATEWAY, kind=EntryKind.GATEWAY, action="start-gateway", reason="silent"),
        replace(line, subject=Subject.lane("long"), reason="another lane's"),
        replace(line, at=at - timedelta(hours=3), reason="another hour's"),
    ))  # fmt: skip
    return fleet


def test_it_says_what_was_kept_and_what_was_done_in_the_worst_hours(
    site: Site, rough_fleet: str, clock: ManualClock
) -> None:
    report = slo_report(site, rough_fleet)
    short = next(lane for lane in report.lanes if lane.lane == "short")
    assert (short.good, short.bad, short.kinds) == (10870, 130, {"ttft": 130})
    assert short.attainment == pytest.approx(10870 / 11000)
    assert short.budget is not None
    assert short.budget.left == pytest.approx(1.0 - 130 / (11000 * 0.005))
    worst, next_worst = short.worst_hours
    assert (worst.bad, worst.good, next_worst.bad) == (100, 900, 30)
    assert worst.budget_share == pytest.approx(100 / 55)
    assert worst.start <= clock.now() - timedelta(hours=10) < worst.start + timedelta(hours=1)
    assert worst.actions == {"launch": 1, "set-step": 1, "start-gateway": 1}
    assert [entry.reason for entry in worst.decisions] == ["late", "spill", "silent"]
    assert not report.is_live


def test_a_shorter_report_counts_less_and_the_budget_is_the_same(site: Site, rough_fleet: str) -> None:
    day, week = slo_report(site, rough_fleet, timedelta(days=1)), slo_report(site, rough_fleet)
    assert (day.lanes[0].bad, week.lanes[0].bad) == (100, 130)
    assert day.lanes[0].budget == week.lanes[0].budget
    assert len(day.lanes[0].worst_hours) == 1


def test_all_figures_of_a_lane_are_of_one_reading(site: Site, host: FakeHost, rough_fleet: str) -> None:
    """The controller has counted more by then than it has stored."""
    stored = slo_report(site, rough_fleet).lanes[0]
    assert stored.budget is not None
    seen = status(site, rough_fleet)
    first = seen.lanes[0]
    assert first.budget is not None
    later = replace(first, budget=replace(first.budget, good=11_000, bad=900, left=-7.0), burn={"1h": 99.0})
    host.controllers[rough_fleet] = lambda: replace(seen, lanes=(later, *seen.lanes[1:]), controller_alive=True)
    short = slo_report(site, rough_fleet).lanes[0]
    assert short.budget is not None
    assert (short.budget.good, short.budget.bad, short.budget.left) == (short.good, short.bad, stored.budget.left)
    assert short.burn == stored.burn


def test_a_lane_that_left_the_profile_is_named_with_its_requests(site: Site, rough_fleet: str) -> None:
    gone = slo_report(site, rough_fleet).lanes[-1]
    assert (gone.lane, gone.is_removed, gone.good, gone.bad) == ("gone", True, 10, 1)


def test_a_lane_without_a_request_has_no_attainment(site: Site, rough_fleet: str) -> None:
    long = next(lane for lane in slo_report(site, rough_fleet).lanes if lane.lane == "long")
    assert (long.attainment, long.budget, long.worst_hours) == (None, None, ())


@pytest.mark.parametrize(
    ("since", "message"), [(timedelta(days=8), "requests are kept for 7d"), (timedelta(0), "--since is more than 0s")]
)
def test_longer_than_anything_is_kept_and_no_time_at_all_are_refused(
    site: Site, rough_fleet: str, since: timedelta, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        slo_report(site, rough_fleet, since)


def test_the_report_on_no_fleet_is_not_found(site: Site) -> None:
    with pytest.raises(NotFoundError):
        slo_report(site, "nope")


def test_a_rule_that_can_never_fire_is_said_so() -> None:
    fast, medium, slow = burn_rules(Objective(fraction=0.9))
    assert fast.never_fires == "a burn of 14.4x is impossible at 0.9: all requests bad is 10x"
    assert (medium.never_fires, slow.never_fires) == ("", "")


def test_the_page_to_send_holds_it_all(site: Site, rough_fleet: str) -> None:
    page = slo_markdown(slo_report(site, rough_fleet))
    assert page.startswith(f"# SLO of {rough_fleet}: ")
    assert "No controller answers" in page
    assert "- short: 130 ttft" in page
    assert "1 launch, 1 set-step, 1 start-gateway" in page
    assert "fast-burn (page): burn over 14.4x, over 1h and 5m: 8.6% of the budget within 1h" in page


def test_the_html_page_holds_it_all_and_needs_nothing_else(site: Site, rough_fleet: str) -> None:
    report = slo_report(site, rough_fleet)
    short = report.lanes[0]
    page = slo_page(replace(report, lanes=(replace(short, lane="<b>&"), *report.lanes[1:])))
    assert page.startswith("<!doctype html>")
    assert f"<h1>SLO of {rough_fleet}</h1>" in page
    assert "No controller answers" in page
    assert "&lt;b&gt;&amp;: 130 ttft" in page
    assert "1 launch, 1 set-step, 1 start-gateway" in page
    assert "<b>" not in page
    assert not re.findall(r"<script|<link|<img|https?:", page)
    assert page.count("<svg") == 4
    ElementTree.fromstring(page.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', ""))  # noqa: S314  # our own page


def test_its_plot_has_every_hour_from_the_first(site: Site, rough_fleet: str) -> None:
    short = slo_report(site, rough_fleet).lanes[0]
    assert [(hour.good, hour.bad) for hour in short.hours] == [(5000, 0), (970, 30), (900, 100), (4000, 0)]
    good, bad = requests_by_hour(short)
    assert len(good.values) == len(bad.values) == 40
    assert (good.values[0], bad.values[10], bad.values[30], sum(bad.values)) == (5000.0, 30.0, 100.0, 130.0)


def test_what_a_former_fleet_of_the_name_did_is_not_this_ones(
    site: Site, store: SqliteStore, fleet: str, clock: ManualClock
) -> None:
    born = clock.now()
    former = JournalEntry(
        seq=0,
        at=born - timedelta(seconds=1),
        fleet=fleet,
        kind=EntryKind.DECISION,
        subject=Subject.lane("short"),
        action="launch",
        reason="in the same hour, before this fleet was there",
    )
    store.append((former, replace(former, at=born, reason="this fleet's")))
    store.put_ledgers(fleet, {"short": counted(born, {0: (0, 100)})})
    (short, *_) = slo_report(site, fleet).lanes
    (hour,) = short.worst_hours
    assert hour.actions == {"launch": 1}
    assert [entry.reason for entry in hour.decisions] == ["this fleet's"]
