"""What a lane may be scaled to by hand: its bounds, the fleet's caps, and how much of it may go at once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.plan.lane_cost import lane_cost_usd_per_hour
from fleetctl.core.reconcile.disruption_limit import LEAST_BY_CHOICE, WINDOW_S, most_at_once
from fleetctl.errors import BudgetExceededError, ConfigError, DisruptionLimitError
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.lookup import known_lane
from fleetctl.units import format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.desired import Desired
    from fleetctl.operations.site import Site


def check_scale(desired: Desired, lane: str, replicas: int | None) -> None:
    """Refuse what the lane's bounds or the fleet's caps do not hold; fewer than before is never over a cap.

    None leaves it to the controller, which keeps the caps by itself. Raises NotFoundError, ConfigError, BudgetExceededError.
    """
    spec = known_lane(desired, lane)
    if replicas is None:
        return
    if not spec.replicas.min <= replicas <= spec.replicas.max:
        raise ConfigError(
            f"lane {lane!r} takes {spec.replicas.min} to {spec.replicas.max} replicas, not {replicas}",
            hint=f"change lanes.{lane}.replicas in the profile and run `fleetctl up` with it",
        )
    before = {each.lane: desired.overrides.replicas.get(each.lane, each.replicas) for each in desired.plan.lanes}
    if replicas > before[lane]:
        _check_caps(desired, {**before, lane: replicas})


def _check_caps(desired: Desired, counts: Mapping[str, int]) -> None:
    capacity = desired.profile.capacity
    nodes = sum(each.machines_of(counts[each.lane]) for each in desired.plan.lanes)
    if nodes > capacity.max_nodes:
        raise BudgetExceededError(
            f"{nodes} nodes would be over the cap of {capacity.max_nodes}",
            hint="raise capacity.max_nodes in the profile",
        )
    cost = sum(
        lane_cost_usd_per_hour(desired.profile.lane(each.lane), each, counts[each.lane]) for each in desired.plan.lanes
    )
    if capacity.max_cost_usd_per_hour is not None and cost > capacity.max_cost_usd_per_hour:
        raise BudgetExceededError(
            f"up to {format_usd(cost)}/h would be over the cap of {format_usd(capacity.max_cost_usd_per_hour)}/h",
            hint="raise capacity.max_cost_per_hour in the profile",
        )


def refuse_too_few(site: Site, fleet: str, lane: str, replicas: int | None, *, force: bool) -> None:
    """Raise DisruptionLimitError where more of a lane would go than the controller itself takes away within a minute.

    Those that went as too many within the last minute count, so that small steps lead nowhere else.
    """
    if force or replicas is None:
        return
    of_lane = [record for record in site.store.replicas(fleet) if record.lane == lane]
    ready = sum(record.state is ReplicaState.READY for record in of_lane)
    since = site.clock.now() - timedelta(seconds=WINDOW_S)
    lately = sum(record.drain_code is ReasonCode.REPLICA_EXCESS and record.changed_at > since for record in of_lane)
    going, most = ready + lately - replicas, most_at_once(ready + lately, least=LEAST_BY_CHOICE)
    if going > most:
        raise DisruptionLimitError(
            f"{lane} would lose {going} of {format_count(ready + lately, 'replica')} within a minute, and {most} is the most at once",
            hint=f"go to {ready + lately - most} first, or pass --force (force: true in a runbook)",
        )
