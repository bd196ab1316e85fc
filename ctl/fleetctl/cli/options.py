"""The options commands share, so that they mean and read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import suggestions
from fleetctl.cli.output import Format


def _fleet_name(value: str) -> str:
    """Return the fleet that is meant. Raises NotFoundError, ConfigError for a file that names none."""
    if "." not in value:
        return value  # no fleet's name has a dot, and every profile's file: a tenth of a second is not spent on reading none

    from fleetctl.operations.profiles import fleet_named_by  # completion and help need no profiles

    return fleet_named_by(value)


Fleet = Annotated[
    str,
    typer.Argument(
        metavar="FLEET",
        envvar="FLEETCTL_FLEET",
        help="The fleet, or its profile's file; may be left out while there is one.",
        callback=_fleet_name,
        autocompletion=suggestions.fleets,
    ),
]
FleetOption = Annotated[
    str,
    typer.Option(
        "--fleet",
        "-f",
        metavar="FLEET",
        envvar="FLEETCTL_FLEET",
        help="The fleet, or its profile's file, when there are several.",
        callback=_fleet_name,
        autocompletion=suggestions.fleets,
    ),
]
# Where -f is --follow, as it is for kubectl and docker.
FleetLongOption = Annotated[
    str,
    typer.Option(
        "--fleet",
        metavar="FLEET",
        envvar="FLEETCTL_FLEET",
        help="The fleet, or its profile's file, when there are several.",
        callback=_fleet_name,
        autocompletion=suggestions.fleets,
    ),
]
ProfileName = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE",
        help="A profile's file, or the name of a packaged one (quickstart, chat ...).",
        autocompletion=suggestions.profiles,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again on every change, until Ctrl-C.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="Exit 5 if a lane is in breach of its SLO, 9 if a fleet is silent or serves nobody."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Do not wait for the outcome.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
RefreshImages = Annotated[
    bool,
    typer.Option("--refresh-images", help="Look up images anew, by tag or parameter; what has moved is rolled out."),
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="Stop waiting after this long.")]
AcceptRisk = Annotated[
    bool,
    typer.Option(
        "--accept-risk", help="Plan by the points of forecasts, though their intervals may cross what is promised."
    ),
]
NoProof = Annotated[
    bool,
    typer.Option("--no-proof", help="Plan by the closed form alone; what is planned is not simulated."),
]
