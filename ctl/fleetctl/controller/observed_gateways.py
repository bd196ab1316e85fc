"""What is seen of each of several gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.gateway_process import ObservedGateway
from fleetctl.ports.runtime import RemoteGateways

if TYPE_CHECKING:
    from fleetctl.controller.world import World


def remote_gateways(world: World) -> RemoteGateways | None:
    """Return the keeper of the gateways that somebody else starts; None: they are this controller's to start."""
    return world.gateway_host if isinstance(world.gateway_host, RemoteGateways) else None


def observed_gateways(world: World, wanted: int) -> tuple[ObservedGateway, ...]:
    """Return each by itself, as of the snapshots just read; none where one is alone."""
    gateways = world.gateways
    if gateways is None or not gateways.are_several:
        return ()
    found, remote = [], remote_gateways(world)
    for number in gateways.numbers:
        host = world.gateway_host.numbered(number)
        # Of the first this was asked already; asked twice in a tick its times would be counted once only.
        is_first = number == 1 and remote is None
        found.append(
            ObservedGateway(
                number=number,
                snapshot=gateways.seen.get(number),
                is_alive=host.is_alive(),
                stall="" if is_first else str(host.stall() or ""),
                is_beating=is_first or host.is_beating(),
                lost_s=0.0 if is_first else host.lost_s(),
                is_wanted=number <= wanted if remote is None else not remote.is_leaving(number),
                place=remote.place_of(number) if remote is not None else "",
            )
        )
    return tuple(found)
