"""`fleetctl ls`."""

import typer

from fleetctl.cli.fleet_views import fleets_view
from fleetctl.cli.options import Output, Watch
from fleetctl.cli.output import Format
from fleetctl.cli.revive import revive_all
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import show
from fleetctl.operations.fleets import list_fleets


def ls(ctx: typer.Context, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """List fleets: status, replicas ready of wanted, how many on spot, cost now."""
    site = site_of(ctx)
    revive_all(site)
    show(site.clock, lambda: fleets_view(list_fleets(site)), output, watch=watch)
