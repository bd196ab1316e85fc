"""What people set by hand on a running fleet: written to the store, then the controller is woken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import BudgetExceededError, ConfigError, NotFoundError, UnavailableError
from fleetctl.model.catalogue import Market
from fleetctl.model.desired import Phase
from fleetctl.model.ladder import LadderStep, loss
from fleetctl.model.subject import Subject
from fleetctl.operations import supervise
from fleetctl.operations.access import known_fleet, known_lane, opened_store, write_down
from fleetctl.operations.words import step_name
from fleetctl.plugins import load_provider
from fleetctl.state.locks import operation_lock
from fleetctl.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica
    from fleetctl.ports.store import StateStore

_LOCK_WAIT_S = 60.0
_POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """What changed by hand."""

    fleet: str
    subject: str
    before: str
    after: str


def scale(fleet: str, lane: str, replicas: int | None, *, dry_run: bool = False) -> Steered:
    """Set a lane's replicas by hand, or None to leave it to the controller again.

    Raises NotFoundError, ConfigError (outside the lane's bounds), BudgetExceededError.
    """
    with operation_lock(fleet).hold(wait_s=_LOCK_WAIT_S), opened_store() as store:
        desired = _running(store, fleet)
        _check_scale(desired, lane, replicas)
        wanted = {name: count for name, count in desired.overrides.replicas.items() if name != lane}
        if replicas is not None:
            wanted[lane] = replicas
        before, after = _count(desired.overrides.replicas.get(lane)), _count(replicas)
        if not dry_run and before != after:
            store.set_overrides(fleet, replace(desired.overrides, replicas=wanted), now=SYSTEM_CLOCK.now())
            write_down(
                store,
                fleet,
                subject=Subject.lane(lane),
                action="scale",
                reason=f"replicas {before} -> {after}, by hand",
            )
    _put_to_work(fleet, dry_run=dry_run)
    return Steered(fleet=fleet, subject=lane, before=before, after=after)


def shed(fleet: str, lane: str, step: LadderStep | None, *, dry_run: bool = False) -> Steered:
    """Pin a lane on a ladder step, or None to let the controller choose again. Raises NotFoundError."""
    with operation_lock(fleet).hold(wait_s=_LOCK_WAIT_S), opened_store() as store:
        desired = _running(store, fleet)
        known_lane(desired, lane)
        steps = {name: pinned for name, pinned in desired.overrides.step.items() if name != lane}
        if step is not None:
            steps[lane] = step
        pinned = desired.overrides.step.get(lane)
        before, after = (step_name(s) if s is not None else "automatic" for s in (pinned, step))
        if not dry_run and before != after:
            store.set_overrides(fleet, replace(desired.overrides, step=steps), now=SYSTEM_CLOCK.now())
            write_down(
                store,
                fleet,
                subject=Subject.lane(lane),
                action="shed",
                reason=f"ladder step {before} -> {after}, by hand",
            )
    _put_to_work(fleet, dry_run=dry_run)
    return Steered(fleet=fleet, subject=lane, before=before, after=after)


def consequence(fleet: str, lane: str, step: LadderStep | None) -> str:
    """Return what a person should say yes to before a lane is pinned there; empty where nothing is lost by it."""
    with opened_store() as store:
        spec = known_lane(known_fleet(store, fleet), lane)
    lost = loss(step or LadderStep.NORMAL, interruptible=spec.interruptible)
    return f"{lane} will {lost}" if lost else ""


def drain(fleet: str, target: str, *, dry_run: bool = False) -> Replica:
    """Have a replica (by its id or its node's) taken out of rotation, finished, stopped and replaced.

    Raises NotFoundError. Follow it with `follow_drain`.
    """
    with opened_store() as store:
        _running(store, fleet)
        replica = find_replica(store, fleet, target)
        if not dry_run and not replica.drain_requested:
            replica = store.request_drain(fleet, replica.id, now=SYSTEM_CLOCK.now())
            write_down(store, fleet, subject=Subject.replica(replica.id), action="drain", reason="asked for by hand")
    _put_to_work(fleet, dry_run=dry_run)
    return replica


def follow_drain(fleet: str, replica_id: str, *, timeout_s: float) -> Iterator[Replica]:
    """Yield the replica's records until its node is gone. Raises UnavailableError after `timeout_s`."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while True:
        with opened_store() as store:
            found = next((r for r in store.replicas(fleet) if r.id == replica_id), None)
        if found is None:
            return
        yield found
        if not found.state.is_live:
            return
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            raise UnavailableError(
                f"replica {replica_id} is still {found.state} after {timeout_s:g} s",
                hint=f"it goes on draining; see: fleetctl why {replica_id} -f {fleet}",
            )
        SYSTEM_CLOCK.sleep_blocking(_POLL_S)


def interrupt(fleet: str, target: str, *, notice_s: float, dry_run: bool = False) -> Replica:
    """Interrupt a spot node as its cloud would: notice now, gone `notice_s` later.

    Raises NotFoundError, ConfigError (not spot, or the provider cannot), ProviderError.
    """
    with opened_store() as store:
        desired = _running(store, fleet)
        replica = find_replica(store, fleet, target)
        if replica.market is not Market.SPOT:
            raise ConfigError(
                f"{replica.id} is {replica.market}; only spot nodes are interrupted",
                hint=f"spot replicas: {_names(store, fleet, Market.SPOT)}; to take this one out: fleetctl drain",
            )
        if not replica.node_id:
            raise UnavailableError(f"{replica.id} has no node yet", hint="wait until it is ready")
        provider = load_provider(desired.profile.provider)
        take = getattr(provider, "interrupt", None)
        if take is None:
            raise ConfigError(
                f"provider {provider.name} cannot interrupt nodes on request", hint="its own console or CLI may"
            )
        if not dry_run:
            write_down(
                store, fleet, subject=Subject.replica(replica.id), action="interrupt",
                reason=f"a drill, with {format_duration(notice_s)} notice",
            )  # fmt: skip
            asyncio.run(take(replica.node_id, notice_s=notice_s))
    _put_to_work(fleet, dry_run=dry_run)
    return replica


def find_replica(store: StateStore, fleet: str, target: str) -> Replica:
    """Return the live replica of that id or node id. Raises NotFoundError."""
    for replica in store.replicas(fleet):
        if target in (replica.id, replica.node_id) and replica.state.is_live:
            return replica
    raise NotFoundError(f"fleet {fleet!r} has no live replica or node {target!r}", hint=f"live: {_names(store, fleet)}")


def _names(store: StateStore, fleet: str, market: Market | None = None) -> str:
    found = [r.id for r in store.replicas(fleet) if r.state.is_live and market in (None, r.market)]
    return ", ".join(found) or "none"


def _running(store: StateStore, fleet: str) -> Desired:
    desired = known_fleet(store, fleet)
    if desired.phase is not Phase.UP:
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
    if sum(counts.values()) > capacity.max_nodes:
        raise BudgetExceededError(
            f"{sum(counts.values())} nodes would be over the cap of {capacity.max_nodes}",
            hint="raise capacity.max_nodes in the profile",
        )
    cost = sum(counts[p.lane] * p.offering.price_usd_per_hour for p in desired.plan.lanes)
    growing = replicas > desired.plan.lane(lane).replicas
    if growing and capacity.max_cost_usd_per_hour is not None and cost > capacity.max_cost_usd_per_hour:
        raise BudgetExceededError(
            f"up to {format_usd(cost)}/h would be over the cap of {format_usd(capacity.max_cost_usd_per_hour)}/h",
            hint="raise capacity.max_cost_per_hour in the profile",
        )


def _count(replicas: int | None) -> str:
    return "automatic" if replicas is None else str(replicas)


def _put_to_work(fleet: str, *, dry_run: bool) -> None:
    if not dry_run:
        supervise.ensure_controller(fleet)
        supervise.wake(fleet)
