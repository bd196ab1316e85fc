"""`fleetctl demo`."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli.down import wait_down
from fleetctl.cli.load_view import load_view, progress_line
from fleetctl.cli.options import Output, Quiet
from fleetctl.cli.output import Format, emit
from fleetctl.cli.progress import Progress, confirm, note_findings
from fleetctl.cli.site import site_of
from fleetctl.cli.up import wait_ready
from fleetctl.model.plan import Plan
from fleetctl.model.profile import Profile
from fleetctl.model.verdict import Compliance
from fleetctl.operations import lifecycle, traffic
from fleetctl.operations.demo import Demo, claim_demo
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.preflight import preflight
from fleetctl.operations.site import Site
from fleetctl.units import format_count, format_usd, parse_duration_s

_READY_S = 180.0
_DOWN_S = 300.0
_ENDLESS_S = 7 * 86400.0  # the background traffic of a demo somebody looks at


def demo(
    ctx: typer.Context,
    *,
    duration: Annotated[
        str, typer.Option("--duration", metavar="DURATION", help="Of the traffic, without TUI.")
    ] = "60s",
    no_tui: Annotated[bool, typer.Option("--no-tui", help="Print figures instead of opening the TUI.")] = False,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Left out: 8080, or a free one.")] = None,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Bring up the quickstart fleet under built-in traffic: seven emulated replicas in three lanes, and the TUI on it.

    On quitting it asks whether to leave the fleet up. Without a terminal, or with --no-tui, it prints figures as it
    goes and a summary, takes everything down whatever happens, and exits 5 if a lane missed its SLO, 9 if too few were answered to know.
    """
    duration_s = parse_duration_s(duration)
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    site = site_of(ctx)
    claimed = claim_demo(site, port=port, may_reuse=has_terminal and not no_tui)
    progress = Progress(quiet=quiet)
    try:
        if has_terminal and not no_tui:
            _look(site, claimed, progress)
        else:
            _measure(site, claimed.profile, progress, duration_s=duration_s, output=output)
    finally:
        claimed.claim.close()


def _measure(site: Site, profile: Profile, progress: Progress, *, duration_s: float, output: Format) -> None:
    with _always_down(site, profile.name, progress):
        plan = _bring_up(site, profile, progress)
        progress.note(f"sending {duration_s:.0f} s of traffic like the profile's workload ...")
        spec = replace(traffic.fleet_spec(profile, plan), duration_s=duration_s, interval_s=5.0)
        report, is_early = traffic.run(spec, on_progress=lambda seen: progress.note(progress_line(seen)))
        emit(load_view(report, spec.slos), output)
        if is_early:
            raise KeyboardInterrupt
        traffic.check_slo(report)
        is_kept = traffic.LoadVerdict(report=report).compliance is Compliance.KEPT
        progress.note("every lane kept its SLO" if is_kept else "no lane surely missed its SLO; see what is undecided")


def _look(site: Site, claimed: Demo, progress: Progress) -> None:
    from fleetctl.cli.top import open_tui

    profile = claimed.profile
    stay = _LeaveUpPrompt(profile.name, progress)
    with _always_down(site, profile.name, progress, unless=stay):
        plan = _bring_up(site, profile, progress)
        load = traffic.BackgroundLoad(replace(traffic.fleet_spec(profile, plan), duration_s=_ENDLESS_S))
        try:
            open_tui(site, profile.name)
        finally:
            with progress:
                progress.working("ending the traffic ...")
                report = load.finish()
        emit(load_view(report, {lane.name: lane.slo for lane in profile.lanes}), Format.TABLE)
        stay.confirm()


def _bring_up(site: Site, profile: Profile, progress: Progress) -> Plan:
    with progress:
        progress.working(f"planning {profile.name} ...")
        planned = os_signals.run(plan_profile(site, profile, proves=True))
        findings = os_signals.run(preflight(site, profile, planned))
    replicas = sum(lane.replicas for lane in planned.lanes)
    cost = format_usd(planned.cost_usd_per_hour)
    progress.note(
        f"{profile.name}: {format_count(replicas, 'replica')} in {format_count(len(planned.lanes), 'lane')}, which would cost {cost}/h"
    )
    result = lifecycle.up(site, profile, planned, findings=findings)
    note_findings(findings, progress)
    wait_ready(site, result.desired, progress, timeout_s=_READY_S)
    progress.note(f"{profile.name}: {profile.gateway.url}/v1 speaks OpenAI's API")
    return result.desired.plan


class _LeaveUpPrompt:
    """Asks whether the fleet is left up at the end; it is only where somebody answers yes."""

    def __init__(self, fleet: str, progress: Progress) -> None:
        self._fleet = fleet
        self._progress = progress
        self.stays = False

    def confirm(self) -> None:
        """Ask, and say how to go on with a fleet that stays."""
        self.stays = confirm(f"Leave {self._fleet} up?", yes=False)
        if self.stays:
            self._progress.note(f"{self._fleet} stays up; fleetctl top {self._fleet}, fleetctl down {self._fleet}")


@contextmanager
def _always_down(site: Site, fleet: str, progress: Progress, *, unless: _LeaveUpPrompt | None = None) -> Iterator[None]:
    """Take the fleet down at the end, also after an error, Ctrl-C, SIGTERM or SIGHUP."""
    with os_signals.taking({signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: SystemExit, signal.SIGHUP: SystemExit}):
        try:
            yield
        finally:
            # It goes down whatever arrives meanwhile; the waiting for it may be ended.
            with os_signals.held():
                is_left = (unless and unless.stays) or site.store.fleet(fleet) is None
                if not is_left:
                    lifecycle.down(site, fleet)
            if not is_left:
                with progress:
                    wait_down(site, fleet, progress, timeout_s=_DOWN_S)
