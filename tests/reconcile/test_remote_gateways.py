"""Gateways that somebody else starts and ends: the controller ends one that is silent, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.desired import DesiredPhase
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.gateway_process import GatewayMemory, ObservedGateway
from fleetctl.model.subject import GATEWAY
from tests.reconcile import worlds
from tests.reconcile.worlds import at, decide, observation, observed, of_kind, snapshot, traffic

if TYPE_CHECKING:
    from fleetctl.model.decision import Memory
    from fleetctl.model.observation import Observation

_ANSWERS = snapshot(traffic("short"), traffic("long"))
_TWO = (observed("r1"), observed("r2"))


def seen(*gateways: ObservedGateway) -> Observation:
    """Return what a controller sees of gateways that a Deployment keeps."""
    answer = next((each.snapshot for each in gateways if each.snapshot is not None), None)
    found = observation(*_TWO, gateways=gateways, gateways_are_remote=True, gateway_alive=bool(gateways))
    return replace(found, gateway=answer)


def silent_since(second: float, number: int) -> Memory:
    base = decide(worlds.one_lane(2), seen(_gateway(1))).memory
    return replace(base, other_gateways={str(number): GatewayMemory(missing_since=at(second))})


def _gateway(number: int, *, answers: bool = True, is_wanted: bool = True) -> ObservedGateway:
    return ObservedGateway(
        number=number, snapshot=_ANSWERS if answers else None, is_alive=True, is_wanted=is_wanted
    )  # fmt: skip


def test_none_is_started_whichever_number_is_free_or_where_none_lives():
    two = decide(worlds.one_lane(2), seen(_gateway(2), _gateway(3)), silent_since(3000, 1))
    none = decide(worlds.one_lane(2), seen(), silent_since(3000, 1))
    for decision in (two, none):
        assert of_kind(decision, StartGateway) == []
        assert of_kind(decision, StopGateway) == []
    assert "no gateway lives" in str(none.reasons[GATEWAY])


def test_one_that_is_silent_for_long_is_ended_and_no_other():
    both = seen(_gateway(1, answers=False), _gateway(2))
    assert of_kind(decide(worlds.one_lane(2), both, silent_since(3595, 1)), StopGateway) == []
    decision = decide(worlds.one_lane(2), both, silent_since(3580, 1))
    assert [each.number for each in of_kind(decision, StopGateway)] == [1]


def test_what_is_done_to_one_names_its_pod_and_its_machine():
    silent = replace(_gateway(2, answers=False), place="pod chat-gateway-x on node-7")
    decision = decide(worlds.one_lane(2), seen(_gateway(1), silent), silent_since(3580, 2))
    (stop,) = of_kind(decision, StopGateway)
    assert stop.reason.startswith("gateway 2 (pod chat-gateway-x on node-7): alive, but no answer for 20s")


def test_one_that_is_being_ended_is_left_to_finish():
    leaving = seen(_gateway(1, answers=False, is_wanted=False), _gateway(2))
    assert of_kind(decide(worlds.one_lane(2), leaving, silent_since(3000, 1)), StopGateway) == []


def test_a_fleet_is_down_while_its_gateways_still_live():
    fleet = worlds.one_lane(2, phase=DesiredPhase.DOWN)
    decision = decide(fleet, replace(seen(_gateway(1)), replicas=()))
    assert decision.is_down
    assert of_kind(decision, StopGateway) == []
