"""Whether what lanes take together is there, where they share the GPUs of one machine or of one cluster."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.catalogue import Offering
from fleetctl.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDemand:
    """What a lane takes of an offering."""

    lane: str
    offering: Offering
    replicas: int
    gpus_each: int  # of one replica

    @property
    def gpus(self) -> int:
        """Return the GPUs of all its replicas."""
        return self.replicas * self.gpus_each


def lacking_gpus(demands: Iterable[GpuDemand]) -> InfeasiblePlanError | None:
    """Return the error of lanes that take more GPUs than are there; None: they fit."""
    shared: dict[str, list[GpuDemand]] = defaultdict(list)
    there: dict[str, int] = {}
    for demand in demands:
        if demand.offering.pool_gpus is not None:
            shared[demand.offering.gpu].append(demand)
            there[demand.offering.gpu] = demand.offering.pool_gpus
    for gpu, takers in shared.items():
        if sum(demand.gpus for demand in takers) > there[gpu]:
            return _too_few(gpu, there[gpu], takers)
    return None


def _too_few(gpu: str, there: int, takers: Sequence[GpuDemand]) -> InfeasiblePlanError:
    needed = sum(demand.gpus for demand in takers)
    parts = ", ".join(f"{each.lane} {format_count(each.replicas, 'replica')} of {each.gpus_each}" for each in takers)
    return InfeasiblePlanError(
        f"the lanes take {needed}x {gpu} in all ({parts}), and only {there} are there",
        hint="lower the lanes' minima or the peak, relax their promises, quantise the model, or plan fewer lanes",
        key=("lanes",),
    )
