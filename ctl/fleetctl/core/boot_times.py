"""How long replicas took to become ready, by offering: what the next one is expected to take."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

# Knative holds a request for five minutes, no longer than most clients and proxies wait at best.
_FROM_ZERO_S_MAX = 300.0
# Half of the replicas take longer than the median, few half as long again; the order itself waits for demand to be seen.
_FROM_ZERO_SLACK = 1.5
_ORDER_S = 15.0
# An order this far beyond what others took is late. One too many costs a boot; waiting for one that never comes, all that
# is refused meanwhile.
_LATE_MEASURED = 1.5
_LATE_SLOWEST = 1.1
_LATE_PLANNED = 2.0
_LATE_S_MIN = 60.0  # a busy machine is late by so much at times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.replica import Replica


def boot_times_s(records: Iterable[Replica]) -> dict[str, float]:
    """Return the median seconds from order to first admission per offering; ended replicas count as well."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.ready_at is not None:
            seconds[record.offering].append(_boot_s(record, record.ready_at))
    return {offering: median(times) for offering, times in sorted(seconds.items())}


def expected_replacement_s(plan: LanePlan, records: Iterable[Replica]) -> float:
    """Return what a lane's next replica takes to become ready: as its own earlier ones took, whatever they ran on.

    An offering's time says nothing of the engine, which lanes may load differently; so it comes last.
    """
    records = tuple(records)
    own = [
        _boot_s(record, record.ready_at)
        for record in records
        if record.lane == plan.lane and record.assigned_at is None and record.ready_at is not None
    ]
    return median(own) if own else expected_boot_s(plan, boot_times_s(records))


def late_after_s(plan: LanePlan, lane: Iterable[Replica], measured_s: dict[str, float]) -> Callable[[Replica], float]:
    """Return how long after its order a replica is surely late, so that another is ordered in its stead.

    Far beyond the median of what the lane's replicas took, and beyond the slowest of them; where none was measured, beyond
    what its offering takes, or the plan says, which does not know the engine's own start.
    """
    own = [
        _boot_s(each, each.ready_at)
        for each in lane
        if each.lane == plan.lane and each.assigned_at is None and each.ready_at is not None
    ]
    of_lane = max(_LATE_S_MIN, _LATE_MEASURED * median(own), _LATE_SLOWEST * max(own)) if own else None

    def limit_s(record: Replica) -> float:
        if of_lane is not None:
            return of_lane
        if record.offering in measured_s:
            return max(_LATE_S_MIN, _LATE_MEASURED * measured_s[record.offering])
        return max(_LATE_S_MIN, _LATE_PLANNED * plan.offering.boot_s)

    return limit_s


def expected_boot_s(plan: LanePlan, measured_s: dict[str, float]) -> float:
    """Return what a replica of the lane is expected to take: as measured on its offering, else as planned."""
    return measured_s.get(plan.offering.key, plan.offering.boot_s)


def max_wait_from_zero_s(spec: LaneSpec, plan: LanePlan, records: Iterable[Replica]) -> float:
    """Return how long requests may wait for a lane's first replica: as the profile says, else as one takes, with slack."""
    if spec.max_wait_from_zero_s is not None:
        return spec.max_wait_from_zero_s
    boot_s = expected_replacement_s(plan, records)
    return min(_FROM_ZERO_S_MAX, _ORDER_S + _FROM_ZERO_SLACK * boot_s)


def _boot_s(record: Replica, ready_at: datetime) -> float:
    return (ready_at - record.requested_at).total_seconds()
