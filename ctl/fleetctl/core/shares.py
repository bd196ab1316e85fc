"""Which machine that a lane's replicas share has room for one more: pure, from the records alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.replica import ReplicaState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleetctl.model.catalogue import Market, Offering
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.replica import Replica

_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRoom:
    """Room for one replica on a machine that others of its lane are on."""

    machine_id: str
    gpu_indices: tuple[int, ...]
    offering: str  # Offering.key
    usd_per_hour: float  # of the machine, which is paid for already


def machine_room(
    lane_plan: LanePlan, live: Iterable[Replica], market: Market, digest: str, sold: Mapping[str, Offering]
) -> MachineRoom | None:
    """Return where one more replica of a lane finds room, the fullest machine first; None: a machine has to be launched.

    It has to be started as those that are there, whose machine runs what it was launched with.
    """
    if lane_plan.replicas_each_machine < 2:  # shared by two
        return None
    rooms = [
        vacancy
        for records in _by_machine(live).values()
        if (vacancy := _room_on(records, lane_plan, market, digest, sold)) is not None
    ]
    return min(rooms, key=lambda found: (found[0], found[1].machine_id))[1] if rooms else None


def rooms_coming(lane_plan: LanePlan, live: Iterable[Replica], market: Market, digest: str) -> int:
    """Return how many more will find room on the machines that are ordered for a lane and have no name yet."""
    on_order = [r for r in live if _is_on_order(r) and _is_alike(r, lane_plan, market, digest)]
    return sum(_room_of(lane_plan, record) - 1 for record in on_order)


def free_rooms(lane_plan: LanePlan, live: Sequence[Replica], market: Market, digest: str) -> int:
    """Return how many more replicas of a lane the machines that are there have room for."""
    if lane_plan.replicas_each_machine < 2:  # shared by two
        return 0
    return sum(
        max(0, _room_of(lane_plan, records[0]) - len(records))
        for records in _by_machine(live).values()
        if _is_open(records, lane_plan, market, digest)
    )


def _room_of(lane_plan: LanePlan, record: Replica) -> int:
    """Return how many of a lane's replicas the machine of one carries.

    How much room a type that is not planned has is only found when the launch is made: nobody reckons with it before.
    """
    name = OfferingKey.parse(record.offering).instance_type
    types = (lane_plan.offering, *(each.offering for each in lane_plan.mix))
    offering = next((each for each in types if each.instance_type == name), None)
    return lane_plan.room_on(offering) if offering is not None else 1


def _room_on(
    records: Sequence[Replica], lane_plan: LanePlan, market: Market, digest: str, sold: Mapping[str, Offering]
) -> tuple[int, MachineRoom] | None:
    """Return how many GPUs a machine has left, and where on it; None: nobody new comes to it."""
    first, size = records[0], lane_plan.gpus_each_node
    offering = sold.get(first.offering)
    if offering is None or not offering.is_shareable or not _is_open(records, lane_plan, market, digest):
        return None
    taken = {gpu for record in records for gpu in record.gpu_indices}
    for start in range(0, offering.gpu_count - size + 1, size):
        gpus = tuple(range(start, start + size))
        if not taken.intersection(gpus):
            vacancy = MachineRoom(
                machine_id=first.machine_id, gpu_indices=gpus, offering=first.offering,
                usd_per_hour=offering.price_usd_per_hour,
            )  # fmt: skip
            return offering.gpu_count - len(taken), vacancy
    return None


def _by_machine(live: Iterable[Replica]) -> dict[str, list[Replica]]:
    found: dict[str, list[Replica]] = defaultdict(list)
    for record in live:
        if record.machine_id and record.gpu_indices and record.state.is_live:
            found[record.machine_id].append(record)
    return found


def _is_open(records: Sequence[Replica], lane_plan: LanePlan, market: Market, digest: str) -> bool:
    """Whether one more may come: all there are started alike, the machine stays, and somebody on it does."""
    if any(record.notice is not None or record.notice_deadline is not None for record in records):
        return False
    return all(_is_alike(record, lane_plan, market, digest) for record in records) and any(
        record.state not in _LEAVING for record in records
    )


def _is_alike(record: Replica, lane_plan: LanePlan, market: Market, digest: str) -> bool:
    is_own = record.lane == lane_plan.lane and record.assigned_at is None
    return is_own and record.market is market and record.launch_digest == digest and record.machine_usd_per_hour > 0


def _is_on_order(record: Replica) -> bool:
    """Whether a machine is on its way for it: its order has not been answered."""
    return record.state is ReplicaState.PENDING and not record.machine_id and not record.fault
