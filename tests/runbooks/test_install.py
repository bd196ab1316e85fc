"""Schedules for cron and systemd: what would change is shown first, a second time changes nothing, others' stays."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError, FleetctlError, NotFoundError
from fleetctl.model.notification import NotificationKind, NotificationRule
from fleetctl.model.runbook import MissedRun, Runbook, RunbookStep
from fleetctl.runbooks.install import ScheduleChange, apply_crontab, apply_units, plan_crontab, plan_units
from fleetctl.runbooks.scheduled_command import ScheduledRunbook, scheduled_environment
from fleetctl.runbooks.unit_files import UnitFiles
from fleetctl.runbooks.user_crontab import UserCrontab

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 23, 9, 0, 30, tzinfo=UTC)
RUNBOOK = Runbook(name="pre-warm", schedule="30 7 * * mon-fri", steps=(RunbookStep(name="c", action="check"),))
BOOK = ScheduledRunbook(runbook=RUNBOOK, source="pre-warm", fleet="chat", parameters=("replicas=4",), since=NOW)
FOREIGN = b"MAILTO=ops@example.com\n# mine\xff\n5 4 * * * /bin/backup\n"
# The home that cron gives this user, whatever HOME the tests run under.
ENVIRON = {
    "HOME": pwd.getpwuid(os.getuid()).pw_dir,
    "XDG_STATE_HOME": "/var/lib/50%/state",
    "AWS_SECRET_ACCESS_KEY": "s",
}
# As Debian's: no crontab is exit 1 and a word on stderr, `-` reads a new one.
PROGRAM = """#!/bin/sh
table={directory}/table
case "$1" in
-l) if [ -e "$table" ]; then cat "$table"; else echo "no crontab for somebody" >&2; exit 1; fi ;;
-) if [ -e {directory}/refuses ]; then echo "errors in crontab file" >&2; exit 1; fi; cat >"$table" ;;
*) exit 64 ;;
esac
"""


@pytest.fixture
def crontab(tmp_path: Path) -> UserCrontab:
    program = tmp_path / "crontab"
    program.write_text(PROGRAM.format(directory=tmp_path))
    program.chmod(0o755)
    return UserCrontab(str(program))


def install(
    crontab: UserCrontab, book: ScheduledRunbook = BOOK, *, removes: bool = False, at: datetime = NOW
) -> ScheduleChange:
    change = plan_crontab(book, crontab, environ=ENVIRON, now=at, removes=removes)
    apply_crontab(change, crontab)
    return change


def commands(table: bytes) -> list[str]:
    ours = table.decode(errors="surrogateescape").partition("# BEGIN")[2].splitlines()
    return [
        line for line in ours if line and not line.startswith("#") and "fleetctl" in line and line[0] in "0123456789@*"
    ]


def test_a_schedule_is_installed_once_and_taken_out_again(tmp_path: Path, crontab: UserCrontab) -> None:
    table = tmp_path / "table"
    table.write_bytes(FOREIGN)
    assert install(crontab).is_change
    installed = table.read_bytes()
    assert installed.startswith(FOREIGN)
    assert not install(crontab, at=NOW + timedelta(days=3)).is_change
    assert table.read_bytes() == installed
    assert install(crontab, removes=True).is_change
    assert table.read_bytes() == FOREIGN
    assert not install(crontab, removes=True).is_change


def test_the_line_says_everything_the_run_needs(tmp_path: Path, crontab: UserCrontab) -> None:
    install(crontab)
    first, again = commands((tmp_path / "table").read_bytes())
    assert first.startswith("30 7 * * 1-5 ")
    assert again.split()[1:5] == ["*", "*", "*", "*"]
    argv = shlex.split(first.partition("1-5 ")[2].replace(r"\%", "%"))
    assert argv == [
        "/usr/bin/env", "XDG_STATE_HOME=/var/lib/50%/state",
        sys.executable, "-P", "-m", "fleetctl", "runbook", "run", "pre-warm", "--fleet", "chat",
        "--param", "replicas=4", "--scheduled", "--wait", "5m", "--since", "2026-11-23T09:00:30Z",
    ]  # fmt: skip


def test_missed_runs_are_looked_for_at_boot_where_the_runbook_makes_up_for_them(
    tmp_path: Path, crontab: UserCrontab
) -> None:
    install(crontab, replace(BOOK, runbook=replace(RUNBOOK, missed=MissedRun.RUN_ONCE)))
    lines = commands((tmp_path / "table").read_bytes())
    assert len(lines) == 3
    assert lines[2].startswith("@reboot /usr/bin/env ")


def test_another_schedule_begins_anew(tmp_path: Path, crontab: UserCrontab) -> None:
    install(crontab)
    later = NOW + timedelta(days=1)
    install(crontab, replace(BOOK, runbook=replace(RUNBOOK, schedule="0 22 * * *"), since=later), at=later)
    table = (tmp_path / "table").read_text()
    assert table.count("# BEGIN") == 1
    assert "--since 2026-11-24T09:00:30Z" in table
    assert "2026-11-23" not in table


def test_one_runbook_on_two_fleets_is_two_blocks(tmp_path: Path, crontab: UserCrontab) -> None:
    install(crontab)
    install(crontab, replace(BOOK, fleet="voice"))
    install(crontab, removes=True)
    table = (tmp_path / "table").read_text()
    assert "pre-warm on voice" in table
    assert "pre-warm on chat" not in table


def test_the_change_is_shown_before_it_is_made(tmp_path: Path, crontab: UserCrontab) -> None:
    change = plan_crontab(BOOK, crontab, environ=ENVIRON, now=NOW)
    assert "+# BEGIN fleetctl runbook pre-warm on chat\n" in change.diff()
    assert change.next_run_at is not None
    assert change.next_run_at > NOW
    assert not (tmp_path / "table").exists()


def test_who_edits_it_meanwhile_is_not_written_over(tmp_path: Path, crontab: UserCrontab) -> None:
    change = plan_crontab(BOOK, crontab, environ=ENVIRON, now=NOW)
    (tmp_path / "table").write_bytes(FOREIGN)
    with pytest.raises(FleetctlError, match="was changed meanwhile"):
        apply_crontab(change, crontab)
    assert (tmp_path / "table").read_bytes() == FOREIGN


def test_what_cron_refuses_is_said(tmp_path: Path, crontab: UserCrontab) -> None:
    (tmp_path / "refuses").touch()
    with pytest.raises(FleetctlError, match="was not taken: errors in crontab file"):
        install(crontab)


def test_no_cron_is_said() -> None:
    with pytest.raises(NotFoundError, match="is not installed here"):
        UserCrontab("no-program-of-this-name").read()


def test_what_has_no_schedule_is_not_installed(crontab: UserCrontab) -> None:
    with pytest.raises(ConfigError, match="runbook pre-warm has no schedule"):
        install(crontab, replace(BOOK, runbook=replace(RUNBOOK, schedule="")))


def test_a_secret_that_cron_would_not_have_is_cautioned_of(tmp_path: Path, crontab: UserCrontab) -> None:
    rule = NotificationRule(kind=NotificationKind.SLACK, reference="env:SLACK_URL")
    book = replace(BOOK, runbook=replace(RUNBOOK, notify=(rule,)))
    cautions = install(crontab, book).cautions
    assert any("env:SLACK_URL is not set under cron" in caution for caution in cautions)
    (tmp_path / "table").write_text("SLACK_URL=x\nMAILTO=\n")
    cautions = install(crontab, book).cautions
    assert not any("SLACK_URL" in caution for caution in cautions)
    assert any(caution.startswith('MAILTO=""') for caution in cautions)


def test_no_secret_is_written() -> None:
    environ = {**ENVIRON, "HTTPS_PROXY": "http://u:p@proxy", "NO_PROXY": "x", "PATH": "/usr/bin:/bin"}
    kept, cautions = scheduled_environment(environ)
    assert kept == {"XDG_STATE_HOME": "/var/lib/50%/state", "NO_PROXY": "x"}
    assert cautions == ("HTTPS_PROXY holds a password and is not written; set it in a file of the machine's",)


def test_a_home_other_than_the_one_on_record_is_named(tmp_path: Path) -> None:
    kept, _ = scheduled_environment({"HOME": str(tmp_path), "PATH": f"/usr/bin:/nowhere:relative:{tmp_path}:/usr/bin"})
    assert kept == {"HOME": str(tmp_path), "PATH": f"/usr/bin:{tmp_path}"}


def test_units_are_written_once_and_removed(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    program = tmp_path / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{calls}\n')
    program.chmod(0o755)
    units = UnitFiles(is_users=True, directory=tmp_path / "units", program=str(program))
    change = plan_units(BOOK, units, environ=ENVIRON, now=NOW)
    assert "+Persistent=false" in change.diff()
    assert apply_units(change, BOOK, units) == ()
    timer = tmp_path / "units" / "fleetctl-runbook-pre-warm-chat.timer"
    assert "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 07:30:00\n" in timer.read_text()
    assert stat.S_IMODE(timer.stat().st_mode) == 0o644
    later = NOW + timedelta(days=2)
    assert not plan_units(replace(BOOK, since=later), units, environ=ENVIRON, now=later).is_change
    assert apply_units(plan_units(BOOK, units, environ=ENVIRON, now=NOW, removes=True), BOOK, units) == ()
    assert list((tmp_path / "units").iterdir()) == []
    name = "fleetctl-runbook-pre-warm-chat.timer"
    assert calls.read_text().splitlines() == [
        f"--user --no-ask-password {line}"
        for line in ("daemon-reload", f"enable {name}", f"restart {name}", f"disable --now {name}", "daemon-reload")
    ]


def test_a_machine_without_a_running_systemd_gets_the_files_and_hears_of_it(tmp_path: Path) -> None:
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\necho 'System has not been booted with systemd' >&2\nexit 1\n")
    program.chmod(0o755)
    units = UnitFiles(is_users=True, directory=tmp_path / "units", program=str(program))
    change = plan_units(BOOK, units, environ=ENVIRON, now=NOW)
    assert apply_units(change, BOOK, units) == ("System has not been booted with systemd",)
    assert len(list((tmp_path / "units").iterdir())) == 2


def test_the_diff_says_where_a_crontab_ends_without_a_newline() -> None:
    change = ScheduleChange(place="a crontab", before={"crontab": "MAILTO=bob"}, after={"crontab": "MAILTO=bob\nx\n"})
    assert change.diff().splitlines()[3:] == ["-MAILTO=bob", "\\ No newline at end of file", "+MAILTO=bob", "+x"]
