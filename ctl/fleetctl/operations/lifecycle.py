"""Brings fleets up and down. Both are idempotent, and safe beside another that does the same."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import BudgetExceededError, ConfigError, NotFoundError, UnavailableError
from fleetctl.model.desired import Desired, Overrides, Phase
from fleetctl.model.subject import FLEET
from fleetctl.operations import supervise
from fleetctl.operations.access import known_fleet, opened_store, write_down
from fleetctl.operations.fleets import status
from fleetctl.operations.words import Word, fleet_condition
from fleetctl.paths import FleetPaths
from fleetctl.plugins import load_provider
from fleetctl.state.locks import FileLock, operation_lock
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.status import FleetStatus
    from fleetctl.ports.store import StateStore

# An operation holds its lock while it writes and while it makes sure of a controller: seconds, not minutes.
_LOCK_WAIT_S = 60.0
_POLL_S = 0.25
_EXIT_S = 5.0


class Change(StrEnum):
    """What an `up` did to the record."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOutcome:
    """What `up` did; the fleet is still on its way."""

    desired: Desired
    change: Change


def up(
    profile: Profile, plan: Plan, *, profile_hash: str = "", max_cost_usd_per_hour: float | None = None
) -> UpOutcome:
    """Make the fleet of `profile` what `plan` says, and make sure a controller is at work on it.

    `profile_hash` guards a saved plan: it must be the one the plan was made for. Raises ConfigError,
    BudgetExceededError, LockHeldError, UnavailableError, NotFoundError (no such provider).
    """
    check(profile, plan, profile_hash=profile_hash, max_cost_usd_per_hour=max_cost_usd_per_hour)
    FleetPaths(fleet=profile.name).make()
    with operation_lock(profile.name).hold(wait_s=_LOCK_WAIT_S), opened_store() as store:
        _check_port(profile)
        outcome = _record(store, profile, plan)
        supervise.ensure_controller(profile.name)
    supervise.wake(profile.name)
    return outcome


def down(fleet: str) -> Desired:
    """Have a fleet taken down; a dead controller is started to do it. Follow it with `follow_down`."""
    with operation_lock(fleet).hold(wait_s=_LOCK_WAIT_S), opened_store() as store:
        before = known_fleet(store, fleet)
        desired = store.set_phase(fleet, Phase.DOWN, now=SYSTEM_CLOCK.now())
        if before.phase is not Phase.DOWN:
            write_down(store, fleet, subject=FLEET, action="down", reason="asked for by `down`")
        if not is_over(fleet, store):
            supervise.ensure_controller(fleet)
    supervise.wake(fleet)
    return desired


def follow_up(fleet: str, *, timeout_s: float) -> Iterator[FleetStatus]:
    """Yield statuses until the fleet is ready. Raises UnavailableError after `timeout_s`; nothing is undone then."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while True:
        seen = status(fleet)
        yield seen
        condition = fleet_condition(seen)
        if is_ready(seen):
            return
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            raise UnavailableError(
                f"fleet {fleet} is not ready after {timeout_s:g} s: {condition.reason or condition.word}",
                hint=f"it goes on coming up; see why: fleetctl why -f {fleet}",
            )
        if condition.word is Word.STALE:
            supervise.ensure_controller(fleet)
        SYSTEM_CLOCK.sleep_blocking(_POLL_S)


def follow_down(fleet: str, *, timeout_s: float) -> Iterator[FleetStatus]:
    """Yield statuses until nothing is left, then forget the fleet. Raises UnavailableError after `timeout_s`."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    pids: set[int] = set()
    while True:
        pids |= _holders(fleet)
        with opened_store() as store:
            is_forgotten = store.fleet(fleet) is None  # the controller forgets it as its own last act
            if is_forgotten or is_over(fleet, store):
                _see_gone(pids)
                store.remove_fleet(fleet)
                return
            if not supervise.has_controller(fleet):
                supervise.ensure_controller(fleet)
        try:
            seen = status(fleet)
        except NotFoundError:
            continue  # forgotten just now
        yield seen
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            raise UnavailableError(
                f"fleet {fleet} is not down after {timeout_s:g} s: {fleet_condition(seen).reason}",
                hint=f"it goes on; run `fleetctl down {fleet}` again, or see why: fleetctl why -f {fleet}",
            )
        SYSTEM_CLOCK.sleep_blocking(_POLL_S)


def _holders(fleet: str) -> set[int]:
    paths = FleetPaths(fleet=fleet)
    holders = (FileLock(lock).holder() for lock in (paths.controller_lock, paths.gateway_lock))
    return {holder.pid for holder in holders if holder is not None}


