"""Orders that were taken and that no machine is there for: given up where another offering could carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.placement import next_offering
from fleetctl.core.reconcile.lifecycle import stop
from fleetctl.core.reconcile.replica_step import unsettled
from fleetctl.model.catalogue import Market
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Sequence, Set as AbstractSet

    from fleetctl.core.reconcile.replica_step import ReplicaStep
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation


def given_up(
    desired: Desired, observation: Observation, steps: Sequence[ReplicaStep], *, cordoned: AbstractSet[str]
) -> list[ReplicaStep]:
    """Return the steps, with an end for each order that waits for a machine which nobody brings, where another could be had.

    Where none could, it stays in its line: a machine that comes after all is taken, and status says what is waited for. One
    that only stands in for another replica which serves is given up anyway.
    """
    waiting = {step.id for step in unsettled(steps) if _waits_in_vain(step)}
    if not waiting:
        return list(steps)
    serving = {r.record.id for r in observation.replicas if r.record.state is ReplicaState.READY}
    return [
        stop(step.replica, ReasonCode.OFFERING_UNOBTAINABLE, _reason(step))
        if step.id in waiting
        and (step.replica.record.replaces in serving or _elsewhere(desired, observation, step, cordoned))
        else step
        for step in steps
    ]


def _waits_in_vain(step: ReplicaStep) -> bool:
    record = step.replica.record
    return (
        step.replica.is_out_of_stock
        and step.action is None
        and record.state is ReplicaState.BOOTING
        and record.ready_at is None
    )


def _elsewhere(desired: Desired, observation: Observation, step: ReplicaStep, cordoned: AbstractSet[str]) -> bool:
    """Whether an offering that lately had stock could carry the replica in the place of its own."""
    record = step.replica.record
    if all(record.lane != lane.lane for lane in desired.plan.lanes):
        return False
    standing = [r.record for r in observation.replicas if r.record.id != record.id]
    markets = (Market.SPOT, Market.ON_DEMAND) if record.market is Market.SPOT else (Market.ON_DEMAND,)
    return any(
        next_offering(
            desired.plan.lane(record.lane),
            standing,
            market,
            observation.offerings,
            capacity=desired.profile.capacity,
            avoid={*observation.refused_offerings, record.offering},
            cordoned=cordoned,
        ).offering
        for market in markets
    )


def _reason(step: ReplicaStep) -> str:
    return f"{step.replica.record.offering} has no room for it: {step.replica.pending_reason}"
