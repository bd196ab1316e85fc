from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.errors import SloBreachError, UnavailableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations.service_check import check_service
from tests.tui.fleets import busy, calm


def test_a_fleet_without_traffic_is_well():
    check_service([calm()])
    check_service([])


def test_a_breach_is_told_with_its_lane_and_reason():
    with pytest.raises(SloBreachError, match=r"demo: long: for 45s: ttft P99 2.41s > 2s \(1.2x\) over 60s") as caught:
        check_service([calm(), busy()])
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controller_alive": False}, "the controller, process 4242, does not answer"),
        ({"gateway_alive": False}, "the gateway does not answer"),
        ({"phase": DesiredPhase.DOWN}, "replicas still hold a node"),
        ({"lanes": (replace(calm().lanes[0], ready=0),)}, "short: none of 2 replicas is ready"),
    ],
)
def test_what_is_silent_is_not_known_to_be_well(changes, message):
    with pytest.raises(UnavailableError, match=message) as caught:
        check_service([replace(calm(), **changes)])
    assert caught.value.exit_code == 9


def test_a_known_breach_comes_before_what_is_not_known():
    with pytest.raises(SloBreachError):
        check_service([replace(calm(), controller_alive=False), busy()])
