"""Finds what outlived its fleet at the providers, and removes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fleetctl.errors import AmbiguousOutcomeError, FleetctlError, ThrottledError
from fleetctl.model.head import HeadSign, is_sign_key
from fleetctl.model.node import Node, NodeState
from fleetctl.model.provider_setting import ProviderChoice, SettingValue
from fleetctl.model.shared import SharedResource
from fleetctl.model.subject import FLEET, Subject
from fleetctl.model.tagged import TaggedResource
from fleetctl.operations.commands import exclusive, journal_command
from fleetctl.ports.records import Collection
from fleetctl.ports.store import Tombstone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fleetctl.operations.site import Site
    from fleetctl.ports.provider import Provider

T = TypeVar("T")

NODE = "node"
_THROTTLED_S_MAX = 60.0
_THROTTLED_WAIT_S_MIN = 0.1
_GRACE_S = 20.0  # it serves nobody: no request is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedResource:
    """Something at a provider whose fleet is gone."""

    provider: str
    kind: str  # NODE, or the provider's own word for something shared
    id: str  # the node's, or the shared resource's token
    token: str
    owner: str
    fleet: str
    since: datetime  # when it was made, or given up
    reason: str
    shared: SharedResource | None = None
    tagged: TaggedResource | None = None  # found by its tags alone
    provider_settings: Mapping[str, SettingValue] = field(default_factory=dict)

    @property
    def provider_choice(self) -> ProviderChoice:
        """Return who has it, with the settings that it was made under."""
        return ProviderChoice(name=self.provider, settings=self.provider_settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphaned:
    """What was found."""

    resources: tuple[OrphanedResource, ...] = ()
    ended: tuple[Tombstone, ...] = ()  # their nodes are no more, by two readings: nothing is left to remove
    unasked: dict[str, str] = field(default_factory=dict)  # provider -> why it could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What became of one resource; `fault` is empty where it is gone."""

    resource: OrphanedResource
    fault: str = ""


def tombstones_left(site: Site) -> tuple[Tombstone, ...]:
    """Return the tombstones of fleets that are gone."""
    return tuple(stone for stone in site.store.tombstones() if site.store.fleet(stone.fleet) is None)


def machines_on_record(site: Site) -> frozenset[str]:
    """Return what replicas and heads run on, by the provider's ids: a machine whose tags somebody has edited still is its fleet's."""
    names: set[str] = set()
    for desired in site.store.fleets():
        living = (each for each in site.store.replicas(desired.fleet) if each.state.is_live)
        names.update(name for each in living for name in (each.node_id, each.machine_id, *each.members))
        signs = site.store.records(Collection.HEADS, fleet=desired.fleet)
        names.update(each.value_as(HeadSign).machine_id for each in signs if is_sign_key(each.key))
    return frozenset(names - {""})


async def find_orphaned(site: Site) -> Orphaned:
    """Ask every installed provider, twice, what it has of fleets that are gone, wherever those worked. Changes nothing."""
    fleets, stones = site.store.former_fleets(), tombstones_left(site)
    found, ended, unasked = list(map(_buried, (s for s in stones if s.shared is not None))), [], {}
    machines = machines_on_record(site)
    for choice in places(site, stones):
        orders = tuple(s for s in stones if s.shared is None and _choice_of(s) == choice)
        try:
            nodes, over, in_part = await _found_at(site, site.provider(choice), fleets, orders)
        except FleetctlError as exc:
            unasked[str(choice)] = exc.message
            continue
        known = {each.token for each in found}  # two ways to say the same place show the same nodes
        found += [_orphaned_node(choice, node) for node in nodes if node.token not in known and node.id not in machines]
        ended += over
        if in_part:
            unasked[str(choice)] = f"it lists only a part of what is left of {', '.join(sorted(in_part))}"
    return Orphaned(resources=tuple(found), ended=tuple(ended), unasked=unasked)


def places(site: Site, stones: tuple[Tombstone, ...]) -> tuple[ProviderChoice, ...]:
    """Return the installed providers without settings, and with those of every fleet that has been, each once."""
    noted = [record.value_as(ProviderChoice) for record in site.store.records(Collection.PROVIDERS)]
    named = [ProviderChoice(name=name) for name in site.provider_names()]
    left = sorted([*noted, *map(_choice_of, stones)], key=str)
    return tuple({str(choice): choice for choice in (*named, *left)}.values())


def _choice_of(stone: Tombstone) -> ProviderChoice:
    return ProviderChoice(name=stone.provider, settings=stone.provider_settings)


async def remove_orphaned(site: Site, orphaned: Orphaned, *, timeout_s: float) -> tuple[Removal, ...]:
    """Remove what was found, and wait for its end. A tombstone is there before each call, and until its end was seen."""
    for stone in orphaned.ended:
        site.store.unbury(stone.token)
    faults = {each.token: await _attempt(site, each) for each in orphaned.resources}
    deadline_s = site.clock.monotonic_s() + timeout_s
    removals = []
    for each in orphaned.resources:
        fault = faults[each.token]
        if not fault and each.shared is None:
            fault = await _await_end(site, each, deadline_s)
        if not fault:
            site.store.unbury(each.token)
        removals.append(Removal(resource=each, fault=fault))
    return tuple(removals)


