"""`fleetctl up`."""

import signal
import sys
import threading
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli.ends import OverrideFreeze
from fleetctl.cli.options import AcceptRisk, Detach, DryRun, NoProof, ProfileName, Quiet, RefreshImages, Timeout, Yes
from fleetctl.cli.output import Format, View, face_of, text_of, write
from fleetctl.cli.pinning import with_images
from fleetctl.cli.plan import EXIT_PENDING
from fleetctl.cli.plan_view import outdated_line, outdated_section, pending_section, plan_summary
from fleetctl.cli.progress import Progress, confirm, note_cautions, note_findings
from fleetctl.cli.site import site_of
from fleetctl.core.plan.surge import surge_cautions
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.model.desired import Desired
from fleetctl.model.plan import Plan
from fleetctl.model.preflight import Finding
from fleetctl.model.profile import Mode, Profile
from fleetctl.model.status import FleetStatus
from fleetctl.operations import lifecycle
from fleetctl.operations.approval import check_plan
from fleetctl.operations.gateway_reach import gateway_url
from fleetctl.operations.pending import PendingChanges, outdated_replicas, pending_changes, plan_in_force
from fleetctl.operations.plan_files import load_plan, price_now
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.preflight import planned_nodes, preflight, refuse_failures
from fleetctl.operations.profiles import FoundProfile, as_brought_up, find_with_source
from fleetctl.operations.readiness import failed_starts, rollout_text
from fleetctl.operations.site import Site
from fleetctl.operations.staying import keep, leave
from fleetctl.units import format_ready, parse_duration_s, parse_usd
from fleetctl.views.boot import concerns, phase_text, phases_text

_Stay = Annotated[
    bool, typer.Option("--stay", help="Stay, and keep controller and gateway until SIGTERM: for containers.")
]
_SavedPlan = Annotated[str, typer.Option("--plan", metavar="FILE", help="Apply this saved plan instead of a new one.")]
_LEAVE_S = 12.0  # the gateway lets requests finish for 10 s
_ELSEWHERE_FOR_S = 15.0  # a controller that was just placed elsewhere holds its lease before it answers


def up(
    ctx: typer.Context,
    profile: ProfileName,
    *,
    plan: _SavedPlan = "",
    name: Annotated[str, typer.Option("--name", metavar="FLEET", help="Bring it up under another fleet name.")] = "",
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="The gateway's port.")] = None,
    max_cost: Annotated[str, typer.Option("--max-cost", metavar="USD", help="Refuse a plan over this an hour.")] = "",
    accept_risk: AcceptRisk = False,
    no_proof: NoProof = False,
    refresh_images: RefreshImages = False,
    override_freeze: OverrideFreeze = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    stay: _Stay = False,
    timeout: Timeout = "15m",
    quiet: Quiet = False,
) -> None:
    """Bring a fleet up, or change a running one to match its profile: plan, ask, apply, wait until it is ready.

    Doing it again changes nothing. What was set by hand (scale, shed) ends with it. What running replicas are started
    with is rolled out lane by lane, canaries first; a revision that fails is rolled back, and the exit code is 17.
    Prints the base URL for OpenAI clients, once all is as the profile says. Ctrl-C detaches: the fleet goes on. With --stay
    controller and gateway end with this command, and the replicas go on: the next `up` finds them.
    """
    if stay and detach:
        raise ConfigError("--stay and --detach exclude each other", hint="leave one out")
    timeout_s = parse_duration_s(timeout)
    cap = parse_usd(max_cost) if max_cost else None
    site = site_of(ctx)
    given = find_with_source(profile, fleet=name, port=port)
    found, progress = as_brought_up(site, given.profile), Progress(quiet=quiet)
    with progress:
        progress.working(f"planning {found.name} ...")
        new = _planned(site, replace(given, profile=found), plan, accept_risk=accept_risk, no_proof=no_proof)
        planned = replace(with_images(site, found, new, progress, refreshes=refresh_images), fleet=found.name)
    check_plan(site, found, planned, is_exact=True, max_cost_usd_per_hour=cap)
    with progress:
        progress.working(f"asking provider {found.provider} whether {found.name} would run ...")
        findings = os_signals.run(preflight(site, found, planned))
    changes = pending_changes(site, found, planned)
    if not changes.is_empty:
        _show_pending(site, found, planned, changes, progress)
    refuse_failures(found, planned_nodes(site, found, planned), findings)
    note_findings(findings, progress)
    if dry_run:
        progress.note("dry run: nothing was changed")
        return
    if not changes.is_applied and not confirm(f"Bring {found.name} up like this?", yes=yes):
        raise typer.Exit(1)
    if stay:
        _applied_for_good(site, found, planned, findings, progress, override_freeze, refresh_images)
        write(f"{gateway_url(site, found)}/v1\n")
        _stay(site, found.name, progress)
        return
    result = _applied(site, found, planned, findings, progress, override_freeze, refresh_images, timeout_s, detach)
    write(f"{gateway_url(site, found)}/v1\n")
    if found.control.mode is Mode.SHADOW:
        _tell_outdated(site, result.desired, progress)


