"""`fleetctl simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.options import Output, ProfileName, Quiet
from fleetctl.cli.output import Format, emit
from fleetctl.cli.progress import Progress
from fleetctl.cli.simulate_view import progress_line, simulation_view
from fleetctl.cli.site import site_of
from fleetctl.operations import simulation
from fleetctl.operations.profiles import find_with_source
from fleetctl.operations.simulation_report import write_report
from fleetctl.operations.traffic import LoadSpec
from fleetctl.units import parse_duration_s, parse_fraction

TraceFile = Annotated[
    str,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A CSV(.gz) or JSON lines: arrival_s,prompt_tokens,output_tokens[,client,tier,model,workflow,after ...]; or a public trace as published: Azure, BurstGPT, Mooncake, Qwen-Bailian.",
    ),
]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", metavar="NAME", help="As installed; repeat it to compare several.")
]
Scenario = Annotated[
    list[str] | None,
    typer.Option("--scenario", metavar="EVENT|FILE", help=f"What goes wrong: {simulation.SYNTAX}, or a file of them."),
]
SpotFile = Annotated[
    str, typer.Option("--spot", metavar="FILE", help="When zones have spot nodes: a CSV(.gz) of t_s,zone,available.")
]
Start = Annotated[
    list[str] | None,
    typer.Option("--start", metavar="LANE=N", help="Replicas that are ready at the start; left out: the plan's."),
]
Boot = Annotated[
    str, typer.Option("--boot", metavar="DURATION", help="From order to a healthy engine; left out: the provider's.")
]
BatchShare = Annotated[
    str, typer.Option("--batch-share", metavar="PERCENT", help="Of the requests, with the batch hint.")
]
CheckSlo = Annotated[
    bool,
    typer.Option(
        "--check-slo",
        help="Exit 5 if a lane missed its SLO, or a tier or a kind of workflows missed its own promise; 9 if too little "
        "ended to know, 3 if no lane took any request.",
    ),
]
ReportFile = Annotated[str, typer.Option("--report", metavar="FILE.html", help="Write a page with plots.")]


def simulate(
    ctx: typer.Context,
    profile: ProfileName,
    *,
    trace: TraceFile = "",
    policy: Policies = None,
    scenario: Scenario = None,
    spot: SpotFile = "",
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Run each policy this many times.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="The first seed.")] = 0,
    duration: Annotated[str, typer.Option("--duration", metavar="DURATION", help="How long requests arrive.")] = "",
    offset: Annotated[str, typer.Option("--offset", metavar="DURATION", help="Begin this far into the trace.")] = "0s",
    speed: Annotated[float, typer.Option("--speed", help="2: arrivals come twice as fast as in the trace.")] = 1.0,
    rps: Annotated[float | None, typer.Option("--rps", help="The generated rate; a faster trace is thinned.")] = None,
    batch_share: BatchShare = "",
    start: Start = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin without replicas, as the first `up` does.")] = False,
    boot: Boot = "",
    retries: Annotated[
        int, typer.Option("--retries", min=0, help="How often a refused client comes back as told.")
    ] = 0,
    compare: Annotated[bool, typer.Option("--compare", help="Show the policies side by side.")] = False,
    report: ReportFile = "",
    check_slo: CheckSlo = False,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Compute what a profile's fleet would make of a trace: in virtual time, nothing is started.

    The controller's policy and the gateway's dispatch are the live fleet's own; engines, nodes and clients are computed.
    Without a trace requests are like the profile's workload. GOOD is good of offered: a refusal is a miss.
    """
    given = find_with_source(profile)
    load = LoadSpec(
        url="", trace=str(Path(trace).absolute()) if trace else "", speed=speed, rps=rps, offset_s=parse_duration_s(offset),
        duration_s=parse_duration_s(duration) if duration else None,
        batch_share=parse_fraction(batch_share) if batch_share else None,
    )  # fmt: skip
    spec = simulation.SimulationSpec(seed=seed, boot_s=parse_duration_s(boot) if boot else None, retries_max=retries)
    request = simulation.SimulationRequest(
        load=load, policies=tuple(policy or ()), seeds=seeds, scenario=tuple(scenario or ()), spot=spot,
        start=tuple(start or ()), is_fresh=fresh, spec=spec,
    )  # fmt: skip
    progress = Progress(quiet=quiet)
    with progress:
        found = simulation.simulate_profile(
            site_of(ctx),
            given.profile,
            request,
            source=given.source,
            on_progress=lambda name, number, share: progress.working(progress_line(name, number, share)),
        )
    if report:
        write_report(found, Path(report))
        progress.note(f"the report is in {report}")
    emit(simulation_view(found, side_by_side=compare), output)
    _caution(found, progress)
    if check_slo:
        simulation.check_objective(found)


def _caution(found: simulation.SimulationReport, progress: Progress) -> None:
    for run in found.runs:
        for violation in (*filter(None, [simulation.unrouted_line(run)]), *run.violations):
            progress.caution(f"{run.policy}, seed {run.seed}: {violation}")
