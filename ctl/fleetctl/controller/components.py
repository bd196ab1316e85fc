"""Puts together what a tick works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.controller.apply import Applier
from fleetctl.controller.background import BackgroundTasks
from fleetctl.controller.budgets import Budgets
from fleetctl.controller.canary import Canaries
from fleetctl.controller.cost_log import CostLog
from fleetctl.controller.create import Creator
from fleetctl.controller.host_upkeep import HostUpkeep
from fleetctl.controller.intents import Resolver
from fleetctl.controller.interruption_log import InterruptionLog
from fleetctl.controller.journal import Journal
from fleetctl.controller.launch import Launcher
from fleetctl.controller.listing import Listing
from fleetctl.controller.node_cache import NodeCache
from fleetctl.controller.observe import Observer
from fleetctl.controller.offerings import Offerings
from fleetctl.controller.place import PlaceGuard
from fleetctl.controller.probes import Probes
from fleetctl.controller.provider_calls import ProviderCalls
from fleetctl.controller.publish import Publisher
from fleetctl.controller.records import Records
from fleetctl.controller.restarts import Restarts
from fleetctl.controller.revisions import Revisions
from fleetctl.controller.shadow import ShadowPolicy
from fleetctl.controller.shared import SharedOperations
from fleetctl.controller.start_watch import StartWatch
from fleetctl.controller.warm import Warmups
from fleetctl.core.reconcile.limits import STOP_AGAIN_S
from fleetctl.model.subject import FLEET, Subject

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from fleetctl.controller.world import World


class Components:
    """Everything a tick works with."""

    def __init__(self, world: World, group: asyncio.TaskGroup, wake: Callable[[], None]) -> None:
        self.journal = Journal(world.store, world.fleet, world.clock, epoch=world.epoch)
        self.background = BackgroundTasks(group, on_end=wake, on_error=self._report)
        self.records, self.revisions, self.calls = Records(world.store), Revisions(world), _provider_calls(world)
        self.capabilities, self.cache = world.provider.capabilities, _node_cache(world)
        self.listing = Listing(
            world, calls=self.calls, cache=self.cache, background=self.background, journal=self.journal, on_change=wake
        )
        self.host_upkeep = HostUpkeep(world, calls=self.calls, journal=self.journal)
        self.offerings = Offerings(world, self.calls, self.journal, wake)
        self.probes, self.budgets = Probes(world, self.background, wake), Budgets(world)
        self.start_watch, self.cost_log = StartWatch(world, self.background, self.journal, wake), CostLog(world)
        self.warmups = Warmups(world, self.background, self.journal)
        self.canaries, self.shadow = Canaries(world, self.background, wake), ShadowPolicy(world, self.journal)
        self.publisher, self.interruption_log = Publisher(world, self.journal), InterruptionLog(world)
        self.shared = SharedOperations(world, calls=self.calls, background=self.background, journal=self.journal)
        self.creator = Creator(
            world, calls=self.calls, cache=self.cache, records=self.records, background=self.background,
            journal=self.journal,
        )  # fmt: skip
        self.launcher = Launcher(world, self.records, self.journal, offerings=self.offerings, creator=self.creator)
        self.resolver = Resolver(
            world, records=self.records, creator=self.creator, cache=self.cache, listing=self.listing, journal=self.journal
        )  # fmt: skip
        self.restarts = Restarts(
            world, calls=self.calls, records=self.records, background=self.background, journal=self.journal,
            probes=self.probes,
        )  # fmt: skip
        self.observer = Observer(
            world,
            calls=self.calls,
            cache=self.cache,
            listing=self.listing,
            offerings=self.offerings,
            creator=self.creator,
            resolver=self.resolver,
            probes=self.probes,
            start_watch=self.start_watch,
            warmups=self.warmups,
            canaries=self.canaries,
            restarts=self.restarts,
            publisher=self.publisher,
        )
        self.applier = Applier(
            world,
            calls=self.calls,
            cache=self.cache,
            records=self.records,
            background=self.background,
            journal=self.journal,
            warmups=self.warmups,
            canaries=self.canaries,
            probes=self.probes,
            restarts=self.restarts,
            observer=self.observer,
            shared=self.shared,
            revisions=self.revisions,
        )

    def keep_looking(self) -> None:
        """Have listings, offerings and events come in; started again should one of them have ended by a bug."""
        self.background.start("listing", self.listing.keep_fresh, wakes=False)
        self.background.start("allotting", self.publisher.allotting.keep, wakes=False)
        self.background.start("offerings", self.offerings.keep_fresh, wakes=False)
        if self.host_upkeep.objects is not None:
            self.background.start("host", self.host_upkeep.keep, wakes=False)
        events, sold = self.capabilities.events, self.capabilities.offering_events
        if events is not None:
            self.background.start("watch", lambda: self.listing.keep_watching(events), wakes=False)
        if sold is not None:
            self.background.start("watch-offerings", lambda: self.offerings.keep_watching(sold), wakes=False)

    def _report(self, key: str, error: Exception) -> None:
        work, _, subject = key.partition("/")
        about = {"stop": Subject.node(subject), "shared": FLEET}.get(work, Subject.replica(subject))
        self.journal.failed(about if subject else FLEET, work, error)


def _node_cache(world: World) -> NodeCache:
    pace = world.provider.pace
    return NodeCache(lag_s=pace.consistency_lag_s, stop_again_s=max(STOP_AGAIN_S, pace.stop_deadline_s))


def _provider_calls(world: World) -> ProviderCalls:
    store = world.store
    guard = PlaceGuard(world.provider, store, world.clock, fleet=world.fleet)
    return ProviderCalls(
        world.provider, world.clock, owner=store.owner, fleet=world.fleet, verify_lease=store.verify_lease,
        confirm_place=guard.confirm,
    )  # fmt: skip
