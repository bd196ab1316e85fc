"""Keeps a controller's lease alive, and finds in a heap of failures that it was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import FencedError

if TYPE_CHECKING:
    from fleetctl.controller.world import World

# How old a controller's last sign of life may be when it is asked since when it is gone.
_RENEW_S = 5.0


async def keep_lease(world: World) -> None:
    """Leave a sign of life for ever. Raises FencedError once another controller has the fleet."""
    while True:
        world.store.renew_lease(now=world.clock.now(), monotonic_s=world.clock.monotonic_s())
        await world.clock.sleep(_RENEW_S)


def fenced_error(failure: BaseExceptionGroup) -> FencedError | None:
    """Return the loss of the lease among several failures, if it is there."""
    for each in failure.exceptions:
        found = fenced_error(each) if isinstance(each, BaseExceptionGroup) else each
        if isinstance(found, FencedError):
            return found
    return None
