"""Budgets, burn rates and alerts on the metrics page."""

from __future__ import annotations

from datetime import timedelta

from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from fleetctl import codec
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.gateway import admin
from fleetctl.gateway.metrics import BreachCounters
from fleetctl.gateway.slo_gauges import SloGauges
from fleetctl.model.alert import Alert, AlertName, AlertSeverity, AlertState
from fleetctl.model.budget import ErrorBudget, LaneBudget, RequestCount
from fleetctl.model.slo import BreachKind, LaneSlo
from fleetctl.model.slo_feed import LaneSloReading, SloFeed
from fleetctl.telemetry.page import MetricsPage
from fleetctl.testing.samples import EPOCH
from tests.gateway.rig import GatewayRig
from tests.ports import free_port

WEEK_S = 604800.0
BUDGET = LaneBudget(
    objective=0.995,
    budget=ErrorBudget(window_s=WEEK_S, since=EPOCH, good=980, bad=20, left=-3.0),
    windows=(
        RequestCount(window_s=300.0, good=80, bad=20, allowed=0.5),
        RequestCount(window_s=1800.0),
    ),
)
BURNING = Alert(
    name=AlertName.FAST_BURN,
    severity=AlertSeverity.PAGE,
    state=AlertState.FIRING,
    since=EPOCH - timedelta(minutes=5),
    message="",
)
FEED = SloFeed(
    at_s=1000.0,
    objective=0.995,
    window_s=WEEK_S,
    lanes=(
        LaneSloReading(lane="chat", budget=BUDGET, waiting=7, alerts=(BURNING,)),
        LaneSloReading(lane="young"),
    ),
)


def samples(page: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return the page's samples by name, each by its labels without the fleet's."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("fleet") == "rig"
            found.setdefault(sample.name, {})[frozenset(labels.items())] = sample.value
    return found


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


def written(gauges: SloGauges, now_s: float) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    page = MetricsPage("fleetctl_slo_", fleet="rig")
    gauges.write(page, now_s)
    return samples(page.text())


def test_each_figure_is_the_controllers_and_what_is_not_known_is_absent() -> None:
    gauges = SloGauges(lambda: 0.0)
    gauges.take(FEED)
    found = written(gauges, 5.0)
    assert found["fleetctl_slo_evaluated_timestamp_seconds"] == {labels(): 1000.0}
    assert found["fleetctl_slo_objective_ratio"] == {labels(): 0.995}
    assert found["fleetctl_slo_window_seconds"] == {labels(): WEEK_S}
    assert found["fleetctl_slo_error_budget_remaining_ratio"] == {labels(lane="chat"): -3.0}
    assert found["fleetctl_slo_burn_rate"] == {labels(lane="chat", window="5m"): 40.0}
    assert found["fleetctl_slo_window_requests"] == {
        labels(lane="chat", result="good"): 980.0,
        labels(lane="chat", result="bad"): 20.0,
    }
    assert found["fleetctl_slo_waiting_requests"] == {labels(lane="chat"): 7.0}


def test_an_alert_is_in_exactly_one_state() -> None:
    gauges = SloGauges(lambda: 0.0)
    gauges.take(FEED)
    states = written(gauges, 5.0)["fleetctl_slo_alert_state"]
    assert len(states) == 2 * len(AlertName) * 3
    in_force = {tuple(sorted(dict(key).items())) for key, value in states.items() if value == 1.0}
    assert len(in_force) == 2 * len(AlertName)
    firing = [dict(key) for key in in_force if dict(key)["state"] == "firing"]
    assert firing == [{"alert": "fast-burn", "lane": "chat", "severity": "page", "state": "firing"}]


def test_old_readings_are_not_shown_and_their_time_says_why() -> None:
    gauges = SloGauges(lambda: 100.0)
    assert written(gauges, 100.0) == {}
    gauges.take(FEED)
    assert "fleetctl_slo_burn_rate" in written(gauges, 160.0)
    assert set(written(gauges, 160.1)) == {"fleetctl_slo_evaluated_timestamp_seconds"}


async def test_the_controller_puts_them_and_the_public_page_has_them() -> None:
    port = free_port()
    async with GatewayRig() as rig:
        runner = web.AppRunner(admin.app(rig.frontend))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        url = f"http://127.0.0.1:{port}/v1/slo"
        async with rig.http.put(url, data=codec.encode(FEED)) as response:
            assert response.status == 200
        async with rig.http.put(url, data=b"{}") as response:
            assert response.status == 400
        page = (await rig.get("/metrics")).body.decode()
        await runner.cleanup()
    assert samples(page)["fleetctl_slo_error_budget_remaining_ratio"] == {labels(lane="chat"): -3.0}


def test_a_breach_that_is_uncounted_takes_no_counter_down() -> None:
    accounts, counters = LaneAccounts(LaneSlo(targets=()), now_s=0.0), BreachCounters()
    assert counters.breaches("chat", accounts) == {kind.value: 0 for kind in BreachKind}
    accounts.missed(1.0, BreachKind.TTFT)
    accounts.missed(1.0, BreachKind.TTFT)
    assert counters.breaches("chat", accounts)["ttft"] == 2
    accounts.take_back(1.0, BreachKind.TTFT)
    assert counters.breaches("chat", accounts)["ttft"] == 2
    accounts.missed(2.0, BreachKind.TTFT)
    assert counters.breaches("chat", accounts)["ttft"] == 2
    accounts.missed(2.0, BreachKind.TTFT)
    assert counters.breaches("chat", accounts)["ttft"] == 3
    assert counters.breaches("chat", LaneAccounts(LaneSlo(targets=()), now_s=0.0))["ttft"] == 0
