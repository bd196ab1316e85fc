"""One order at a time, for tests that are not about batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.ports.provider import Provider


def as_it_is(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without resolving anything."""
    return dict(environ)


async def create(provider: Provider, request: NodeRequest) -> Node:
    """Return the node of one order. Raises its error."""
    (result,) = await provider.create((request,), resolve_secrets=as_it_is)
    if result.error is not None:
        raise result.error
    if result.node is None:
        raise ValueError(f"{provider.name} gave neither a node nor an error for {request.token}")
    return result.node


async def listed(provider: Provider, *, owner: str, fleet: str) -> tuple[Node, ...]:
    """Return the nodes of one complete listing."""
    listing = await provider.list_nodes(owner=owner, fleet=fleet)
    if not listing.is_complete:
        raise ValueError(f"{provider.name} answered only a part")
    return listing.nodes


async def listen_port(provider: Provider, *, avoid: frozenset[int]) -> int:
    """Return a port for one engine."""
    (address,) = await provider.listen_addresses(1, avoid=avoid)
    return address.port
