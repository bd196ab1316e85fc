"""The runbooks that come with fleetctl, run one after another on a living fleet as somebody calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.fleet import lane_of
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.fleet import Home, Ran

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FLEET = "quickstart"


@pytest.fixture(scope="module")
def fleet(home: Home) -> Iterator[Home]:
    """Three replicas in the short lane, two in the long, one in the batch lane."""
    assert home.run("up", FLEET, "--port", str(free_port()), "--yes").code == 0
    yield home
    assert home.run("down", FLEET, "--yes").code == 0


def called(fleet: Home, name: str, *parameters: str, options: tuple[str, ...] = ()) -> Ran:
    given = [word for parameter in parameters for word in ("--param", parameter)]
    return fleet.run("runbook", "run", name, "--fleet", FLEET, *given, *options)


def last_run(fleet: Home) -> dict[str, Any]:
    found: dict[str, Any] = fleet.query("runbook", "history", FLEET)[-1]
    return found


def statuses(run: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["status"] for step in run["steps"]}


def test_the_weekly_report_is_written(fleet: Home) -> None:
    page = fleet.root / "slo.md"
    assert called(fleet, "weekly-slo-report", f"file={page}").code == 0
    assert "short" in page.read_text()


def test_a_lane_is_warm_before_the_peak_and_a_second_call_does_nothing(fleet: Home) -> None:
    assert called(fleet, "pre-warm", "replicas=4").code == 0
    first = last_run(fleet)
    assert statuses(first) == {"warm": "ok", "ready": "ok", "serves": "ok"}
    assert lane_of(fleet.status(FLEET), "short").ready == 4
    assert called(fleet, "pre-warm", "replicas=4").code == 0
    assert last_run(fleet)["id"] == first["id"]


def test_a_fleet_is_held_still_for_a_launch(fleet: Home) -> None:
    assert called(fleet, "freeze-for-launch", "replicas=4", "hold=1h", "reason=keynote").code == 0
    assert statuses(last_run(fleet)) == {"capacity": "skipped", "ready": "ok", "serves": "ok", "hold-still": "ok"}
    refused = fleet.run("scale", "short=5")
    assert (refused.code, "keynote" in refused.err) == (7, True)
    assert fleet.run("thaw").code == 0


@pytest.mark.parametrize(("usd", "code", "batch"), [(1000, 0, "skipped"), (1, 5, "ok")])
def test_batch_pays_first_and_somebody_hears_of_it_where_that_is_not_enough(
    usd: int, code: int, batch: str, fleet: Home
) -> None:
    ran = called(fleet, "cost-guard", f"usd_per_hour={usd}", options=("--force",))
    assert ran.code == code, ran.err
    assert statuses(last_run(fleet))["batch-pays"] == batch


def test_a_version_is_rolled_out_by_its_revision(fleet: Home) -> None:
    assert called(fleet, "rotate-engine-version", "profile=quickstart", "bake=1s", options=("--yes",)).code == 0
    assert set(statuses(last_run(fleet)).values()) == {"ok"}


def test_a_spot_storm_is_sat_out_on_demand_and_left_once_somebody_says_so(fleet: Home) -> None:
    assert called(fleet, "spot-storm", "profile=quickstart").code == 16
    assert fleet.run("runbook", "resume", last_run(fleet)["id"], "--approve").code == 0
    assert statuses(last_run(fleet)) == {"on-demand": "ok", "serves": "ok", "over": "ok", "back": "ok"}
