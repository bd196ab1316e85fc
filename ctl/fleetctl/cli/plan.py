"""`fleetctl plan`."""

import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetctl import os_signals
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.options import AcceptRisk, NoProof, Output, ProfileName, Quiet
from fleetctl.cli.output import Format, View, emit
from fleetctl.cli.pinning import with_images
from fleetctl.cli.plan_explanation_view import explanation_sections
from fleetctl.cli.plan_values import plan_value
from fleetctl.cli.plan_view import (
    outdated_section,
    pending_section,
    pending_value,
    plan_sections,
    plan_summary,
    preflight_section,
)
from fleetctl.cli.progress import Progress, note_cautions, note_findings
from fleetctl.cli.site import site_of
from fleetctl.cli.what_if_view import frontier_view, what_if_section
from fleetctl.codec import to_plain
from fleetctl.core.plan import RuleInputs
from fleetctl.core.plan.surge import surge_cautions
from fleetctl.errors import ConfigError
from fleetctl.model.plan import Plan, Sizing
from fleetctl.model.preflight import Finding
from fleetctl.model.profile import Profile
from fleetctl.operations.approval import move_refusal
from fleetctl.operations.explaining import PlanExplanation, explain_plan
from fleetctl.operations.lookup import fleet_names
from fleetctl.operations.pending import PendingChanges, pending_changes, plan_in_force
from fleetctl.operations.plan_files import save_plan
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.preflight import preflight
from fleetctl.operations.profiles import as_brought_up, find_with_source
from fleetctl.operations.site import Site
from fleetctl.operations.what_if import Frontier, WhatIf, frontier as find_frontier, what_if, with_changes
from fleetctl.units import parse_duration_s, parse_usd

EXIT_PENDING = 2  # as terraform says it
_ServiceTime = Annotated[
    str,
    typer.Option("--service-time", metavar="DURATION", help="prefill-only: seconds an instance spends a request."),
]
_Price = Annotated[str, typer.Option("--price", metavar="USD", help="prefill-only: an instance's hour, like $1.69.")]
_RoundUp = Annotated[
    int,
    typer.Option(
        "--round-up", min=1, metavar="N", help="prefill-only: to so many instances; 10 as published (58 become 60)."
    ),
]
_DetailedExitcode = Annotated[
    bool,
    typer.Option("--detailed-exitcode", help="Exit 2 if the running fleet would change, or runs by older settings."),
]
_Explain = Annotated[
    bool,
    typer.Option("--explain", help="Each key's value, its source and what follows from it; what a little more buys."),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Plan with a key changed, beside the profile's own plan; repeatable."
    ),
]
_Frontier = Annotated[
    bool, typer.Option("--frontier", help="Cost against tightness: TTFT limits at 0.5 to 4 times the profile's.")
]
_FrontierKey = Annotated[
    str, typer.Option("--frontier-key", metavar="KEY", help="The same along another key, like workload.peak_rps.")
]


