"""Debian's own cron on a living fleet: commands in its empty environment; runbooks, overlaps, kills, mail and missed runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.schedules.time_zones import machine_zone
from tests.e2e import cron
from tests.e2e.own_cron import OwnCron, own_cron, why_not
from tests.e2e.watched import FLEET, Watched, Witness
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

# Minutes pass, and little is computed: these tests go beside those of single processes, one after the other.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.waits,
    pytest.mark.minutes,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("cron"),
]

RIGHT_S = 90.0  # other tests run beside
REST_S = 8.0  # cron starts something once a minute, and a look at the history is a process of its own

RUNBOOK = """\
apiVersion: fleetctl/v1
kind: Runbook
name: {name}
schedule: "{schedule}"
missed: {missed}
steps:
{steps}
"""
SERVES = "  - check:\n"
FAILS = "  - check: {that: 'lanes.short.ready > 99', message: too few}\n"
SCALES = "  - {name: pin, scale: {lane: short, replicas: 2}}\n"
LONG = f"{SCALES}  - {{name: hold, wait: {{for: 30s}}}}\n  - {{name: free, scale: {{lane: short, replicas: auto}}}}\n"
MAILTO = "MAILTO=ops@example.com\n# a line of somebody else's\n17 3 1 1 * /bin/true  # 50\\%\n"


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    root = Path(tempfile.mkdtemp(prefix="fr-"))
    fleet = Watched(root)
    try:
        fleet.up()
        yield fleet
    finally:
        left = fleet.take_down()
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


@pytest.fixture
def daemon(watched: Watched) -> Iterator[OwnCron]:
    reason = why_not()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    with own_cron(watched.root) as running:
        running.set_crontab(MAILTO)
        yield running
        assert running.process.poll() is None


def install(
    watched: Watched, daemon: OwnCron, name: str, *, steps: str, schedule: str = "* * * * *", missed: str = "skip"
) -> None:
    """Install a runbook as somebody does at a shell of theirs; crontab(1) works on the daemon's own spool."""
    file = watched.root / f"{name}.yaml"
    file.write_text(RUNBOOK.format(name=name, schedule=schedule, missed=missed, steps=steps))
    daemon.run(
        sys.executable, "-m", "fleetctl", "runbook", "install-cron", str(file), "--fleet", FLEET,
        env={**watched.environments["own"], "PATH": os.environ["PATH"]},
    )  # fmt: skip


