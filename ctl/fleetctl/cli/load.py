"""`fleetctl load`."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.load_view import load_view, progress_line
from fleetctl.cli.options import Output, Quiet
from fleetctl.cli.output import Format, emit
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.operations import traffic
from fleetctl.operations.gateway_reach import gateway_reached
from fleetctl.operations.gateway_tls import served_certificate
from fleetctl.units import parse_duration_s, parse_fraction

_EXIT_INTERRUPTED = 130
TraceFile = Annotated[
    str,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A CSV(.gz) or JSON lines: arrival_s,prompt_tokens,output_tokens[,client,tier,model,workflow,after ...]; or a public trace as published: Azure, BurstGPT, Mooncake, Qwen-Bailian.",
    ),
]
BatchShare = Annotated[
    str, typer.Option("--batch-share", metavar="PERCENT", help="Of the requests, with the batch hint.")
]
ClientKeys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="CLIENT=REF", help="A key of a trace's client alone, like search=env:SEARCH_KEY."),
]
Model = Annotated[
    str,
    typer.Option(
        "--model", help="Ask for this in every request; left out: as the trace says, else by the models' shares."
    ),
]
CheckSlo = Annotated[
    bool,
    typer.Option(
        "--check-slo",
        help="Exit 5 if a lane, a tier or a kind of workflows missed its SLO, 9 if too few were answered to know.",
    ),
]

RepeatPrompts = Annotated[
    bool, typer.Option("--repeat-prompts", help="Send the texts of every run with this seed: caches may hold them.")
]


def load(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FLEET|URL", envvar="FLEETCTL_FLEET", help="A fleet, or http://host:port.")
    ] = "",
    *,
    trace: TraceFile = "",
    duration: Annotated[str, typer.Option("--duration", metavar="DURATION", help="How long requests arrive.")] = "",
    offset: Annotated[str, typer.Option("--offset", metavar="DURATION", help="Begin this far into the trace.")] = "0s",
    speed: Annotated[float, typer.Option("--speed", help="2: arrivals come twice as fast as in the trace.")] = 1.0,
    rps: Annotated[float | None, typer.Option("--rps", help="The generated rate; a faster trace is thinned.")] = None,
    lane: Annotated[str, typer.Option("--lane", help="Name this lane in every request.")] = "",
    tier: Annotated[str, typer.Option("--tier", help="Name this tier in every request.")] = "",
    batch_share: BatchShare = "",
    model: Model = "",
    api_key: Annotated[str, typer.Option("--api-key", metavar="REF", help="env:NAME or file:PATH.")] = "",
    key: ClientKeys = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the generated arrivals and lengths.")] = 0,
    repeat_prompts: RepeatPrompts = False,
    drain_timeout: Annotated[
        str, typer.Option("--drain-timeout", metavar="DURATION", help="Wait this long for the last answers.")
    ] = "60s",
    check_slo: CheckSlo = False,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Send open-loop traffic from a process of its own, and report what its client saw, lane by lane.

    Replays a trace, or without one generates load like the fleet's own workload for 60 s. Interim lines go to stderr.
    Ctrl-C ends it early, with its report. ATTAINED is good of offered: a refusal or failure is a miss. CUT_SHORT: still in
    flight at the end. Times count from when a request was due. SLO: kept, MISSED, or undecided (too few late or too many cut short to be sure); ~ marks few samples.
    """
    fleet = traffic.target_fleet(site := site_of(ctx), target)
    if fleet:
        traffic.check_lane(fleet.profile, lane)
    base = traffic.fleet_spec(fleet.profile, fleet.plan) if fleet else traffic.address_spec(target)
    spec = replace(
        base,
        trace=str(Path(trace).absolute()) if trace else "",
        duration_s=parse_duration_s(duration) if duration else None,
        offset_s=parse_duration_s(offset),
        speed=speed,
        rps=rps,
        lane=lane,
        tier=tier,
        keys=base.keys | traffic.client_keys(key or ()),
        batch_share=parse_fraction(batch_share) if batch_share else None,
        model=model,
        api_key=api_key or base.api_key,
        seed=seed,
        repeats_prompts=repeat_prompts,
        drain_timeout_s=parse_duration_s(drain_timeout),
    )
    progress = Progress(quiet=quiet)
    with gateway_reached(site, fleet.profile) if fleet else nullcontext(spec.url) as url:
        spec = replace(spec, url=url, certificate=served_certificate(site, fleet.profile) if fleet else "")
        report, is_early = traffic.run(spec, on_progress=lambda seen: progress.note(progress_line(seen)))
    emit(load_view(report, spec.slos), output)
    if is_early:
        raise typer.Exit(_EXIT_INTERRUPTED)
    (traffic.check_slo if check_slo else traffic.check_answered)(report)