def plan(
    ctx: typer.Context,
    profile: ProfileName,
    *,
    sizing: Annotated[Sizing, typer.Option("--sizing", help="full, or the published rule of thumb.")] = Sizing.FULL,
    service_time: _ServiceTime = "",
    price: _Price = "",
    round_up: _RoundUp = 1,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Save the plan; `up --plan FILE` applies it.")] = "",
    name: Annotated[str, typer.Option("--name", metavar="FLEET", help="Plan under another fleet name.")] = "",
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="The gateway's port.")] = None,
    detailed_exitcode: _DetailedExitcode = False,
    explain: _Explain = False,
    set_: _Set = None,
    frontier: _Frontier = False,
    frontier_key: _FrontierKey = "",
    accept_risk: AcceptRisk = False,
    no_proof: NoProof = False,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Show what a profile needs, and what `up` would change: nothing is started.

    Per lane: replicas, GPUs, launch settings, the TTFT budget by component, what bounds it, the forecast P99 with its
    interval, cost. An SLO no plan can keep exits 4 and names the nearest feasible one.
    """
    site = site_of(ctx)
    given = find_with_source(profile, fleet=name, port=port)
    found = as_brought_up(site, given.profile)
    progress = Progress(quiet=quiet)
    _check_together(set_ or (), out, sizing, is_frontier=frontier or bool(frontier_key))
    if frontier or frontier_key:
        scaled = partial(find_frontier, site, found, given.source, frontier_key)
        _show_frontier(partial(scaled, proves=not no_proof, accepts_risk=accept_risk), progress, output)
        return
    own, source = found, given.source
    found, source = with_changes(source, own, set_) if set_ else (own, source)
    with progress:
        progress.working(f"planning {found.name}{'' if no_proof else ', and simulating what is planned'} ...")
        plan_of = partial(
            plan_profile,
            site,
            sizing=sizing,
            rule=_rule(service_time, price, round_up),
            proves=not no_proof,
            accepts_risk=accept_risk,
        )
        planned = with_images(site, found, plan_of(found, source=source, names_burst=True), progress)
        beside = what_if(set_, os_signals.run(plan_of(own, source=given.source)), planned) if set_ else None
        findings = os_signals.run(preflight(site, found, planned))
        explained = partial(explain_plan, site, found, planned, source, accepts_risk=accept_risk)
        explanation = os_signals.run(explained()) if explain else None
    changes = pending_changes(site, found, planned)
    if out:
        save_plan(planned, Path(out))
        progress.note(f"saved to {out}; apply it: fleetctl up {profile} --plan {out}")
    emit(plan_answer(found, planned, changes, findings, explanation, beside), output)
    _note_cautions(site, found, planned, findings, progress, is_read=_is_read(output))
    if detailed_exitcode and not changes.is_empty:
        raise typer.Exit(EXIT_PENDING)


def _rule(service_time: str, price: str, round_up: int) -> RuleInputs:
    return RuleInputs(
        service_time_s=parse_duration_s(service_time) if service_time else None,
        price_usd_per_hour=parse_usd(price) if price else None,
        round_up=round_up,
    )


def _show_frontier(find: Callable[[], Coroutine[Any, Any, Frontier]], progress: Progress, output: Format) -> None:
    with progress:
        progress.working("planning from tight to loose ...")
        found = os_signals.run(find())
    emit(frontier_view(found), output)


def _check_together(changes: Sequence[str], out: str, sizing: Sizing, *, is_frontier: bool) -> None:
    """Refuse options that contradict each other. Raises ConfigError."""
    if changes and out:
        raise ConfigError(
            "--out saves the plan of a profile as it stands, and --set plans another",
            hint="write the change into the profile, then save its plan",
        )
    if is_frontier and (changes or out or sizing is not Sizing.FULL):
        raise ConfigError(
            "--frontier plans the profile as it stands, in full, and saves no plan", hint="ask for one of them"
        )


_FOR_PEOPLE = (Format.TABLE, Format.WIDE)


def _is_read(output: Format) -> bool:
    """Whether the plan's own cautions were shown where this command's notes go: not in a table behind a pipe that filters it."""
    return output in _FOR_PEOPLE and (sys.stdout.isatty() or not sys.stderr.isatty())


def _note_cautions(  # what the command found
    site: Site, found: Profile, planned: Plan, findings: tuple[Finding, ...], progress: Progress, *, is_read: bool
) -> None:
    """Say what `up` would refuse or meet; `is_read`: the plan's own cautions have just been shown."""
    if found.name in fleet_names(site):
        read_fleet(site, found.name)
    if refusal := move_refusal(site, found):
        progress.caution(f"up would refuse this: {refusal.message}; {refusal.hint}")
    note_cautions(surge_cautions(found, planned, plan_in_force(site, found.name)), progress)
    if not is_read:
        note_cautions(planned.cautions, progress)
        note_findings(findings, progress)


def plan_answer(
    profile: Profile,
    planned: Plan,
    changes: PendingChanges,
    findings: tuple[Finding, ...] = (),
    explanation: PlanExplanation | None = None,
    beside: WhatIf | None = None,
) -> View:
    """Return the plan, what it would change and what its provider finds, in every format; what is behind it, if given.

    `beside` is what changed keys make of the profile's own plan.
    """
    value: dict[str, Any] = {
        **plan_value(planned), "pending": pending_value(changes), "preflight": [to_plain(each) for each in findings],
        "explanation": to_plain(explanation), "what_if": to_plain(beside),
    }  # fmt: skip
    names = tuple(f"{lane.lane}={lane.replicas}" for lane in planned.lanes)
    sections = (
        *(plan_sections(profile, planned) if explanation is None else plan_summary(profile, planned)),
        *(explanation_sections(explanation) if explanation is not None else ()),
        *([what_if_section(beside)] if beside is not None else []),
        preflight_section(profile.provider, findings),
        pending_section(planned.fleet, changes),
        outdated_section(planned.fleet, changes),
    )
    return View(value=value, names=names, sections=sections)
