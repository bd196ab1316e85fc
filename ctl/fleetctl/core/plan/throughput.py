"""What one replica of a sized lane carries inside the promises, unrounded, and what of it prompts and answers cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.plan.checks import OperatingPoint, keeps_promises
from fleetctl.core.plan.tail import ttft_tail
from fleetctl.core.plan.workload import Lengths
from fleetctl.model.plan import ReplicaThroughput

if TYPE_CHECKING:
    from fleetctl.core.plan.replica import ReplicaModel
    from fleetctl.core.plan.sizing import SizingResult
    from fleetctl.model.profile import LaneSpec

_BISECTIONS = 12  # of the range below the knee: a four-thousandth of it
# Of the knee. The ceilings that a plan keeps are reserve for load that nobody answers; scaling answers it.
_KNEE_SHARE_MAX = 0.9
_LONGER = 1.1  # lengths are stretched by so much to see what they cost


def replica_throughput(lane: LaneSpec, result: SizingResult) -> ReplicaThroughput:
    """Return the most that each of the lane's planned replicas carries with every promise kept."""
    replica, ranks = result.state.replica, result.instance.ranks
    rps = _rps_max(lane, _as_measured(replica), result.needed * ranks)
    return ReplicaThroughput(
        rps=rps * ranks,
        prompt_share=_share(replica, prompt=_LONGER),
        output_share=_share(replica, output=_LONGER),
    )


def _as_measured(replica: ReplicaModel) -> ReplicaModel:
    """Return the replica without the reserve that a plan keeps where nothing says how unevenly requests come.

    Scaling measures that, and staffs what comes less evenly than by Poisson beside this figure (`core/need`).
    """
    demand = replica.demand
    return replica if demand.is_burst_known else replace(replica, demand=replace(demand, burst_cv=1.0))


def _rps_max(lane: LaneSpec, replica: ReplicaModel, replicas: int) -> float:
    """Return the rate at which a promise fails first; at least what the plan itself gives each replica."""
    low = replica.demand.rps / replicas
    high = max(low, replica.knee_rps * _KNEE_SHARE_MAX)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _keeps(lane, replica, replicas, middle) else (low, middle)
    return low


def _keeps(lane: LaneSpec, replica: ReplicaModel, replicas: int, rps: float) -> bool:
    state = replica.operate(rps)
    if state is None or not replica.has_free_slot(state):
        return False
    point = OperatingPoint(replica=replica, replicas=replicas, state=state, ttft=ttft_tail(replica, state, replicas))
    return keeps_promises(lane, point)


def _share(replica: ReplicaModel, *, prompt: float = 1.0, output: float = 1.0) -> float:
    """Return the share of a request's cost that grows with its prompt or its answer: what the knee loses to longer ones."""
    demand = replica.demand
    longer = replace(demand, prompt=_stretched(demand.prompt, prompt), output=_stretched(demand.output, output))
    knee_rps = replace(replica, demand=longer).knee_rps
    return max(0.0, (replica.knee_rps / knee_rps - 1.0) / (_LONGER - 1.0)) if knee_rps > 0 else 1.0


def _stretched(lengths: Lengths, factor: float) -> Lengths:
    return lengths if factor == 1.0 else Lengths(points=tuple(point * factor for point in lengths.points))
