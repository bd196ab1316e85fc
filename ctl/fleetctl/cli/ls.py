"""`fleetctl ls`."""

from fleetctl.cli.attend import attend_all
from fleetctl.cli.fleet_views import fleets_view
from fleetctl.cli.options import Output, Watch
from fleetctl.cli.output import Format
from fleetctl.cli.watching import show
from fleetctl.operations.fleets import list_fleets


def ls(output: Output = Format.TABLE, watch: Watch = False) -> None:
    """List fleets: status, replicas ready of wanted, how many on spot, cost now."""
    attend_all()
    show(lambda: fleets_view(list_fleets()), output, watch=watch)