async def _found_at(
    site: Site, provider: Provider, fleets: tuple[str, ...], orders: tuple[Tombstone, ...]
) -> tuple[list[Node], list[Tombstone], set[str]]:
    """Return the nodes that two readings show alive, the tombstones whose nodes neither shows, and fleets seen in part."""
    first, _ = await _reading(site, provider, fleets, orders)
    if not first and not orders:
        return [], [], set()
    await site.clock.sleep(provider.pace.list_interval_s)
    fleets = tuple(sorted({node.fleet for node in first.values()} | {s.fleet for s in orders if s.is_of_fleet}))
    second, in_part = await _reading(site, provider, fleets, orders)
    alive = [node for token, node in second.items() if token in first]
    # Nobody can deny yet what was given up a moment ago: it may still be made, or not be shown.
    unseen = timedelta(seconds=provider.pace.create_settles_s + provider.pace.consistency_lag_s)
    settled = [stone for stone in orders if stone.ended_at + unseen < site.clock.now()]
    over = [s for s in settled if s.token not in first and s.token not in second]
    # A whole fleet's is over once a complete listing shows none of it; what it does show is removed by itself.
    left = {*in_part, *(node.fleet for node in alive)}
    return alive, [s for s in over if not s.is_of_fleet or s.fleet not in left], in_part


async def _reading(
    site: Site, provider: Provider, fleets: tuple[str, ...], orders: tuple[Tombstone, ...]
) -> tuple[dict[str, Node], set[str]]:
    """Return the living nodes of these fleets and orders that are ours, by token, and the fleets listed only in part."""
    owner, pace = site.store.owner, provider.pace
    nodes: list[Node] = []
    in_part: set[str] = set()
    for fleet in fleets:
        call = partial(provider.list_nodes, owner=owner, fleet=fleet)
        listing = await patiently(site, call, pace.list_deadline_s)
        nodes += listing.nodes
        in_part |= set() if listing.is_complete else {fleet}
    for stone in (s for s in orders if not s.is_of_fleet):
        describe = partial(provider.describe, stone.token, owner=owner)
        node = await patiently(site, describe, pace.describe_deadline_s)
        nodes += [node] if node is not None else []
    living = (node for node in nodes if node.owner == owner and node.state is not NodeState.GONE)
    return {node.token: node for node in living}, in_part


async def _attempt(site: Site, resource: OrphanedResource) -> str:
    """Have a resource end; return why not, if so."""
    with exclusive(site, resource.fleet):
        if site.store.fleet(resource.fleet) is not None:
            return "its fleet is there again, and looks after it"
        subject = Subject.node(resource.id) if resource.shared is None else FLEET
        site.store.bury(_tombstone(site, resource))
        journal_command(
            site,
            resource.fleet,
            subject=subject,
            action="gc",
            reason=f"{resource.kind} {resource.id}: {resource.reason}",
        )
        provider = site.provider(resource.provider_choice)
        try:
            await _removed(site, provider, resource)
        except FleetctlError as exc:
            return exc.message
    return ""


async def _removed(site: Site, provider: Provider, resource: OrphanedResource) -> None:
    pace, shared = provider.pace, resource.shared
    if shared is None:
        await patiently(site, lambda: provider.stop(resource.id, grace_s=_GRACE_S), pace.stop_deadline_s)
        return
    capability = provider.capabilities.shared
    if capability is None:
        raise FleetctlError(f"provider {provider.name} no longer tears down what nodes share")
    await patiently(site, lambda: capability.teardown(shared), pace.teardown_deadline_s)


async def _await_end(site: Site, resource: OrphanedResource, deadline_s: float) -> str:
    """Wait until the provider says that a node has ended, or knows it no longer; return why not, if so."""
    provider, owner = site.provider(resource.provider_choice), site.store.owner
    while True:
        try:
            node = await patiently(
                site, lambda: provider.describe(resource.token, owner=owner), provider.pace.describe_deadline_s
            )
        except FleetctlError as exc:
            return f"told to end; {exc.message}"
        if node is None or node.state is NodeState.GONE:
            return ""
        if site.clock.monotonic_s() >= deadline_s:
            return "told to end, and still there"
        await site.clock.sleep(provider.pace.list_interval_s)


async def patiently(site: Site, call: Callable[[], Awaitable[T]], deadline_s: float) -> T:
    """Call within a deadline; throttled, call again when the provider says, for at most a minute in all."""
    started_s = site.clock.monotonic_s()
    while True:
        try:
            async with asyncio.timeout(deadline_s):
                return await call()
        except TimeoutError as exc:
            raise AmbiguousOutcomeError(f"the provider did not answer within {deadline_s:g} s") from exc
        except ThrottledError as exc:
            wait_s = max(_THROTTLED_WAIT_S_MIN, exc.retry_after_s)
            if site.clock.monotonic_s() + wait_s - started_s > _THROTTLED_S_MAX:
                raise
            await site.clock.sleep(wait_s)


def _buried(stone: Tombstone) -> OrphanedResource:
    shared = stone.shared
    return OrphanedResource(
        provider=stone.provider,
        kind=shared.kind if shared else NODE,
        id=stone.token,
        token=stone.token,
        owner=shared.owner if shared else "",
        fleet=stone.fleet,
        since=stone.ended_at,
        reason=stone.reason,
        shared=shared,
        provider_settings=stone.provider_settings,
    )


def _orphaned_node(choice: ProviderChoice, node: Node) -> OrphanedResource:
    return OrphanedResource(
        provider=choice.name,
        kind=NODE,
        id=node.id,
        token=node.token,
        owner=node.owner,
        fleet=node.fleet,
        since=node.created_at,
        reason=f"carries our tags as {node.replica_id} of a fleet that is gone",
        provider_settings=choice.settings,
    )


def _tombstone(site: Site, resource: OrphanedResource) -> Tombstone:
    return Tombstone(
        token=resource.token,
        provider=resource.provider,
        fleet=resource.fleet,
        replica_id="",
        node_id=resource.id if resource.shared is None else "",
        offering="",
        ended_at=resource.since if resource.shared is not None else site.clock.now(),
        reason=resource.reason,
        shared=resource.shared,
        provider_settings=dict(resource.provider_settings),
    )
