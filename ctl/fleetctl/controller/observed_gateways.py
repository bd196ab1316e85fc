"""What is seen of each of several gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.gateway_process import ObservedGateway

if TYPE_CHECKING:
    from fleetctl.controller.world import World


def observed_gateways(world: World, wanted: int) -> tuple[ObservedGateway, ...]:
    """Return each by itself, as of the snapshots just read; none where one is alone."""
    gateways = world.gateways
    if gateways is None or gateways.numbers == (1,):
        return ()
    found = []
    for number in gateways.numbers:
        host = world.gateway_host.numbered(number)
        # Of the first this was asked already; asked twice in a tick its times would be counted once only.
        is_first = number == 1
        found.append(
            ObservedGateway(
                number=number,
                snapshot=gateways.seen.get(number),
                is_alive=host.is_alive(),
                stall="" if is_first else str(host.stall() or ""),
                is_beating=is_first or host.is_beating(),
                lost_s=0.0 if is_first else host.lost_s(),
                is_wanted=number <= wanted,
            )
        )
    return tuple(found)
