"""Nobody is refused for want of capacity beside a replica that does nothing, be it the lane's own or one it may borrow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.core.admission.refusal import Refusal
from fleetctl.model.profile import CapacitySpec
from fleetctl.sim.checker import Checker
from tests.dispatch.test_lending import BATCH, LONG, SHORT, Fleet


@pytest.mark.parametrize(
    ("replicas", "lends", "idle"),
    [
        ((("l1", "long"),), True, ""),
        ((("l1", "long"), ("l2", "long")), True, "l2"),
        ((("l1", "long"), ("b1", "batch")), True, "b1"),
        ((("l1", "long"), ("b1", "batch")), False, ""),
    ],
)
def test_a_refusal_beside_an_idle_replica_is_a_violation(replicas, lends, idle):
    fleet = Fleet(*replicas, lanes=(SHORT, LONG, replace(BATCH, lends=lends)))
    exchange = fleet.send("long", 4000)
    assert exchange.sent_to == ["l1"]
    checker = Checker(CapacitySpec())
    checker.refused(exchange.request, Refusal.PREDICTED_WAIT, fleet.heap.now_s)
    assert [f"{idle} idle" in found for found in checker.violations()] == ([True] if idle else [])
