from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.errors import SloBreachError, UnavailableError
from fleetctl.model.alert import Alert, AlertName, AlertSeverity, AlertState
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations.service_check import check_service
from fleetctl.testing.samples import EPOCH
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


def test_an_alert_that_pages_somebody_is_no_service_inside_the_slo_and_a_ticket_is():
    fast = Alert(
        name=AlertName.FAST_BURN, severity=AlertSeverity.PAGE, state=AlertState.FIRING, since=EPOCH, message="burns 20x"
    )
    alerted = replace(calm(), lanes=(replace(calm().lanes[0], alerts=(fast,)),))
    with pytest.raises(SloBreachError, match=r"demo: short: alert fast-burn \(page\) since .*: burns 20x"):
        check_service([alerted])
    ticket = replace(fast, name=AlertName.SLOW_BURN, severity=AlertSeverity.TICKET)
    check_service([replace(calm(), lanes=(replace(calm().lanes[0], alerts=(ticket,)),))])
    check_service(
        [replace(calm(), lanes=(replace(calm().lanes[0], alerts=(replace(fast, state=AlertState.PENDING),)),))]
    )
    with pytest.raises(UnavailableError):
        check_service([replace(alerted, controller_alive=False)])
