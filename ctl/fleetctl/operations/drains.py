"""Has everything on a node or in a zone leave and keeps new replicas from it, or lets it come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from fleetctl.core.drains import NODE, ZONE, cordon_of, is_drain_requested, targets_of, with_drain
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.desired import Cordon
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET, Subject
from fleetctl.operations.audit import audited
from fleetctl.operations.command_rate import refuse_too_many
from fleetctl.operations.commands import exclusive, journal_command, wake_controller
from fleetctl.operations.freezing import refuse_frozen
from fleetctl.operations.lookup import known_fleet, running_fleet
from fleetctl.operations.losses import forecast_loss, offerings_of
from fleetctl.operations.terms import new_terms
from fleetctl.units import format_count

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired, Overrides
    from fleetctl.model.loss import FleetLoss
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site
    from fleetctl.operations.terms import Until

_LEAVING = (ReplicaState.DRAINING, ReplicaState.STOPPING)


class DrainOptions(TypedDict, total=False):
    """What may be said of the drain of a node or a zone."""

    reason: str
    until: Until
    is_immediate: bool
    override_freeze: bool
    force: bool
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UndrainedReplica:
    """What becomes of a replica whose drain is taken back."""

    id: str
    returns: bool  # it serves on, or again
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undrain:
    """What an undrain ends, and which replicas it brings back."""

    fleet: str
    target: str
    was_cordoned: bool
    replicas: tuple[UndrainedReplica, ...]


def drain_node(site: Site, fleet: str, node: str, **options: Unpack[DrainOptions]) -> FleetLoss:
    """Have the replicas on a node or a machine leave, and cordon it; as `drain_target`."""
    return drain_target(site, fleet, f"{NODE}/{node}", **options)


def drain_zone(site: Site, fleet: str, zone: str, **options: Unpack[DrainOptions]) -> FleetLoss:
    """Have the replicas in a zone leave, and cordon it; as `drain_target`."""
    return drain_target(site, fleet, f"{ZONE}/{zone}", **options)


def drain_target(  # noqa: PLR0913  # what may be said of a drain, each named
    site: Site,
    fleet: str,
    target: str,
    *,
    reason: str = "",
    until: Until = None,
    is_immediate: bool = False,
    override_freeze: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> FleetLoss:
    """Have all replicas on "node/ID" or in "zone/NAME" leave, as far as others serve in their stead; launch none there.

    The cordon holds until `undrain`, or its end. `is_immediate` does not wait for others to serve. Raises NotFoundError,
    ConfigError, FrozenError, ProviderError.
    """
    terms = new_terms(site, until=until, reason=reason)
    with audited(site, "drain", fleet=fleet, dry_run=dry_run) as attempt:
        desired = running_fleet(site, fleet)
        offerings = offerings_of(site, desired)
        _check_known(site, desired, target, {offering.zone for offering in offerings})
        cordon = Cordon(terms=terms, is_immediate=is_immediate)
        going = replicas_on(site, desired, target)
        found = forecast_loss(
            site, desired, going, target=target, offerings=offerings, surges=not is_immediate, is_cordoned=True
        )
        lanes = tuple(dict.fromkeys(record.lane for record in going))
        refuse_frozen(desired, lanes or _all_lanes(desired), "draining is held back", override=override_freeze)
        if dry_run:
            return found
        refuse_too_many(site, fleet, force=force)
        with exclusive(site, fleet):
            held = running_fleet(site, fleet).overrides
            gone = set(found.replicas)
            new = replace(
                held,
                cordons={**held.cordons, target: cordon},
                undrained=tuple(each for each in held.undrained if each not in gone),
            )
            site.store.set_overrides(fleet, new, now=site.clock.now())
        text = f"{target} cordoned, {format_count(len(found.replicas), 'replica')} to leave{terms.end_text}"
        attempt.note(text)
        journal_command(site, fleet, subject=FLEET, action="drain", reason=text)
        wake_controller(site, fleet)
    return found


def replicas_on(site: Site, desired: Desired, target: str) -> list[Replica]:
    """Return the live replicas on "node/ID" or in "zone/NAME" that have not begun to leave."""
    live = [r for r in site.store.replicas(desired.fleet) if r.state.is_live and r.state not in _LEAVING]
    return [record for record in live if target in targets_of(record)]


def undrain(site: Site, fleet: str, target: str, *, dry_run: bool = False) -> Undrain:
    """Take back the drain of a replica, "node/ID" or "zone/NAME"; what has not been stopped yet serves again.

    Raises NotFoundError, ConfigError (a replica that leaves with its node or zone), ProviderError.
    """
    with audited(site, "undrain", fleet=fleet, dry_run=dry_run) as attempt:
        with exclusive(site, fleet):
            desired = known_fleet(site, fleet)
            found, after = _undrained(site, desired, target)
            if dry_run or after == desired.overrides:
                return found
            site.store.set_overrides(fleet, after, now=site.clock.now())
            back = ", ".join(each.id for each in found.replicas if each.returns) or "none"
            attempt.note(f"{target}: undrained; back in rotation: {back}")
            subject = FLEET if found.was_cordoned else Subject.replica(found.replicas[0].id)
            journal_command(site, fleet, subject=subject, action="undrain", reason=f"{target}, by hand; back: {back}")
        wake_controller(site, fleet)
    return found


def _undrained(site: Site, desired: Desired, target: str) -> tuple[Undrain, Overrides]:
    held = desired.overrides
    live = [record for record in site.store.replicas(desired.fleet) if record.state.is_live]
    if target.startswith((f"{NODE}/", f"{ZONE}/")):
        cordons = {key: cordon for key, cordon in held.cordons.items() if key != target}
        after = replace(held, cordons=cordons)
        there = [record for record in live if (at := cordon_of(record, held)) is not None and at[0] == target]
        was_cordoned = target in held.cordons
        if not was_cordoned and target.startswith(ZONE):
            _check_known(site, desired, target, {offering.zone for offering in offerings_of(site, desired)})
    else:
        record = _find(live, desired, target.removeprefix("replica/"))
        after, there, was_cordoned = _without_drain(record, live, desired), [record], False
    replicas = tuple(_after_undrain(record, held, after) for record in there)
    return Undrain(fleet=desired.fleet, target=target, was_cordoned=was_cordoned, replicas=replicas), after


def _without_drain(record: Replica, live: list[Replica], desired: Desired) -> Overrides:
    held = desired.overrides
    at = cordon_of(record, held)
    if at is not None:
        raise ConfigError(
            f"{record.id} leaves with {at[0]}, which is cordoned{at[1].terms.text}",
            hint=f"bring all of it back: fleetctl undrain {at[0]}",
        )
    if not is_drain_requested(record, held):
        return held
    ids = {each.id for each in live}
    return replace(held, undrained=(*(each for each in held.undrained if each in ids), record.id))


def _after_undrain(record: Replica, before: Overrides, after: Overrides) -> UndrainedReplica:
    """Return whether a replica serves again, by its record; the controller also looks whether it still works."""
    if with_drain(record, after).drain_requested:
        return UndrainedReplica(id=record.id, returns=False, reason="it was asked to leave otherwise too")
    if record.state is ReplicaState.STOPPING:
        return UndrainedReplica(id=record.id, returns=False, reason="its node has been told to end")
    if record.state is not ReplicaState.DRAINING:
        was_asked = with_drain(record, before).drain_requested
        return UndrainedReplica(
            id=record.id, returns=True, reason="it had not begun to leave" if was_asked else "nobody asked it to leave"
        )
    if record.drain_code is not ReasonCode.OPERATOR:
        return UndrainedReplica(id=record.id, returns=False, reason=f"it drains for another reason: {record.reason}")
    if record.notice_deadline is not None:
        return UndrainedReplica(id=record.id, returns=False, reason="its node is being taken")
    return UndrainedReplica(id=record.id, returns=True, reason="it drains still, and goes back into rotation")


def _find(live: list[Replica], desired: Desired, target: str) -> Replica:
    for record in live:
        if target in (record.id, record.node_id):
            return record
    names = ", ".join(record.id for record in live if record.state in _LEAVING or record.drain_requested)
    raise NotFoundError(
        f"fleet {desired.fleet!r} has no live replica or node {target!r}", hint=f"leaving: {names or 'none'}"
    )


def _check_known(site: Site, desired: Desired, target: str, zones: set[str]) -> None:
    """Raise NotFoundError for a zone that nothing is sold in, or a node that no replica is on."""
    kind, _, name = target.partition("/")
    live = [record for record in site.store.replicas(desired.fleet) if record.state.is_live]
    if kind == ZONE:
        known = zones | {record.zone for record in live if record.zone}
        if name not in known:
            raise NotFoundError(f"no zone {name!r}", hint=f"zones: {', '.join(sorted(known)) or 'none'}")
        return
    nodes = {each for record in live for each in (record.node_id, record.machine_id, *record.members) if each}
    if name not in nodes:
        raise NotFoundError(
            f"fleet {desired.fleet!r} has no live replica or node {name!r}", hint=f"nodes: {', '.join(sorted(nodes))}"
        )


def _all_lanes(desired: Desired) -> tuple[str, ...]:
    return tuple(spec.name for spec in desired.profile.lanes)
