"""`fleetctl lanes`."""

import typer

from fleetctl.cli.absence import read_fleet
from fleetctl.cli.fleet_views import lanes_view
from fleetctl.cli.options import Fleet, Output, Watch
from fleetctl.cli.output import Format
from fleetctl.cli.site import site_of
from fleetctl.cli.watching import show
from fleetctl.operations import fleets


def lanes(ctx: typer.Context, fleet: Fleet = "", output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show each lane's figures over the last minute (or five, where a minute holds none).

    RPS is offered, OK finished inside the SLO, REFUSED answered 429, WAIT the P99 in the queue. A P99 marked ~ rests on
    few samples. -o wide adds P50 and P95, end to end, and BURN: the share of bad requests over the share the objective
    allows; above 1x the error budget shrinks.
    """
    site = site_of(ctx)
    name = read_fleet(site, fleet)
    show(site.clock, lambda: lanes_view(fleets.status(site, name)), output, watch=watch)