def _applied_for_good(  # noqa: PLR0917  # as given to `up`
    site: Site,
    found: Profile,
    planned: Plan,
    findings: tuple[Finding, ...],
    progress: Progress,
    override_freeze: bool,
    refresh_images: bool,
) -> None:
    """Have the fleet as planned; that its controller does not answer yet is for whoever keeps it.

    One that waits for the end of another machine's lease has its first word after half a minute.
    """
    try:
        _applied(site, found, planned, findings, progress, override_freeze, refresh_images, None, True)
    except UnavailableError as exc:
        desired = site.store.fleet(found.name)
        if desired is None or desired.profile != found:
            raise
        progress.note(f"{exc.message}; waiting for it")


def _applied(  # noqa: PLR0917  # as given to `up`
    site: Site,
    found: Profile,
    planned: Plan,
    findings: tuple[Finding, ...],
    progress: Progress,
    override_freeze: bool,
    refresh_images: bool,
    timeout_s: float | None,
    is_detached: bool,
) -> lifecycle.UpResult:
    """Have the fleet as planned, and wait for it unless detached; for a controller to be placed either way, for `timeout_s`."""
    with progress:
        try:
            begun_s = site.clock.monotonic_s()
            result = lifecycle.up(
                site,
                found,
                planned,
                findings=findings,
                override_freeze=override_freeze,
                timeout_s=timeout_s,
                refreshes_images=refresh_images,
            )
            progress.note(_CHANGED[result.change].format(fleet=found.name))
            if timeout_s is not None and not is_detached:
                wait_ready(site, result.desired, progress, timeout_s=timeout_s, since_s=begun_s)
        except KeyboardInterrupt:
            _note_detached(site, found.name, progress)
            raise
    return result


def _show_pending(site: Site, profile: Profile, planned: Plan, changes: PendingChanges, progress: Progress) -> None:
    """Show what would change, and what a rollout of it would lack room for."""
    pending = (pending_section(profile.name, changes), outdated_section(profile.name, changes))
    shown = View(value=planned, sections=(*plan_summary(profile, planned), *pending))
    progress.paint(text_of(shown, Format.TABLE, face=face_of(sys.stderr)).rstrip("\n"))
    note_cautions(surge_cautions(profile, planned, plan_in_force(site, profile.name)), progress)


async def _planned(site: Site, found: FoundProfile, file: str, *, accept_risk: bool, no_proof: bool) -> Plan:
    """Return the plan saved in `file` at what it costs now, or a new one."""
    if file:
        return await price_now(site, found.profile, load_plan(Path(file)))
    return await plan_profile(
        site, found.profile, source=found.source, proves=not no_proof, accepts_risk=accept_risk, is_live_only=True
    )


def _tell_outdated(site: Site, desired: Desired, progress: Progress) -> None:
    """Exit as `plan --detailed-exitcode` does where running replicas keep launch settings that have changed."""
    outdated = outdated_replicas(site, desired)
    if outdated:
        progress.caution(outdated_line(desired.fleet, outdated))
        raise typer.Exit(EXIT_PENDING)


def _stay(site: Site, fleet: str, progress: Progress) -> None:
    """Keep the fleet's processes until SIGTERM or SIGINT, then end them and no replica."""
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    progress.note(f"{fleet}: kept from here until SIGTERM")
    keep(site, fleet, waits=leaving.wait)
    progress.note(f"{fleet}: ending its controller and gateway; its replicas go on")
    leave(site, fleet, within_s=_LEAVE_S)


_CHANGED = {
    lifecycle.Change.CREATED: "{fleet}: created",
    lifecycle.Change.UPDATED: "{fleet}: changed to match",
    lifecycle.Change.RETRIED: "{fleet}: unchanged; what could not start is tried again",
    lifecycle.Change.UNCHANGED: "{fleet}: already up, unchanged",
}


