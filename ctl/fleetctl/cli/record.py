"""`fleetctl record`."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.options import Fleet, Quiet
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.operations import recording
from fleetctl.units import format_bytes, format_count, format_duration, parse_bytes, parse_duration_s


def record(
    ctx: typer.Context,
    fleet: Fleet = "",
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.jsonl.gz", help="Where to.")],
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="Stop after this long; left out: at Ctrl-C.")
    ] = "",
    max_size: Annotated[
        str, typer.Option("--max-size", metavar="SIZE", help="Stop when the file is so large.")
    ] = "1GiB",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Record what a running fleet is asked for, what becomes of it, what is decided and what it has, for `backtest`.

    JSON lines, compressed, without any text of a request. However it ends, what was written is readable; what was missed
    is written too.
    """
    site, progress = site_of(ctx), Progress(quiet=quiet)
    name = read_fleet(site, fleet)
    request = recording.RecordingRequest(
        path=out,
        bytes_max=parse_bytes(max_size),
        for_s=parse_duration_s(for_) if for_ else None,
        may_replace=force,
    )
    # SIGTERM, as `timeout` and systemd send it, ends a recording as Ctrl-C does.
    with progress, os_signals.taking({signal.SIGTERM: KeyboardInterrupt}):
        seen = recording.record(site, name, request, on_progress=lambda seen: progress.working(_line(seen)))
    progress.note(f"{_line(seen)} in {out}: {seen.ended_by}")
    if seen.requests_missed:
        progress.caution(f"{format_count(seen.requests_missed, 'request')} missed: the gateway had forgotten them")


def _line(seen: recording.RecordingProgress) -> str:
    for_s = (seen.at - seen.began_at).total_seconds()
    silent = ", the gateway does not answer" if seen.is_gateway_silent else ""
    counted = f"{format_count(seen.requests, 'request')}, {format_duration(round(for_s))}, {format_bytes(seen.bytes)}"
    return f"{seen.fleet}: {counted}{silent}"
