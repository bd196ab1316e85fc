"""Interrupts spot nodes as their cloud would, one or all of a zone, a type or a market; or says what that would cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.core.drains import NODE, ZONE, targets_of
from fleetctl.errors import ConfigError, FleetctlError, NotFoundError, ProviderError, UnavailableError
from fleetctl.model.catalogue import Market, OfferingKey
from fleetctl.model.subject import Subject
from fleetctl.operations.audit import audited
from fleetctl.operations.command_rate import refuse_too_many
from fleetctl.operations.commands import journal_command, wake_controller
from fleetctl.operations.freezing import refuse_frozen
from fleetctl.operations.lookup import running_fleet
from fleetctl.operations.losses import forecast_loss, offerings_of
from fleetctl.operations.replicas import find_replica, live_names
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.model.loss import FleetLoss
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site
    from fleetctl.ports.provider import Interruptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelection:
    """Which nodes are meant; what is empty says nothing, and all that is given must hold."""

    target: str = ""  # a replica, or its node
    zone: str = ""
    node: str = ""
    instance_type: str = ""
    market: Market | None = Market.SPOT  # None: every market

    @property
    def is_empty(self) -> bool:
        """Whether nothing but a market is given."""
        return not (self.target or self.zone or self.node or self.instance_type)

    @property
    def text(self) -> str:
        """What is meant: "zone/a type/l4 market/spot"."""
        given = {"replica": self.target, ZONE: self.zone, NODE: self.node, "type": self.instance_type}
        market = "" if self.target else "all" if self.market is None else self.market.value
        return " ".join(f"{kind}/{name}" for kind, name in (*given.items(), ("market", market)) if name)

    def matches(self, record: Replica) -> bool:
        """Whether a replica's node is meant."""
        there = targets_of(record)
        return (
            (not self.target or self.target in (record.id, record.node_id))
            and (not self.zone or f"{ZONE}/{self.zone}" in there)
            and (not self.node or f"{NODE}/{self.node}" in there)
            and (not self.instance_type or OfferingKey.parse(record.offering).instance_type == self.instance_type)
            and self.market in (None, record.market)
        )


def interrupt(
    site: Site, fleet: str, target: str, *, notice_s: float, override_freeze: bool = False, dry_run: bool = False
) -> Replica:
    """Interrupt a spot node as its cloud would: notice now, gone `notice_s` later.

    Raises NotFoundError, ConfigError (not spot, or the provider cannot), FrozenError, ProviderError.
    """
    selection = NodeSelection(target=target)
    return interrupt_all(site, fleet, selection, notice_s=notice_s, override_freeze=override_freeze, dry_run=dry_run)[0]


def interrupt_all(  # noqa: PLR0913  # what may be said of a drill, each named
    site: Site,
    fleet: str,
    selection: NodeSelection,
    *,
    notice_s: float,
    override_freeze: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> tuple[Replica, ...]:
    """Interrupt every spot node that is meant, at once; return its replicas.

    Raises as `interrupt`; where a provider refuses some of several, the others are interrupted all the same.
    """
    with audited(site, "interrupt", fleet=fleet, dry_run=dry_run) as attempt:
        desired = running_fleet(site, fleet)
        found = _interruptible(site, fleet, selection)
        refuse_frozen(desired, [r.lane for r in found], "interrupting is held back", override=override_freeze)
        interruptions = _interruptions_of(site, desired)
        if dry_run:
            return found
        refuse_too_many(site, fleet, force=force)
        reason = f"a drill, with {format_duration(notice_s)} notice"
        for replica in found:
            journal_command(site, fleet, subject=Subject.replica(replica.id), action="interrupt", reason=reason)
            attempt.note(f"replica/{replica.id} of {replica.lane}: interrupted, {reason}")
        failures = os_signals.run(_take(interruptions, found, notice_s))
        wake_controller(site, fleet)
        _refuse_failed(failures, len(found))
    return found


def loss_by_interruption(site: Site, fleet: str, selection: NodeSelection) -> FleetLoss:
    """Return what would be lost if the nodes that are meant were taken now, and how it would be replaced.

    Raises NotFoundError, ProviderError.
    """
    desired = running_fleet(site, fleet)
    found = _selected(site, fleet, selection)
    return forecast_loss(
        site, desired, found, target=selection.text, offerings=offerings_of(site, desired), surges=False
    )


async def _take(
    interruptions: Interruptions, found: tuple[Replica, ...], notice_s: float
) -> dict[str, FleetctlError]:  # fmt: skip
    """Interrupt each, whatever becomes of the others; return why replicas were not, by their ids."""
    failures: dict[str, FleetctlError] = {}

    async def take(replica: Replica) -> None:
        try:
            await interruptions.interrupt(replica.node_id, notice_s=notice_s)
        except FleetctlError as exc:
            failures[replica.id] = exc

    async with asyncio.TaskGroup() as group:
        for replica in found:
            group.create_task(take(replica))
    return failures


def _refuse_failed(failures: dict[str, FleetctlError], count: int) -> None:
    """Raise what kept the one replica from being interrupted, or ProviderError for those of several."""
    if count == 1:
        for exc in failures.values():
            raise exc
    if failures:
        which = "; ".join(f"{name}: {exc.message}" for name, exc in sorted(failures.items()))
        hint = "the others are" if len(failures) < count else "nothing is interrupted"
        raise ProviderError(f"{len(failures)} of {count} are not interrupted: {which}", hint=hint)


def _interruptions_of(site: Site, desired: Desired) -> Interruptions:
    provider = site.provider_of(desired.profile)
    found = provider.capabilities.interruptions
    if found is None:
        raise ConfigError(
            f"provider {provider.name} cannot interrupt nodes on request", hint="its own console or CLI may"
        )
    return found


def _selected(site: Site, fleet: str, selection: NodeSelection) -> tuple[Replica, ...]:
    found = tuple(r for r in site.store.replicas(fleet) if r.state.is_live and selection.matches(r))
    if not found:
        raise NotFoundError(f"nothing of {fleet} is in {selection.text}", hint=f"live: {live_names(site, fleet)}")
    return found


def _interruptible(site: Site, fleet: str, selection: NodeSelection) -> tuple[Replica, ...]:
    if selection.market is not Market.SPOT:
        raise ConfigError("only spot nodes are interrupted", hint="leave --market out, or add --dry-run")
    if not selection.target:
        return tuple(replica for replica in _selected(site, fleet, selection) if replica.node_id)
    replica = find_replica(site, fleet, selection.target)
    if replica.market is not Market.SPOT:
        raise ConfigError(
            f"{replica.id} is {replica.market}; only spot nodes are interrupted",
            hint=f"spot replicas: {live_names(site, fleet, Market.SPOT)}; to take this one out: fleetctl drain",
        )
    if not replica.node_id:
        raise UnavailableError(f"{replica.id} has no node yet", hint="wait until it is ready")
    return (replica,)
