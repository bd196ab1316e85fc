"""`fleetctl status`."""

import typer

from fleetctl.cli.fleet_views import status_view
from fleetctl.cli.options import Check, Fleet, Output, Watch
from fleetctl.cli.output import Format, emit
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import show
from fleetctl.operations import fleets
from fleetctl.operations.lookup import watched_fleet
from fleetctl.operations.service_check import check_service


def status(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    output: Output = Format.TABLE,
    watch: Watch = False,
    check: Check = False,
) -> None:
    """Show a fleet: lanes (wanted, ready, spot, tail against SLO), replicas, cost, each with its reason.

    Conditions: READY, STARTING, BREACH (surely outside its SLO), DEGRADED (replicas missing, a ladder step taken, no
    gateway), STALE (no controller runs, or it does not answer: looking starts none), STOPPING, DOWN: the worst for
    users first, with every reason. A figure marked ~ rests on few samples.
    """
    site = site_of(ctx)
    name = watched_fleet(site, fleet)
    if check:
        seen = fleets.status(site, name)
        emit(status_view(seen), output)
        check_service([seen])
        return
    show(site.clock, lambda: status_view(fleets.status(site, name)), output, watch=watch)
