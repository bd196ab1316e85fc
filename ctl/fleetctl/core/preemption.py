"""Whose replicas make room for an order of an earlier lane, where a provider's scheduler preempts by the lanes' order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.lane_priority import lane_priority

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleetctl.model.profile import LaneSpec
    from fleetctl.model.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptible:
    """What makes room for one lane's orders of one market."""

    gpus: int  # of whole replicas' worth on one machine each
    lanes: tuple[str, ...]  # whose they are, those that are preempted first first


NOTHING_PREEMPTIBLE = Preemptible(gpus=0, lanes=())


def preemptible(
    taker: LaneSpec, lanes: Sequence[LaneSpec], staying: Iterable[Replica], *, held: Mapping[str, int], gpus: int
) -> Preemptible:
    """Return what an order of `taker`, whose replica takes so many GPUs, finds held by replicas of lower priority.

    `staying` are the fleet's replicas that do not leave by themselves; `held` are the GPUs of those among them that are
    where the order goes, by id. Of a lane that may not be interrupted its minimum stays, at least one: its users would
    else be served by nobody.
    """
    if taker.interruptible or gpus < 1:
        return NOTHING_PREEMPTIBLE  # what may be interrupted preempts nobody
    priorities = {
        spec.name: lane_priority(rank, is_interruptible=spec.interruptible) for rank, spec in enumerate(lanes)
    }
    lower = [r for r in staying if r.lane in priorities and priorities[r.lane] < priorities[taker.name]]
    spare = Counter(r.lane for r in lower)
    spare.subtract({s.name: max(1, s.replicas.min) for s in lanes if s.name in spare and not s.interruptible})
    machines: Counter[str] = Counter()
    names: set[str] = set()
    for record in sorted(lower, key=lambda r: (priorities[r.lane], r.machine_id, r.id)):
        # One that came from another lane has that lane's priority still.
        if record.id in held and record.assigned_at is None and spare[record.lane] > 0:
            spare[record.lane] -= 1
            machines[record.machine_id] += held[record.id]
            names.add(record.lane)
    # A replica's GPUs are of one machine.
    found = sum(count // gpus * gpus for count in machines.values())
    return (
        Preemptible(gpus=found, lanes=tuple(sorted(names, key=priorities.__getitem__)))
        if found
        else NOTHING_PREEMPTIBLE
    )
