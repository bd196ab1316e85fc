"""What a decision costs, counted in calls of functions: by what has changed, hardly by how many replicas there are."""

from __future__ import annotations

import sys
from types import FrameType  # noqa: TC003  # as sys.setprofile calls it
from typing import TYPE_CHECKING

from fleetctl.core.reconcile import reconcile
from tests.reconcile.worlds import decide, observation, observed, one_lane, snapshot, traffic

if TYPE_CHECKING:
    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation, ObservedReplica

# Of one that serves and of which there is nothing to say: its step, its age, and who asks how it is.
_CALLS_SETTLED_MAX = 5


def fleet_of(count: int) -> tuple[Desired, list[ObservedReplica], Memory]:
    """A lane that has, wants and needs so many replicas, and what it remembers of that."""
    fleet = one_lane(count, bounds=(count, count))
    replicas = [observed(f"r{number}") for number in range(1, count + 1)]
    return fleet, replicas, decide(fleet, seen(replicas)).memory


def seen(replicas: list[ObservedReplica]) -> Observation:
    return observation(*replicas, gateway=snapshot(traffic(rps=1.0, ttft_s=0.1, wait_s=0.001)))


def calls(fleet: Desired, view: Observation, memory: Memory) -> int:
    """Return how many functions of the product's one decision calls."""
    found = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        found += event == "call" and "fleetctl" in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        decision = reconcile(fleet, view, memory, view.at)
    finally:
        sys.setprofile(None)
    assert decision.actions == ()
    return found


def test_a_replica_that_only_serves_costs_a_decision_a_few_calls() -> None:
    small, large = (calls(fleet, seen(replicas), memory) for fleet, replicas, memory in map(fleet_of, (20, 120)))
    assert (large - small) / 100 <= _CALLS_SETTLED_MAX
