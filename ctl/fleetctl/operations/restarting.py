"""Has a replica's engine started anew on the node that it has, and follows it until it serves again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.drains import with_drain
from fleetctl.errors import ConfigError, ProviderError, UnavailableError
from fleetctl.model.engine_restart import RestartPhase
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.operations.audit import audited
from fleetctl.operations.command_rate import refuse_too_many
from fleetctl.operations.commands import exclusive, journal_command, wake_controller
from fleetctl.operations.freezing import refuse_frozen
from fleetctl.operations.lookup import running_fleet
from fleetctl.operations.replicas import find_replica

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site

_POLL_S = 0.25


def restart(  # noqa: PLR0913  # what may be said of a restart, each named
    site: Site,
    fleet: str,
    target: str,
    *,
    reason: str = "",
    override_freeze: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> Replica:
    """Have a replica (by its id or its node's) drained, its engine started anew on the same node, and admitted again.

    Raises NotFoundError, ConfigError (the provider cannot, or the replica is not one that has served), FrozenError,
    DisruptionLimitError. Follow it with `follow_restart`.
    """
    with audited(site, "restart", fleet=fleet, dry_run=dry_run) as attempt:
        desired = running_fleet(site, fleet)
        replica = find_replica(site, fleet, target)
        _refuse_impossible(site, desired, replica)
        refuse_frozen(desired, (replica.lane,), "restarting is held back", override=override_freeze)
        if dry_run:
            return replica
        refuse_too_many(site, fleet, force=force)
        _order(site, fleet, replica)
        why = f"asked for by hand{': ' if reason else ''}{reason}"
        journal_command(site, fleet, subject=Subject.replica(replica.id), action="restart", reason=why)
        attempt.note(f"replica/{replica.id} of {replica.lane}: restarted{': ' if reason else ''}{reason}")
        wake_controller(site, fleet)
    return replica


def serves_alone(site: Site, replica: Replica) -> bool:
    """Whether nobody else of its lane is in rotation, so that nobody answers there while it restarts."""
    others = (r for r in site.store.replicas(replica.fleet) if r.lane == replica.lane and r.id != replica.id)
    return replica.state is ReplicaState.READY and not any(r.state is ReplicaState.READY for r in others)


def follow_restart(site: Site, replica: Replica, *, timeout_s: float) -> Iterator[Replica]:
    """Yield a replica's records until its engine has been started anew and serves; `replica` is as it was before.

    Raises ProviderError (it could not be restarted, or came to its end), UnavailableError after `timeout_s`.
    """
    deadline_s = site.clock.monotonic_s() + timeout_s
    before = replica.restart.orders if replica.restart is not None else 0
    while True:
        found = next((r for r in site.store.replicas(replica.fleet) if r.id == replica.id), None)
        if found is None or not found.state.is_live or found.state is ReplicaState.STOPPING:
            why = found.fault or found.reason if found is not None else "it is gone"
            raise ProviderError(f"{replica.id} was not restarted: {why}", hint=_why(replica))
        yield found
        followed = found.restart if found.restart is not None and found.restart.orders > before else None
        if followed is not None and followed.phase is RestartPhase.FAILED:
            raise ProviderError(
                f"{replica.id} could not be restarted: {followed.fault}", hint="it serves on if it still works"
            )
        if followed is not None and followed.phase is RestartPhase.OVER:
            return
        if site.clock.monotonic_s() >= deadline_s:
            raise UnavailableError(f"{replica.id} is still {found.state} after {timeout_s:g} s", hint=_why(replica))
        site.clock.sleep_blocking(_POLL_S)


def _why(replica: Replica) -> str:
    return f"fleetctl why {replica.id} -f {replica.fleet}"


def _order(site: Site, fleet: str, replica: Replica) -> None:
    with exclusive(site, fleet):
        held = running_fleet(site, fleet).overrides
        live = {record.id for record in site.store.replicas(fleet) if record.state.is_live}
        kept = {name: number for name, number in held.restarts.items() if name in live}
        followed = replica.restart.orders if replica.restart is not None else 0
        kept[replica.id] = max(kept.get(replica.id, 0), followed + 1)
        site.store.set_overrides(fleet, replace(held, restarts=kept), now=site.clock.now())


def _refuse_impossible(site: Site, desired: Desired, replica: Replica) -> None:
    provider = site.provider_of(desired.profile)
    if provider.capabilities.restarts is None:
        raise ConfigError(
            f"provider {provider.name} restarts no engines on the nodes that they have",
            hint=f"another takes its place: fleetctl drain {replica.id} -f {desired.fleet}",
        )
    if why := _why_not(replica, desired):
        raise ConfigError(f"{replica.id} is not to be restarted: {why}", hint=_why(replica))


def _why_not(replica: Replica, desired: Desired) -> str:
    if replica.is_restarting:
        return "its engine starts anew already"
    if with_drain(replica, desired.overrides).drain_requested:
        return "it was asked to leave"
    if replica.notice is not None or replica.notice_deadline is not None:
        return "its provider gives notice of its node"
    if replica.state is not ReplicaState.READY and not replica.is_recovering:
        return f"it is {replica.state}, and has to have served"
    return ""
