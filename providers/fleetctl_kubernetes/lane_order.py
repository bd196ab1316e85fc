"""Creates lane by lane: what a namespace's quota leaves goes to the lanes that are waited on most."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fleetctl.model.node import CreateResult, NodeRequest


async def in_lane_order(
    requests: tuple[NodeRequest, ...], create: Callable[[NodeRequest], Awaitable[CreateResult]]
) -> tuple[CreateResult, ...]:
    """Return each request's result, in their order; a lane's are created at once, after those of the lanes before it."""

    def rank(place: int) -> tuple[bool, int]:
        return requests[place].is_interruptible, requests[place].lane_rank

    found: dict[int, CreateResult] = {}
    for _, alike in groupby(sorted(range(len(requests)), key=rank), key=rank):
        places = tuple(alike)
        found |= dict(zip(places, await asyncio.gather(*(create(requests[each]) for each in places)), strict=True))
    return tuple(found[place] for place in range(len(requests)))
