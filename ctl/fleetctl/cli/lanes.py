"""`fleetctl lanes`."""

from fleetctl.cli.attend import attended_fleet
from fleetctl.cli.fleet_views import lanes_view
from fleetctl.cli.options import Fleet, Output, Watch
from fleetctl.cli.output import Format
from fleetctl.cli.watching import show
from fleetctl.operations import fleets


def lanes(fleet: Fleet = "", output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show each lane's figures over the last minute (or five, where a minute holds none).

    RPS is offered, OK finished inside the SLO, REFUSED answered 429, WAIT the P99 in the queue. A P99 marked ~ rests on
    few samples. -o wide adds P50 and P95, end to end, and BURN: the share of bad requests over the share the objective
    allows; above 1x the error budget shrinks.
    """
    name = attended_fleet(fleet)
    show(lambda: lanes_view(fleets.status(name)), output, watch=watch)
