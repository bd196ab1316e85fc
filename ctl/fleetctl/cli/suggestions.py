"""What the shell completes beyond commands and options: fleets, lanes, replicas, packaged profiles."""

import os
from collections.abc import Callable, Iterable

import typer

from fleetctl.cli.site import site_of
from fleetctl.errors import FleetctlError


def fleets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the fleets' names that begin so."""
    from fleetctl.operations.lookup import fleet_names

    return _matching(lambda: fleet_names(site_of(ctx)), incomplete)


def lanes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the lanes of the fleet FLEETCTL_FLEET names, or of the only one."""
    return _matching(lambda: _lanes(ctx), incomplete)


def replicas(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the live replicas."""
    return _matching(lambda: _replicas(ctx), incomplete)


def lanes_and_replicas(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return both."""
    return _matching(lambda: (*_lanes(ctx), *_replicas(ctx)), incomplete)


def processes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the gateway, the controller and every replica on record."""
    return _matching(lambda: ("gateway", "controller", *_replicas(ctx, with_ended=True)), incomplete)


def profiles(incomplete: str) -> list[str]:
    """Return the packaged profiles; where none fits, the shell completes files by itself."""
    from fleetctl.operations.profiles import packaged_profiles

    return _matching(packaged_profiles, incomplete)


def runbooks(incomplete: str) -> list[str]:
    """Return the runbooks there are by name; where none fits, the shell completes files by itself."""
    from fleetctl.runbooks.known_runbooks import runbook_names

    return _matching(runbook_names, incomplete)


def runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the runs of runbooks that are not over."""
    from fleetctl.runbooks.run_log import runs_of

    return _matching(lambda: [run.id for run in runs_of(site_of(ctx).store) if not run.status.is_over], incomplete)


def _lanes(ctx: typer.Context) -> list[str]:
    from fleetctl.operations.lookup import known_fleet

    return [lane.name for lane in known_fleet(site_of(ctx), _fleet(ctx)).profile.lanes]


def _replicas(ctx: typer.Context, *, with_ended: bool = False) -> list[str]:
    site = site_of(ctx)
    return [r.id for r in site.store.replicas(_fleet(ctx)) if with_ended or r.state.is_live]


def _fleet(ctx: typer.Context) -> str:
    from fleetctl.operations.lookup import chosen_fleet

    return chosen_fleet(site_of(ctx), os.environ.get("FLEETCTL_FLEET", ""))


def _matching(known: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return [name for name in known() if name.startswith(incomplete)]
    except FleetctlError:
        return []  # there is nothing to complete with, and no place to say why