def wait_ready(
    site: Site, desired: Desired, progress: Progress, *, timeout_s: float, since_s: float | None = None
) -> None:
    """Show how far the fleet is until this record of it is in force, and ready; `since_s` is when the wait began, else now."""
    fleet, begun_s, begun_at = desired.fleet, site.clock.monotonic_s(), site.clock.now()
    noted: set[str] = set()
    slowest, elsewhere_since_s = "", begun_s
    for seen in lifecycle.follow_up(
        site, fleet, timeout_s=timeout_s, since_s=since_s, generation=desired.generation, revision=desired.revision
    ):
        # On a terminal the line below is redrawn, and cut to its width.
        for line in failed_starts(seen, generation=desired.generation):
            if line not in noted:
                progress.note(line)
        noted.update(failed_starts(seen, generation=desired.generation))
        _note_concerns(seen, progress, noted)
        elsewhere_since_s = _elsewhere_since(seen, elsewhere_since_s, site.clock.monotonic_s())
        if site.clock.monotonic_s() - elsewhere_since_s > _ELSEWHERE_FOR_S:
            # It is another machine's to act on: what becomes of it is never to be seen from here but on record.
            host = seen.controller_host
            progress.note(f"{fleet}: written down; its controller on {host} acts on it. See: fleetctl status {fleet}")
            return
        progress.update(f"{fleet}: {_how_far(seen)}")
        slowest = _slowest_start(seen, begun_at)
    ready = f"ready after {site.clock.monotonic_s() - begun_s:.0f} s{_rolled_without_canary(seen, desired)}"
    if slowest:
        progress.note(f"{fleet}: last came {slowest}")
    progress.note(f"{fleet}: {ready}; watch it: fleetctl top {fleet}")


def _elsewhere_since(seen: FleetStatus, since_s: float, now_s: float) -> float:
    """Return since when another machine's controller has the fleet and tells nothing here; now: it is not so."""
    return since_s if seen.controller_host and not seen.controller_alive else now_s


def _rolled_without_canary(seen: FleetStatus, desired: Desired) -> str:
    """Return which lanes this revision's rollout had no canary in, a clause each; empty: all had, or none was rolled."""
    rollout = seen.rollout
    if rollout is None or rollout.revision != desired.revision:
        return ""
    return "".join(f"; lane {lane.lane}: {lane.note}" for lane in rollout.lanes if lane.note)


def _how_far(seen: FleetStatus) -> str:
    if not seen.controller_alive:
        return "waiting for its controller"
    ready, wanted = sum(lane.ready for lane in seen.lanes), sum(lane.wanted for lane in seen.lanes)
    lanes = ", ".join(f"{lane.name} {lane.ready}/{lane.wanted}" for lane in seen.lanes)
    gateway = "" if seen.gateway_alive else ", gateway starting"
    rollout = seen.rollout
    if boots := _boots(seen):
        return f"{ready} of {wanted} ready; {boots}"  # before the lanes: a terminal's line is cut at its end
    if rollout is not None and rollout.ended_at is None:
        return f"revision {rollout.revision} {rollout.phase}: {rollout_text(rollout)}{gateway}"
    return f"{format_ready(ready, wanted)} ({lanes}){gateway}" + (f"; {seen.reason}" if seen.reason else "")


def _boots(seen: FleetStatus) -> str:
    """Return what starting replicas wait for, each once with how many do: a download that several share is one."""
    is_coarse = not sys.stderr.isatty()
    found = Counter(text for r in seen.replicas if (text := phase_text(r, is_coarse=is_coarse)))
    counts = found.items()
    return "; ".join(text if count == 1 or is_coarse else f"{count} x {text}" for text, count in counts)


def _note_concerns(seen: FleetStatus, progress: Progress, noted: set[str]) -> None:
    """Say once what takes longer than usual; how long by then is of no interest in a second line."""
    for concern in concerns(seen.replicas):
        key = concern.partition(" for ")[0]
        if key not in noted:
            noted.add(key)
            progress.caution(concern)


def _slowest_start(seen: FleetStatus, since: datetime) -> str:
    """Return what the phases took of the replica that was ready last; empty: none has started since."""
    started = [r for r in seen.replicas if r.boot_steps and (r.record.ready_at or since) > since]
    if not started:
        return ""
    last = max(started, key=lambda r: r.record.ready_at or since)
    return f"{last.record.id}: {phases_text(last, seen.at)}"


def _note_detached(site: Site, fleet: str, progress: Progress) -> None:
    if site.store.fleet(fleet) is None:
        progress.note("stopped; nothing was started")
        return
    progress.note(
        f"detached; {fleet} goes on coming up. Watch it: fleetctl top {fleet}. Take it down: fleetctl down {fleet}"
    )
