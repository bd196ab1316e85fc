"""Composes what the commands work on: the user's store, this machine as the host, the installed plugins."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

    from fleetctl.operations.site import Site
    from fleetctl.state.opening import OpenStore


class UserSite:
    """Makes the user's Site when a command first asks for it: `--help` and `schema` never pay for one."""

    def __init__(self, argv: Sequence[str] = ()) -> None:
        self._store: OpenStore | None = None
        self.argv = tuple(argv)
        self.is_readonly = False

    @cached_property
    def site(self) -> Site:
        """The one Site of this command line."""
        from fleetctl.cli.progress import Progress
        from fleetctl.clock import SYSTEM_CLOCK
        from fleetctl.environment import ON_HEAD, STATE_URL
        from fleetctl.operations.actors import current_actor
        from fleetctl.operations.fleet_hosts import FleetHosts
        from fleetctl.operations.site import Site
        from fleetctl.plugins import (
            HOSTS,
            configured,
            host_within,
            load,
            load_engine,
            load_host_within,
            load_provider,
        )
        from fleetctl.state.opening import open_store

        self._store = store = open_store(os.environ.get(STATE_URL, ""), opens_on_use=True)
        tell = Progress().note
        local = load_host_within(host_within(os.environ))
        hosts = FleetHosts(
            local, load=lambda name: load(HOSTS, name), store=lambda: store, clock=SYSTEM_CLOCK, tell=tell,
            provider=lambda choice: configured(load_provider(choice.name), choice.settings),
        )  # fmt: skip
        return Site(
            store=store,
            # On a head everything of its fleet is of that machine.
            host=local if ON_HEAD in os.environ else hosts,
            providers=load_provider,
            engines=load_engine,
            clock=SYSTEM_CLOCK,
            actor=current_actor(os.environ),
            is_readonly=self.is_readonly,
            tell=tell,
        )

    def close(self) -> None:
        """Close the store, if it was opened."""
        if self._store is not None:
            self._store.close()


class GivenSite:
    """Stands in for UserSite where a caller composes the Site itself."""

    def __init__(self, site: Site, argv: Sequence[str] = ()) -> None:
        self._site = site
        self.argv = tuple(argv)
        self.is_readonly = site.is_readonly

    @property
    def site(self) -> Site:
        """The Site as it was given, read only where the command line wants that."""
        return replace(self._site, is_readonly=True) if self.is_readonly else self._site

    def close(self) -> None:
        """Leave it to the caller."""


def site_of(ctx: typer.Context) -> Site:
    """Return the Site of the command line that `ctx` belongs to."""
    found: UserSite | GivenSite = ctx.find_root().obj
    return found.site
