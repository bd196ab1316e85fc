"""`fleetctl diagnose`."""

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.diagnosis_views import diagnosis_view
from fleetctl.cli.options import Fleet, Output
from fleetctl.cli.output import Format, emit
from fleetctl.cli.site import site_of
from fleetctl.operations import diagnosis


def diagnose(
    ctx: typer.Context,
    fleet: Fleet = "",
    lane: Annotated[str, typer.Argument(metavar="LANE", help="Only this lane.", autocompletion=suggestions.lanes)] = "",
    output: Output = Format.TABLE,
) -> None:
    """Say why users wait or fail: each cause with the figures that speak for it and what to do, the first cause first."""
    site = site_of(ctx)
    emit(diagnosis_view(diagnosis.diagnose(site, read_fleet(site, fleet), lane=lane)), output)
