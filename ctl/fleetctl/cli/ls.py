"""`fleetctl ls`."""

import typer

from fleetctl.cli.fleet_views import fleets_view
from fleetctl.cli.options import Check, Output, Watch
from fleetctl.cli.output import Format, emit
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import show
from fleetctl.operations.fleets import list_fleets
from fleetctl.operations.lookup import fleet_names
from fleetctl.operations.orphaned_processes import describe, orphaned_processes
from fleetctl.operations.service_check import check_service
from fleetctl.operations.site import Site


def ls(ctx: typer.Context, *, output: Output = Format.TABLE, watch: Watch = False, check: Check = False) -> None:
    """List fleets: status, replicas ready of wanted, how many on spot, cost now."""
    site = site_of(ctx)
    if not fleet_names(site):
        _name_living(site)
    location = site.store.location
    if check:
        seen = list_fleets(site)
        emit(fleets_view(seen, location=location), output)
        check_service(seen)
        return
    show(site.clock, lambda: fleets_view(list_fleets(site), location=location), output, watch=watch)


def _name_living(site: Site) -> None:
    """Say what lives of fleets that the state does not know: it was deleted, or moved away."""
    found = orphaned_processes(site)
    if found:
        downs = "; ".join(f"fleetctl down {fleet}" for fleet in sorted({each.fleet for each in found}))
        Progress().caution(
            f"{site.store.location} knows no fleet, and these run on it: {describe(found)}; "
            f"put the state back where it was, or end them: {downs}"
        )
