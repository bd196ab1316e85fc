"""What the faces show: one fleet, once live and once from the store alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.status import FleetKnowledge, fleet_status
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.desired import Desired, DesiredPhase, Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.profile import Mode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from tests.reconcile.worlds import EPOCH, decide, desired, observation, observed

if TYPE_CHECKING:
    from collections.abc import Callable

SEEN = observation(observed("r1"), observed("r2", ReplicaState.BOOTING), observed("r11", record_lane="long"))
DECIDED = Memory(lanes={"short": LaneMemory(wanted=4, planned=2, step=LadderStep.SHED)})


def live(fleet: Desired) -> FleetKnowledge:
    decision = decide(fleet, SEEN, DECIDED)
    return FleetKnowledge(
        at=EPOCH,
        desired=fleet,
        records=tuple(replica.record for replica in SEEN.replicas),
        memory=decision.memory,
        observation=SEEN,
        decision=decision,
        controller_pid=7,
    )


def stored(fleet: Desired) -> FleetKnowledge:
    return replace(live(fleet), observation=None, decision=None, controller_pid=0)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("phase", DesiredPhase)
@pytest.mark.parametrize("overrides", [Overrides(), Overrides(replicas={"short": 3}, step={"short": LadderStep.SPILL})])
def test_live_and_stored_show_the_same_fleet(mode: Mode, phase: DesiredPhase, overrides: Overrides) -> None:
    fleet = desired(mode=mode, phase=phase, overrides=overrides, counts={"short": (2, 0), "long": (2, 0)})
    now, later = fleet_status(live(fleet), ()), fleet_status(stored(fleet), ())
    for one, other in zip(now.lanes, later.lanes, strict=True):
        assert replace(
            other, traffic=one.traffic, validity=one.validity, burn=one.burn, pressure=one.pressure, reasons=one.reasons,
            verdict=one.verdict,
        ) == one  # fmt: skip
    assert now.cost_usd_per_hour == later.cost_usd_per_hour
    assert (now.controller_alive, later.controller_alive) == (True, False)


@pytest.mark.parametrize("known", [live, stored])
def test_in_shadow_mode_nobody_shows_what_was_only_decided(known: Callable[[Desired], FleetKnowledge]) -> None:
    fleet = desired(mode=Mode.SHADOW, counts={"short": (2, 0), "long": (2, 0)})
    short = fleet_status(known(fleet), ()).lanes[0]
    assert (short.wanted, short.step) == (2, LadderStep.NORMAL)
    acting = replace(fleet, profile=replace(fleet.profile, control=replace(fleet.profile.control, mode=Mode.ACTIVE)))
    short = fleet_status(known(acting), ()).lanes[0]
    assert (short.wanted, short.step) == (4, LadderStep.SHED)


def test_a_plan_newer_than_the_last_decision_is_what_is_wanted() -> None:
    fleet = desired(counts={"short": (5, 0), "long": (2, 0)})
    silent = replace(stored(fleet), memory=DECIDED)
    assert fleet_status(silent, ()).lanes[0].wanted == 5


def test_figures_only_processes_know_are_stale_without_them() -> None:
    shown = fleet_status(stored(desired()), ())
    assert {lane.validity for lane in shown.lanes} == {Validity.STALE}
    assert {replica.engine.validity for replica in shown.replicas} == {Validity.STALE}
    assert shown.cost_usd_per_1m_tokens is None
