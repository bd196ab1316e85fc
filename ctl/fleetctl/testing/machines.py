"""Machines under the nodes of a provider in memory: shared by their GPUs, or joined in a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShare:
    """What a node has of which machines."""

    machine_id: str
    gpu_indices: tuple[int, ...] = ()
    members: tuple[str, ...] = ()  # further machines, each of which it has alone
    price_usd_per_hour: float  # for its part


def machine_share(
    request: NodeRequest, offering: Offering, nodes: Iterable[Node], new_machine: Callable[[], str]
) -> MachineShare:
    """Return where an order goes: beside others that leave it enough GPUs, else on machines of its own.

    `nodes` are those that have not ended. Raises ProviderError for more GPUs than a machine of this type has.
    """
    if request.gpu_count > offering.gpu_count:
        raise ProviderError(f"{offering.key} has {offering.gpu_count} GPUs, not {request.gpu_count}")
    if request.node_count > 1:
        return MachineShare(
            machine_id=new_machine(),
            gpu_indices=tuple(range(request.gpu_count)),
            members=tuple(new_machine() for _ in range(1, request.node_count)),
            price_usd_per_hour=offering.price_usd_per_hour * request.node_count,
        )
    free = _free_gpus(offering, nodes)
    fitting = (machine for machine, gpus in free.items() if len(gpus) >= request.gpu_count > 0)
    machine_id = next(fitting, "") or new_machine()
    part = request.gpu_count / offering.gpu_count if request.gpu_count else 1.0
    return MachineShare(
        machine_id=machine_id,
        gpu_indices=tuple(free.get(machine_id, range(offering.gpu_count)))[: request.gpu_count],
        price_usd_per_hour=offering.price_usd_per_hour * part,
    )


def machines_of(node: Node) -> tuple[str, ...]:
    """Return the machines a node has a part in, its leader's first."""
    return (node.machine_id, *node.members)


def _free_gpus(offering: Offering, nodes: Iterable[Node]) -> dict[str, list[int]]:
    """Return the GPUs nobody has, by machine.

    A machine of a group, or given without its GPUs, is nobody else's; nobody new comes to one that is to leave.
    """
    free: dict[str, list[int]] = {}
    alone: set[str] = set()
    for node in nodes:
        if node.offering != offering.key:
            continue
        if node.members or not node.gpu_indices or node.notice is not None:
            alone.add(node.machine_id)
        left = free.setdefault(node.machine_id, list(range(offering.gpu_count)))
        free[node.machine_id] = [gpu for gpu in left if gpu not in node.gpu_indices]
    return {machine: gpus for machine, gpus in free.items() if machine not in alone}
