"""`fleetctl status`."""

from fleetctl.cli.attend import attended_fleet
from fleetctl.cli.fleet_views import status_view
from fleetctl.cli.options import Fleet, Output, Watch
from fleetctl.cli.output import Format
from fleetctl.cli.watching import show
from fleetctl.operations import fleets


def status(fleet: Fleet = "", output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Show a fleet: lanes (wanted, ready, spot, tail against SLO), replicas, cost, each with its reason.

    Status words: READY, STARTING, BREACH (outside its SLO), DEGRADED (replicas missing, a ladder step taken, no
    gateway), STALE (the controller does not answer), STOPPING, DOWN. A figure marked ~ rests on few samples.
    """
    name = attended_fleet(fleet)
    show(lambda: status_view(fleets.status(name)), output, watch=watch)
