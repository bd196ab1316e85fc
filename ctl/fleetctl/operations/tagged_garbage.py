"""Finds by their tags alone what no record knows of any more, and removes it: heads, templates, groups, volumes, instances."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError, ProviderError
from fleetctl.model.subject import FLEET
from fleetctl.operations.commands import exclusive, journal_command
from fleetctl.operations.garbage import (
    Orphaned,
    OrphanedResource,
    Removal,
    machines_on_record,
    patiently,
    places,
    tombstones_left,
)
from fleetctl.ports.records import Collection
from fleetctl.spelling import is_name

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.provider_setting import ProviderChoice
    from fleetctl.model.tagged import TaggedListing, TaggedResource
    from fleetctl.operations.site import Site
    from fleetctl.ports.provider import Provider, TaggedResources

# What is being made may carry its tags before anybody has written down that it is there.
_AGE_MIN = timedelta(minutes=5)


async def find_tagged(site: Site, *, owner: str = "") -> Orphaned:
    """Ask every provider, twice, what carries the tags of a state and belongs to no fleet of this one. Changes nothing.

    `owner` is another state's, one that was lost; left out: this one's own. What is younger than five minutes is left alone,
    as is whatever a record of ours stands for: a fleet, a replica's machine, a head's record, a tombstone of `gc` itself.
    """
    whose = owner or site.store.owner
    found: dict[str, OrphanedResource] = {}
    unasked: dict[str, str] = {}
    for choice in places(site, tombstones_left(site)):
        try:
            provider = site.provider(choice)
            capability = provider.capabilities.tagged
            if capability is None:
                continue
            shown, unread = await _twice(site, provider, capability, whose)
        except FleetctlError as exc:
            unasked[str(choice)] = exc.message
            continue
        known = frozenset() if owner and owner != site.store.owner else _known_fleets(site)
        machines = machines_on_record(site)
        now = site.clock.now()
        for each in shown:
            # A name that no fleet can have was written by nobody of ours.
            if is_name(each.fleet) and each.fleet not in known and each.id not in machines and _is_old(each, now):
                found.setdefault(each.id, _orphaned(choice, each, now))
        unasked.update({f"{choice}, {kind}": why for kind, why in unread.items()})
    return Orphaned(resources=tuple(found.values()), unasked=unasked)


async def remove_tagged(
    site: Site, resources: tuple[OrphanedResource, ...], *, timeout_s: float
) -> tuple[Removal, ...]:
    """Remove what was found, in its order, and wait until no listing shows it; what something else still holds is tried again."""
    deadline_s = site.clock.monotonic_s() + timeout_s
    removals: list[Removal] = []
    for each in resources:
        with exclusive(site, each.fleet):
            if each.owner == site.store.owner and each.fleet in _known_fleets(site):
                removals.append(Removal(resource=each, fault="its fleet is there again, and looks after it"))
                continue
            if each.id in machines_on_record(site):
                removals.append(Removal(resource=each, fault="a replica on record has it by now"))
                continue
            reason = f"{each.kind} {each.id}: {each.reason}"
            journal_command(site, each.fleet, subject=FLEET, action="gc", reason=reason)
            removals.append(Removal(resource=each, fault=await _removed(site, each, deadline_s)))
    return tuple(removals)


async def _removed(site: Site, resource: OrphanedResource, deadline_s: float) -> str:
    """Have one end and see it gone; return why not, if so."""
    provider = site.provider(resource.provider_choice)
    capability, item = provider.capabilities.tagged, resource.tagged
    if capability is None or item is None:
        return f"provider {provider.name} no longer finds things by their tags"
    while True:
        fault = ""
        try:
            await patiently(site, lambda: capability.remove_tagged(item), provider.pace.teardown_deadline_s)
        except ProviderError as exc:
            fault = exc.message
        try:
            if not fault and not await _is_shown(site, provider, capability, item):
                return ""
        except ProviderError as exc:
            return f"told to end; {exc.message}"
        if site.clock.monotonic_s() >= deadline_s:
            return fault or "told to end, and still there"
        await site.clock.sleep(provider.pace.list_interval_s)


async def _is_shown(site: Site, provider: Provider, capability: TaggedResources, item: TaggedResource) -> bool:
    listing = await _listing(site, provider, capability, item.owner)
    return any((each.kind, each.id) == (item.kind, item.id) for each in listing.resources)


async def _twice(
    site: Site, provider: Provider, capability: TaggedResources, owner: str
) -> tuple[tuple[TaggedResource, ...], dict[str, str]]:
    """Return what two readings show, and what neither could read."""
    first = await _listing(site, provider, capability, owner)
    if not first.resources:
        return (), first.unread
    await site.clock.sleep(provider.pace.list_interval_s)
    second = await _listing(site, provider, capability, owner)
    before = {(each.kind, each.id) for each in first.resources}
    return tuple(each for each in second.resources if (each.kind, each.id) in before), first.unread | second.unread


async def _listing(site: Site, provider: Provider, capability: TaggedResources, owner: str) -> TaggedListing:
    return await patiently(site, lambda: capability.tagged(owner), provider.pace.list_deadline_s)


def _known_fleets(site: Site) -> frozenset[str]:
    """Return the fleets that somebody still looks after: those there are, those whose head is, and those that left a tombstone.

    The nodes of a fleet that has been are found by listings of its own, as everywhere.
    """
    there = {desired.fleet for desired in site.store.fleets()}
    headed = {record.fleet for record in site.store.records(Collection.HOSTS)}
    return frozenset(there | headed | {stone.fleet for stone in tombstones_left(site)})


def _is_old(each: TaggedResource, now: datetime) -> bool:
    return each.created_at is None or now - each.created_at >= _AGE_MIN


def _orphaned(choice: ProviderChoice, each: TaggedResource, now: datetime) -> OrphanedResource:
    return OrphanedResource(
        provider=choice.name,
        kind=each.kind,
        id=each.id,
        token=each.id,
        owner=each.owner,
        fleet=each.fleet,
        since=each.created_at or now,
        reason=f"carries the tags of {each.fleet}, which no record knows",
        tagged=each,
        provider_settings=choice.settings,
    )
