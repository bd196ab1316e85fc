"""Installs a runbook's schedule for cron or systemd: what would change is computed first, then written."""

from __future__ import annotations

import difflib
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from fleetctl.errors import ConfigError
from fleetctl.model.runbook import MissedRun
from fleetctl.operations.audit import audited
from fleetctl.runbooks.scheduled_command import (
    ScheduledRunbook,
    references_to_variables,
    scheduled_environment,
)
from fleetctl.schedules.cron import next_run
from fleetctl.schedules.cron_times import look_again_times, machine_times
from fleetctl.schedules.crontab import CrontabBlock, assigned, block_text, command_line, with_block, without_block
from fleetctl.schedules.systemd_units import SystemdUnits, service_text, timer_text
from fleetctl.schedules.time_zones import zone_label
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from fleetctl.operations.audit import Attempt
    from fleetctl.operations.site import Site
    from fleetctl.runbooks.unit_files import UnitFiles
    from fleetctl.runbooks.user_crontab import UserCrontab

_ACTION = "runbook install-cron"
_SENDMAIL = Path("/usr/sbin/sendmail")
_LINGER = Path("/var/lib/systemd/linger")
_SINCE = re.compile(r"--since (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChange:
    """What installing or removing a schedule changes, by file; and what its user should know."""

    place: str  # whose crontab, or which directory
    before: Mapping[str, str]
    after: Mapping[str, str]
    next_run_at: datetime | None = None
    cautions: tuple[str, ...] = field(default_factory=tuple)

    @property
    def is_change(self) -> bool:
        """Whether anything is other than it was."""
        return dict(self.before) != dict(self.after)

    def diff(self) -> str:
        """Return the change as a unified diff."""
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for name in sorted({*self.before, *self.after})
            for line in difflib.unified_diff(
                self.before.get(name, "").splitlines(keepends=True),
                self.after.get(name, "").splitlines(keepends=True),
                f"{name} (now)", name,
            )
        )  # fmt: skip


def install_in_crontab(
    site: Site,
    book: ScheduledRunbook,
    crontab: UserCrontab,
    environ: Mapping[str, str],
    *,
    removes: bool = False,
    dry_run: bool = False,
) -> ScheduleChange:
    """Install or remove a runbook's lines in the user's crontab, and return what that changed. Raises FleetctlError."""
    with audited(site, _ACTION, fleet=book.fleet, parameters=_parameters(book), dry_run=dry_run) as attempt:
        change = plan_crontab(book, crontab, environ=environ, now=site.clock.now(), removes=removes)
        if not dry_run:
            apply_crontab(change, crontab)
            _note(attempt, change, removes=removes)
    return change


def install_units(
    site: Site,
    book: ScheduledRunbook,
    units: UnitFiles,
    environ: Mapping[str, str],
    *,
    removes: bool = False,
    dry_run: bool = False,
) -> tuple[ScheduleChange, tuple[str, ...]]:
    """Install or remove a runbook's units, and return what that changed and what systemd did not do. Raises FleetctlError."""
    faults: tuple[str, ...] = ()
    with audited(site, _ACTION, fleet=book.fleet, parameters=_parameters(book), dry_run=dry_run) as attempt:
        change = plan_units(book, units, environ=environ, now=site.clock.now(), removes=removes)
        if not dry_run:
            faults = apply_units(change, book, units)
            _note(attempt, change, removes=removes)
    return change, faults


def plan_crontab(
    book: ScheduledRunbook, crontab: UserCrontab, *, environ: Mapping[str, str], now: datetime, removes: bool = False
) -> ScheduleChange:
    """Return what becomes of the crontab. Raises ConfigError, FleetctlError where it cannot be read."""
    before = crontab.read()
    if removes:
        return ScheduleChange(
            place=crontab.label, before={"crontab": before}, after={"crontab": without_block(before, book.key)}
        )
    book = _since_before(book, block_text(before, book.key))
    environment, cautions = scheduled_environment(environ)
    block = CrontabBlock(key=book.key, lines=_lines(book, environment, now=now))
    after = with_block(before, block)
    return ScheduleChange(
        place=crontab.label,
        before={"crontab": before},
        after={"crontab": after},
        next_run_at=_next_run(book, now),
        cautions=(*cautions, *_cron_cautions(book, assigned(after))),
    )


def apply_crontab(change: ScheduleChange, crontab: UserCrontab) -> None:
    """Write the crontab, if it is still as it was when the change was planned. Raises FleetctlError."""
    if change.is_change:
        crontab.replace(change.after["crontab"], before=change.before["crontab"])


def plan_units(
    book: ScheduledRunbook, units: UnitFiles, *, environ: Mapping[str, str], now: datetime, removes: bool = False
) -> ScheduleChange:
    """Return what becomes of the unit files. Raises ConfigError, StateError."""
    names = tuple(f"{book.unit_name}.{kind}" for kind in ("service", "timer"))
    before = {name: text for name in names if (text := units.read(name))}
    if removes:
        return ScheduleChange(place=units.label, before=before, after={})
    book = _since_before(book, before.get(names[0], ""))
    environment, cautions = scheduled_environment(environ)
    after = _units(book, environment, now=now, user="" if units.is_users else _user()).files
    return ScheduleChange(
        place=units.label,
        before=before,
        after=after,
        next_run_at=_next_run(book, now),
        cautions=(*cautions, *_unit_cautions(book, units)),
    )


