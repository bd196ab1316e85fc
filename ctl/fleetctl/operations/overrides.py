"""What people set by hand on a running fleet's lanes: written to the store, then the controller is woken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import BudgetExceededError, ConfigError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.ladder import LadderStep, loss
from fleetctl.model.subject import Subject
from fleetctl.operations.commands import exclusive, journal_command, wake_controller
from fleetctl.operations.lookup import known_fleet, known_lane
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.operations.site import Site


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOverride:
    """A lane's replicas as set by hand before and after; None leaves them to the controller."""

    fleet: str
    lane: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOverride:
    """A lane's ladder step as pinned before and after; None leaves it to the controller."""

    fleet: str
    lane: str
    before: LadderStep | None
    after: LadderStep | None


OverrideChange = ReplicasOverride | StepOverride


def scale(site: Site, fleet: str, lane: str, replicas: int | None, *, dry_run: bool = False) -> ReplicasOverride:
    """Set a lane's replicas by hand, or None to leave it to the controller again.

    Raises NotFoundError, ConfigError (outside the lane's bounds), BudgetExceededError.
    """
    with exclusive(site, fleet):
        desired = running_fleet(site, fleet)
        _check_scale(desired, lane, replicas)
        before = desired.overrides.replicas.get(lane)
        if not dry_run and before != replicas:
            counts = _with(desired.overrides.replicas, lane, replicas)
            site.store.set_overrides(fleet, replace(desired.overrides, replicas=counts), now=site.clock.now())
            reason = f"replicas {_count(before)} -> {_count(replicas)}, by hand"
            journal_command(site, fleet, subject=Subject.lane(lane), action="scale", reason=reason)
    if not dry_run:
        wake_controller(site, fleet)
    return ReplicasOverride(fleet=fleet, lane=lane, before=before, after=replicas)


def shed(site: Site, fleet: str, lane: str, step: LadderStep | None, *, dry_run: bool = False) -> StepOverride:
    """Pin a lane on a ladder step, or None to let the controller choose again. Raises NotFoundError."""
    with exclusive(site, fleet):
        desired = running_fleet(site, fleet)
        known_lane(desired, lane)
        before = desired.overrides.step.get(lane)
        if not dry_run and before != step:
            steps = _with(desired.overrides.step, lane, step)
            site.store.set_overrides(fleet, replace(desired.overrides, step=steps), now=site.clock.now())
            reason = f"ladder step {_step(before)} -> {_step(step)}, by hand"
            journal_command(site, fleet, subject=Subject.lane(lane), action="shed", reason=reason)
    if not dry_run:
        wake_controller(site, fleet)
    return StepOverride(fleet=fleet, lane=lane, before=before, after=step)


def consequence(site: Site, fleet: str, lane: str, step: LadderStep | None) -> str:
    """Return what a person should say yes to before a lane is pinned there; empty where nothing is lost by it."""
    spec = known_lane(known_fleet(site, fleet), lane)
    lost = loss(step or LadderStep.NORMAL, interruptible=spec.interruptible)
    return f"{lane} will {lost}" if lost else ""


def running_fleet(site: Site, fleet: str) -> Desired:
    """Return the record of a fleet that should be up. Raises NotFoundError, ConfigError."""
    desired = known_fleet(site, fleet)
    if desired.phase is not DesiredPhase.UP:
        raise ConfigError(f"fleet {fleet!r} is going down", hint="bring it up first: fleetctl up PROFILE")
    return desired


def _check_scale(desired: Desired, lane: str, replicas: int | None) -> None:
    spec = known_lane(desired, lane)
    if replicas is None:
        return
    if not spec.replicas.min <= replicas <= spec.replicas.max:
        raise ConfigError(
            f"lane {lane!r} takes {spec.replicas.min} to {spec.replicas.max} replicas, not {replicas}",
            hint=f"change lanes.{lane}.replicas in the profile and run `fleetctl up` with it",
        )
    counts = {p.lane: desired.overrides.replicas.get(p.lane, p.replicas) for p in desired.plan.lanes}
    counts[lane] = replicas
    capacity = desired.profile.capacity
    nodes = sum(counts[p.lane] * p.node_count for p in desired.plan.lanes)
    if nodes > capacity.max_nodes:
        raise BudgetExceededError(
            f"{nodes} nodes would be over the cap of {capacity.max_nodes}",
            hint="raise capacity.max_nodes in the profile",
        )
    cost = sum(counts[p.lane] * p.node_count * p.offering.price_usd_per_hour for p in desired.plan.lanes)
    growing = replicas > desired.plan.lane(lane).replicas
    if growing and capacity.max_cost_usd_per_hour is not None and cost > capacity.max_cost_usd_per_hour:
        raise BudgetExceededError(
            f"up to {format_usd(cost)}/h would be over the cap of {format_usd(capacity.max_cost_usd_per_hour)}/h",
            hint="raise capacity.max_cost_per_hour in the profile",
        )


def _with(values: dict[str, T], lane: str, value: T | None) -> dict[str, T]:
    others = {name: kept for name, kept in values.items() if name != lane}
    return others if value is None else {**others, lane: value}


def _count(replicas: int | None) -> str:
    return "automatic" if replicas is None else str(replicas)


def _step(step: LadderStep | None) -> str:
    return "automatic" if step is None else step.value