def _see_gone(pids: set[int]) -> None:
    """Wait for processes that have let go of their locks and are about to exit: "nothing is left" should be true."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + _EXIT_S
    while any(map(_is_alive, pids)) and SYSTEM_CLOCK.monotonic_s() < deadline_s:
        SYSTEM_CLOCK.sleep_blocking(_POLL_S / 5)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number is another user's by now
    return True


def is_ready(status_: FleetStatus) -> bool:
    """Say whether every lane has the replicas it wants and the gateway serves them."""
    alive = status_.controller_alive and status_.gateway_alive
    return alive and all(lane.ready >= lane.wanted for lane in status_.lanes)


def is_over(fleet: str, store: StateStore) -> bool:
    """Say whether a fleet that should be down is: no node, no open intent, no process."""
    paths = FleetPaths(fleet=fleet)
    if any(FileLock(lock).is_held() for lock in (paths.controller_lock, paths.gateway_lock)):
        return False
    return not store.open_intents(fleet) and not any(r.state.is_live for r in store.replicas(fleet))


def check(profile: Profile, plan: Plan, *, profile_hash: str = "", max_cost_usd_per_hour: float | None = None) -> None:
    """Refuse what `up` would refuse. Raises ConfigError, BudgetExceededError, NotFoundError."""
    load_provider(profile.provider)
    _refuse_keyrings(profile)
    if plan.fleet != profile.name or (profile_hash and plan.profile_hash != profile_hash):
        raise ConfigError(
            f"the plan was made for another profile than {profile.name!r} as it is now",
            hint="make it anew: fleetctl plan PROFILE --out FILE",
        )
    caps = [cap for cap in (profile.capacity.max_cost_usd_per_hour, max_cost_usd_per_hour) if cap is not None]
    if caps and plan.cost_usd_per_hour > min(caps):
        raise BudgetExceededError(
            f"the plan costs {format_usd(plan.cost_usd_per_hour)}/h, over the cap of {format_usd(min(caps))}/h",
            hint="raise the cap, or relax the SLO; `fleetctl plan` shows which lane costs what",
        )
    nodes = sum(lane.replicas for lane in plan.lanes)
    if nodes > profile.capacity.max_nodes:
        raise BudgetExceededError(
            f"the plan takes {nodes} nodes, over the cap of {profile.capacity.max_nodes}",
            hint="raise capacity.max_nodes, or relax the SLO",
        )


def _refuse_keyrings(profile: Profile) -> None:
    """Refuse references nothing here can follow yet, now and not when the gateway or an engine needs them."""
    engine_secrets = (value for lane in profile.lanes for value in lane.launch.env.values())
    for reference in (*profile.gateway.api_keys, *engine_secrets):
        if reference.startswith("keyring:"):
            raise ConfigError(
                f"{reference!r} cannot be followed: running fleets read env: and file: references only",
                hint="write env:NAME or file:PATH; keyring: is for rendered files",
            )


def _record(store: StateStore, profile: Profile, plan: Plan) -> UpOutcome:
    before = store.fleet(profile.name)
    if before is not None and _is_same(before, profile, plan):
        return UpOutcome(desired=before, change=Change.UNCHANGED)
    desired = store.put_fleet(profile, plan, now=SYSTEM_CLOCK.now())
    change = Change.UPDATED if before is not None and before.phase is Phase.UP else Change.CREATED
    write_down(
        store, profile.name, subject=FLEET, action="up", reason=f"{change} as generation {desired.generation} by `up`"
    )
    return UpOutcome(desired=desired, change=change)


def _is_same(before: Desired, profile: Profile, plan: Plan) -> bool:
    wished = replace(before, phase=Phase.UP, profile=profile, plan=plan, overrides=Overrides())
    return before == wished


def is_port_free(host: str, port: int) -> bool:
    """Say whether nobody listens on host:port."""
    return _bind_fault(host, port) is None


def _check_port(profile: Profile) -> None:
    """Refuse a port another program listens on. A fleet whose controller or gateway lives holds its port itself."""
    paths = FleetPaths(fleet=profile.name)
    if any(FileLock(lock).is_held() for lock in (paths.controller_lock, paths.gateway_lock)):
        return
    host, port = profile.gateway.host, profile.gateway.port
    fault = _bind_fault(host, port)
    if fault is not None:
        what = "is in use" if fault.errno == errno.EADDRINUSE else f"cannot be had: {fault.strerror}"
        raise UnavailableError(
            f"the gateway's port {port} on {host} {what}",
            hint="end what listens there, or give the gateway another: fleetctl up --port N",
        ) from fault


def _bind_fault(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            return exc
    return None