def apply_units(change: ScheduleChange, book: ScheduledRunbook, units: UnitFiles) -> tuple[str, ...]:
    """Write or remove the units and have systemd read them. Returns what systemd did not do, in words. Raises StateError."""
    units.check()
    timer = f"{book.unit_name}.timer"
    faults = []
    if not change.after:
        if change.before:
            faults.append(units.call("disable", "--now", timer))
        units.remove(tuple(change.before))
        faults.append(units.call("daemon-reload"))
    else:
        units.write(dict(change.after))
        faults += [units.call("daemon-reload"), units.call("enable", timer), units.call("restart", timer)]
    return tuple(dict.fromkeys(fault for fault in faults if fault))


def _parameters(book: ScheduledRunbook) -> dict[str, object]:
    return {"runbook": book.source, "schedule": book.runbook.schedule}


def _note(attempt: Attempt, change: ScheduleChange, *, removes: bool) -> None:
    if change.is_change:
        attempt.note(f"{change.place}: {'removed' if removes else 'installed'}")


def _lines(book: ScheduledRunbook, environment: Mapping[str, str], *, now: datetime) -> tuple[str, ...]:
    runbook = book.runbook
    command = command_line(book.argv(), environment)
    missed = (
        f"run once, up to {format_duration(runbook.missed_within_s)} late"
        if runbook.missed is MissedRun.RUN_ONCE
        else "skipped"
    )
    lines = [
        f"# {_times(book)}; missed runs: {missed}",
        f"{machine_times(_schedule(book), time_zone=runbook.time_zone, now=now)} {command}",
    ]
    again = look_again_times(runbook.schedule, key=book.key)
    if again:
        lines += ["# looks for runs that were missed or cut", f"{again} {command}"]
    if runbook.missed is MissedRun.RUN_ONCE:
        lines.append(f"@reboot {command}")
    return tuple(lines)


def _units(book: ScheduledRunbook, environment: Mapping[str, str], *, now: datetime, user: str) -> SystemdUnits:
    runbook = book.runbook
    description = f"fleetctl runbook {book.key} ({_times(book)})"
    return SystemdUnits(
        name=book.unit_name,
        service=service_text(description, book.argv(), environment, user=user),
        timer=timer_text(
            description,
            _schedule(book),
            time_zone=runbook.time_zone,
            catches_up=runbook.missed is MissedRun.RUN_ONCE,
            key=book.key,
            now=now,
        ),
    )


def _schedule(book: ScheduledRunbook) -> str:
    if not book.runbook.schedule:
        raise ConfigError(
            f"runbook {book.runbook.name} has no schedule", hint="add one to it, such as schedule: '30 7 * * mon-fri'"
        )
    return book.runbook.schedule


def _times(book: ScheduledRunbook) -> str:
    """Return the schedule as it stands beside what is installed."""
    return f"{' '.join(_schedule(book).split())}, {zone_label(book.runbook.time_zone)}"


def _next_run(book: ScheduledRunbook, now: datetime) -> datetime:
    return next_run(_schedule(book), now, time_zone=book.runbook.time_zone)


def _since_before(book: ScheduledRunbook, installed: str) -> ScheduledRunbook:
    """Return a book that is installed already with the instant it was installed at, so that nothing changes by it."""
    found = _SINCE.search(installed)
    if found is None:
        return book
    since = datetime.strptime(found["at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    again = ScheduledRunbook(
        runbook=book.runbook, source=book.source, fleet=book.fleet, parameters=book.parameters, since=since
    )
    # With another schedule it is another: what that would have run before now was never missed.
    return again if _times(book) in installed else book


def _cron_cautions(book: ScheduledRunbook, variables: Mapping[str, str]) -> list[str]:
    cautions = [
        f"env:{name} is not set under cron; refer to file:PATH instead, or set it in the crontab"
        for name in references_to_variables(book.runbook)
        if name not in variables
    ]
    if not _has_process("cron", "crond"):
        cautions.append("no cron daemon runs here; nothing will start until one does")
    if variables.get("MAILTO") == "":
        cautions.append('MAILTO="" in the crontab: nobody gets mail of a run that fails')
    elif not _SENDMAIL.exists():
        cautions.append("no /usr/sbin/sendmail is here: cron cannot mail what a failed run says; use `notify:`")
    return cautions


def _unit_cautions(book: ScheduledRunbook, units: UnitFiles) -> list[str]:
    cautions = [
        f"env:{name} is not set for a unit; refer to file:PATH instead"
        for name in references_to_variables(book.runbook)
    ]
    if units.is_users and not (_LINGER / _user()).exists():
        cautions.append(f"timers of {_user()} run only while they are logged in: loginctl enable-linger {_user()}")
    return cautions


def _has_process(*names: str) -> bool:
    return any(process.info["name"] in names for process in psutil.process_iter(["name"]))


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