def history(watched: Watched) -> dict[str, list[dict[str, Any]]]:
    """Return every runbook's runs, oldest first."""
    done = watched.run("runbook", "history", FLEET, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for run in json.loads(done.stdout):
        found.setdefault(run["runbook"], []).append(run)
    return found


def runs(watched: Watched, name: str) -> list[dict[str, Any]]:
    """Return a runbook's runs, oldest first."""
    return history(watched).get(name, [])


def installed_hours_ago(crontab: str) -> str:
    """Return a crontab as it would be had it been installed three hours ago."""
    since = f"{datetime.now(UTC) - timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"  # noqa: TID251  # cron's own clock
    return re.sub(r"--since \S+", f"--since {since}", crontab)


def looking_every_minute(crontab: str) -> str:
    """Return a crontab whose lines that look again every ten minutes do so every minute."""
    return re.sub(r"(?m)^(\d+,){5}\d+ \* \* \* \* ", "* * * * * ", crontab)


def an_hour_s_minute(minutes_ago: int) -> str:
    """Return the schedule of every hour whose last time is so many minutes ago."""
    at = datetime.now(UTC).astimezone(machine_zone()) - timedelta(minutes=minutes_ago)  # noqa: TID251  # cron's own clock
    return f"{at.minute} * * * *"


def test_cron_is_silent_while_all_is_well_and_mails_what_failed(watched: Watched, daemon: OwnCron) -> None:
    ago = an_hour_s_minute(30)
    install(watched, daemon, "every-minute", steps=SERVES)
    install(watched, daemon, "failing", steps=FAILS)
    install(watched, daemon, "missed-once", steps=SERVES, schedule=ago, missed="run-once")
    install(watched, daemon, "missed-skipped", steps=SERVES, schedule=ago)
    before = daemon.crontab
    assert before.startswith(MAILTO)
    install(watched, daemon, "failing", steps=FAILS)
    assert daemon.crontab == before  # a second time changes nothing
    daemon.set_crontab(looking_every_minute(installed_hours_ago(before)))

    until(lambda: len(runs(watched, "every-minute")) >= 2, within_s=150, rest_s=REST_S, what="two runs of cron's")
    daemon.set_crontab(MAILTO)
    until(
        lambda: all(run["status"] != "running" for run in runs(watched, "every-minute")),
        within_s=60,
        rest_s=REST_S,
        what="their end",
    )

    done = history(watched)
    first, second = done["every-minute"][:2]
    assert [first["status"], second["status"]] == ["succeeded", "succeeded"]
    assert first["stands_for"] != second["stands_for"]
    # Missed half an hour ago: made up for once, whatever cron starts again; or skipped, and on record once.
    (once,) = done["missed-once"]
    assert (once["status"], once["actor"]["channel"]) == ("succeeded", "cron")
    (skipped,) = done["missed-skipped"]
    assert (skipped["status"], skipped["steps"]) == ("skipped", [])
    # Silent when well: every mail is of the failing one, and says why.
    mails = daemon.mails()
    assert mails
    assert all("failing.yaml" in mail.subject and mail.to == "ops@example.com" for mail in mails), mails
    assert all("too few" in mail.text for mail in mails), mails
    assert len(mails) == len(runs(watched, "failing"))


def test_an_overlapping_run_is_refused_and_a_killed_one_is_gone_on_with(watched: Watched, daemon: OwnCron) -> None:
    install(watched, daemon, "long", steps=LONG, schedule=an_hour_s_minute(2), missed="run-once")
    install(watched, daemon, "beside", steps=SERVES, schedule=an_hour_s_minute(2), missed="run-once")
    crontab = looking_every_minute(installed_hours_ago(daemon.crontab))
    # The other one comes while the long one holds the fleet, and does not wait.
    beside = re.sub(r"(?m)^(\* \* \* \* \*) (.*beside\.yaml.*)--wait 5m", r"\1 sleep 8; \2--wait 0s", crontab)
    daemon.set_crontab(beside)
    until(lambda: _is_holding(watched), within_s=130, rest_s=REST_S / 2, what="the long run")
    until(lambda: any("beside.yaml" in mail.subject for mail in daemon.mails()), within_s=60, what="the refusal's mail")
    (refusal, *_) = [mail for mail in daemon.mails() if "beside.yaml" in mail.subject]
    assert "holds runbook.lock" in refusal.text
    assert "long.yaml" in refusal.text  # who holds it

    (killed,) = _processes(watched, "long.yaml")
    killed.send_signal(signal.SIGKILL)
    until(
        lambda: [run["status"] for run in runs(watched, "long")] == ["succeeded"],
        within_s=150,
        rest_s=REST_S,
        what="its resumption",
    )
    (resumed,) = runs(watched, "long")
    assert resumed["lives"] == 2
    assert [step["status"] for step in resumed["steps"]] == ["ok", "ok", "ok"]
    # What the shell around it says of a killed command; of the run that finished it nothing.
    assert {mail.text.strip() for mail in daemon.mails() if "long.yaml" in mail.subject} <= {"Killed"}


def test_a_run_that_was_missed_while_the_machine_was_off_is_made_up_for_at_boot(watched: Watched) -> None:
    with own_cron(watched.root) as daemon:
        daemon.set_crontab(MAILTO)
        install(watched, daemon, "at-boot", steps=SERVES, schedule=an_hour_s_minute(40), missed="run-once")
        daemon.set_crontab(installed_hours_ago(daemon.crontab))
    assert runs(watched, "at-boot") == []
    with own_cron(watched.root):
        until(lambda: [run["status"] for run in runs(watched, "at-boot")] == ["succeeded"], within_s=60, what="@reboot")


JOB = """\
cd /
env >"{root}/job-environment"
for turn in 1 2 3; do
    for words in "status watched -o json" "scale short auto" "up {profile} -y -q --no-proof"; do
        # shellcheck disable=SC2086
        fleetctl $words >>"{root}/job-output" 2>&1 || echo "FAILED: $words" >>"{root}/job-output"
    done
done
date +%s >>"{root}/job-done"
"""


@pytest.mark.timeout(420)
def test_a_real_cron_daemon_works_on_a_live_fleet_and_revives_a_dead_one(watched: Watched) -> None:
    reason = cron.why_not()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    job = watched.root / "job.sh"
    job.write_text(JOB.format(root=watched.root, profile=watched.profile))
    done = watched.root / "job-done"
    with cron.every_minute(f"/bin/sh {job}", watched.root) as daemon:
        with Witness(watched) as witness:
            until(done.exists, within_s=130, what="cron's first job")
            # A job that has just ended leaves two busy cores behind: one look may meet the gateway between two answers.
            watched.until_right(within_s=RIGHT_S)
            assert witness.take() == []
        environment = (watched.root / "job-environment").read_text()
        assert "XDG_RUNTIME_DIR" not in environment
        assert "LOGNAME=root" in environment
        assert len(watched.controllers()) == 1
        for role in ("controller", "gateway"):
            for pid in watched.pids(role):
                os.kill(pid, signal.SIGKILL)
        first = len(done.read_text().split())
        until(lambda: len(done.read_text().split()) > first, within_s=130, what="cron's next job")
        watched.until_right(within_s=RIGHT_S)  # revived by cron
        assert daemon.poll() is None
    assert "FAILED" not in (watched.root / "job-output").read_text()
    epochs = watched.epochs()
    assert epochs == sorted(epochs)


def _processes(watched: Watched, named: str) -> list[psutil.Process]:
    """Return the runs of a runbook that go on, the shells around them apart."""
    return [
        process
        for process in watched.processes()
        if process.cmdline()[1:5] == ["-P", "-m", "fleetctl", "runbook"]
        and any(named in word for word in process.cmdline())
    ]


def _is_holding(watched: Watched) -> bool:
    return any(step["name"] == "hold" for run in runs(watched, "long") for step in run["steps"])
