"""Which of a profile's caps a plan would cross."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fleetctl.errors import BudgetExceededError
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.profile import Profile

COST_KEY: Final = ("capacity", "max_cost_per_hour")


def over_caps(
    profile: Profile, cost_usd_per_hour: float, nodes: int, *, head_usd_per_hour: float
) -> Iterator[BudgetExceededError]:
    """Yield the caps that a plan would cross; its cost is with the head's."""
    capacity = profile.capacity
    if nodes > capacity.max_nodes:
        yield BudgetExceededError(
            f"the plan with the fewest nodes needs {nodes}, and capacity.max_nodes is {capacity.max_nodes}",
            hint=f"set max_nodes to {nodes}, lower the lanes' minima, or relax their promises",
            key=("capacity", "max_nodes"),
        )
    most = capacity.max_cost_usd_per_hour
    head = f", its head among it at {format_usd(head_usd_per_hour)}," if head_usd_per_hour else ""
    if most is not None and cost_usd_per_hour > most + 1e-9:
        yield BudgetExceededError(
            f"the cheapest plan costs {format_usd(cost_usd_per_hour)} an hour{head}, and capacity.max_cost_per_hour "
            f"is {format_usd(most)}",
            hint=f"raise the cap to {format_usd(math.ceil(cost_usd_per_hour * 100) / 100)}, "
            "lower the lanes' minima, or relax their promises",
            key=COST_KEY,
        )
