"""`fleetctl ls`."""

import typer

from fleetctl.cli.fleet_views import fleets_view
from fleetctl.cli.options import Check, Output, Watch
from fleetctl.cli.output import Format, emit
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import show
from fleetctl.operations.fleets import list_fleets
from fleetctl.operations.service_check import check_service


def ls(ctx: typer.Context, *, output: Output = Format.TABLE, watch: Watch = False, check: Check = False) -> None:
    """List fleets: status, replicas ready of wanted, how many on spot, cost now."""
    site = site_of(ctx)
    location = site.store.location
    if check:
        seen = list_fleets(site)
        emit(fleets_view(seen, location=location), output)
        check_service(seen)
        return
    show(site.clock, lambda: fleets_view(list_fleets(site), location=location), output, watch=watch)
