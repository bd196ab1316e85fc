"""The local provider: every node is a process in a session of its own on this machine."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl_local import offerings, ports
from fleetctl_local.nodes import Nodes
from fleetctl_local.registry import check_name

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeRequest


class LocalProvider:
    """Implements ports.Provider and ports.Interruptible. Any number of processes may use it on the same nodes."""

    name = "local"

    def __init__(self, clock: Clock | None = None) -> None:
        self._nodes = Nodes(clock)

    async def offerings(self) -> tuple[Offering, ...]:
        """Return emulated AWS instance types at AWS's list prices."""
        return offerings.offerings()

    async def create(self, request: NodeRequest) -> Node:
        """Start one process; the same token never starts two, whoever asks, and however the first asker died."""
        for what, name in (("token", request.token), ("fleet", request.fleet), ("replica", request.replica_id)):
            check_name(what, name)
        _check_loopback(request.host)
        # The thread finishes what it began even if this await is cancelled; the token then finds the node.
        return await asyncio.to_thread(self._nodes.create, request)

    async def list_nodes(self, *, owner: str, fleet: str) -> tuple[Node, ...]:
        """Return the fleet's nodes, oldest first, those that ended in the last hour included."""
        return await asyncio.to_thread(self._nodes.listed, owner, fleet)

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Send SIGTERM now, and SIGKILL to all its session after `grace_s`; that happens even if the caller dies."""
        await asyncio.to_thread(self._nodes.stop, node_id, grace_s)

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Give notice now and kill the node `notice_s` later; that happens even if the caller dies."""
        await asyncio.to_thread(self._nodes.interrupt, node_id, notice_s)

    async def free_port(self, *, avoid: frozenset[int]) -> int:
        """Return a loopback port not in use, not a live node's, and not one that outgoing connections can take."""
        return await asyncio.to_thread(self._free_port, avoid)

    def _free_port(self, avoid: frozenset[int]) -> int:
        return ports.free_port(avoid=avoid | self._nodes.ports_taken())


def _check_loopback(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ProviderError(
            f"a local engine cannot listen on {host!r}", hint="local nodes bind loopback addresses only"
        )
