"""What fleetctl needs from whoever sells nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeRequest


class Provider(Protocol):
    """Is reached by the entry point group `fleetctl.provider`; constructed without arguments, cheap to construct.

    Every call may raise ProviderError or a subclass. `create` with a token that already has a node returns that node.
    """

    name: str

    async def offerings(self) -> tuple[Offering, ...]:
        """Return what is sold, prices included."""
        ...

    async def create(self, request: NodeRequest) -> Node:
        """Start one node; idempotent by `request.token`."""
        ...

    async def list_nodes(self, *, owner: str, fleet: str) -> tuple[Node, ...]:
        """Return every node with these tags, those that ended lately included (state GONE, with their exit reason)."""
        ...

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Ask a node to end; after `grace_s` it is made to. Returns at once; idempotent; unknown ids are no error."""
        ...

    async def free_port(self, *, avoid: frozenset[int]) -> int:
        """Return a port a new engine may listen on (local machines), or the fixed engine port (own address each)."""
        ...


class Interruptible(Protocol):
    """Is the extra capability of providers whose spot nodes can be interrupted on request, for drills."""

    async def interrupt(self, node_id: str, *, notice_s: float) -> None:
        """Give notice now and take the node `notice_s` later, as a cloud does. 0: no notice, taken at once."""
        ...
