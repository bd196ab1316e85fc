"""`fleetctl plan`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetctl import os_signals
from fleetctl.cli.absence import read_fleet
from fleetctl.cli.options import AcceptRisk, NoProof, Output, ProfileName, Quiet
from fleetctl.cli.output import Format, View, emit
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
from fleetctl.codec import to_plain
from fleetctl.core.plan.surge import surge_cautions
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
from fleetctl.units import parse_duration_s, parse_usd

EXIT_PENDING = 2  # as terraform says it
_ServiceTime = Annotated[
    str,
    typer.Option("--service-time", metavar="DURATION", help="prefill-only: seconds an instance spends a request."),
]
_Price = Annotated[str, typer.Option("--price", metavar="USD", help="prefill-only: an instance's hour, like $1.69.")]
_DetailedExitcode = Annotated[
    bool,
    typer.Option("--detailed-exitcode", help="Exit 2 if the running fleet would change, or runs by older settings."),
]
_Explain = Annotated[
    bool,
    typer.Option("--explain", help="Each key's value, its source and what follows from it; what a little more buys."),
]


def plan(
    ctx: typer.Context,
    profile: ProfileName,
    *,
    sizing: Annotated[Sizing, typer.Option("--sizing", help="full, or the published rule of thumb.")] = Sizing.FULL,
    service_time: _ServiceTime = "",
    price: _Price = "",
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Save the plan; `up --plan FILE` applies it.")] = "",
    name: Annotated[str, typer.Option("--name", metavar="FLEET", help="Plan under another fleet name.")] = "",
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="The gateway's port.")] = None,
    detailed_exitcode: _DetailedExitcode = False,
    explain: _Explain = False,
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
    with progress:
        progress.working(f"planning {found.name}{'' if no_proof else ', and simulating what is planned'} ...")
        planned = os_signals.run(
            plan_profile(
                site,
                found,
                source=given.source,
                sizing=sizing,
                service_time_s=parse_duration_s(service_time) if service_time else None,
                price_usd_per_hour=parse_usd(price) if price else None,
                proves=not no_proof,
                accepts_risk=accept_risk,
            )
        )
        findings = os_signals.run(preflight(site, found, planned))
        explanation = os_signals.run(explain_plan(site, found, planned, given.source)) if explain else None
    changes = pending_changes(site, found, planned)
    if out:
        save_plan(planned, Path(out))
        progress.note(f"saved to {out}; apply it: fleetctl up {profile} --plan {out}")
    emit(plan_answer(found, planned, changes, findings, explanation), output)
    _note_cautions(site, found, planned, findings, progress, is_read=sys.stdout.isatty() and output in _FOR_PEOPLE)
    if detailed_exitcode and not changes.is_empty:
        raise typer.Exit(EXIT_PENDING)


_FOR_PEOPLE = (Format.TABLE, Format.WIDE)


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
) -> View:
    """Return the plan, what it would change and what its provider finds, in every format; what is behind it, if given."""
    value: dict[str, Any] = {
        **plan_value(planned), "pending": pending_value(changes), "preflight": [to_plain(each) for each in findings],
        "explanation": to_plain(explanation),
    }  # fmt: skip
    names = tuple(f"{lane.lane}={lane.replicas}" for lane in planned.lanes)
    sections = (
        *(plan_sections(profile, planned) if explanation is None else plan_summary(profile, planned)),
        *(explanation_sections(explanation) if explanation is not None else ()),
        preflight_section(profile.provider, findings),
        pending_section(planned.fleet, changes),
        outdated_section(planned.fleet, changes),
    )
    return View(value=value, names=names, sections=sections)
