"""`fleetctl backtest`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.backtest_view import backtest_view
from fleetctl.cli.options import Quiet
from fleetctl.cli.output import Format, emit, write
from fleetctl.cli.progress import Progress
from fleetctl.cli.simulate_view import progress_line
from fleetctl.cli.site import site_of
from fleetctl.operations.backtest import BacktestRequest, backtest as replay
from fleetctl.operations.backtest_page import backtest_page
from fleetctl.operations.profiles import find_with_source
from fleetctl.units import parse_duration_s


class BacktestFormat(StrEnum):
    """The values of -o, and a page with plots."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    HTML = "html"


def backtest(
    ctx: typer.Context,
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="A file of `fleetctl record`.")],
    *,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="PROFILE", help="Replay it under this one too; may be given several times."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Each profile under this policy too, as installed; may be given several times.",
        ),
    ] = None,
    offset: Annotated[str, typer.Option("--offset", metavar="DURATION", help="Begin this far into it.")] = "0s",
    duration: Annotated[
        str, typer.Option("--duration", metavar="DURATION", help="Only so much of it; left out: to its end.")
    ] = "",
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", help="Run each profile and policy this many times.")
    ] = 1,
    output: Annotated[
        BacktestFormat, typer.Option("--output", "-o", help="How to print; html is a page with plots.")
    ] = BacktestFormat.TABLE,
    quiet: Quiet = False,
) -> None:
    """Replay a recorded period through the simulator: under its own profile, and under others beside it.

    First comes how true the simulation is: what was recorded against what it computes under the recorded profile. Where
    those are apart, the rest is no evidence. Nodes that were taken are taken again, boots last as long as they did.
    """
    request = BacktestRequest(
        recording=recording,
        profiles=tuple((_name(each), find_with_source(each)) for each in profile or ()),
        policies=tuple(policy or ()),
        seeds=seeds,
        offset_s=parse_duration_s(offset),
        duration_s=parse_duration_s(duration) if duration else None,
    )
    progress = Progress(quiet=quiet)
    with progress:
        report, results = replay(
            site_of(ctx),
            request,
            on_progress=lambda name, seed, share: progress.working(progress_line(name, seed, share)),
        )
    if output is BacktestFormat.HTML:
        write(backtest_page(report, results))
    else:
        emit(backtest_view(report), Format(output.value))
    for line in report.cautions:
        progress.caution(line)


def _name(profile: str) -> str:
    return Path(profile).stem if "/" in profile or profile.endswith((".yaml", ".yml")) else profile
