"""Units that systemd itself finds right, and calendar events that name cron's own instants."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.errors import ConfigError
from fleetctl.schedules.cron import next_run
from fleetctl.schedules.systemd_units import on_calendar, service_text, timer_text

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
CRONS = (
    "30 7 * * mon-fri", "0 22 * * *", "*/10 * * * *", "5 4 1,15 * 5", "0 9 */2 * 5", "17 4 29 2 *", "0 0 1 jan,jul *",
    "@hourly", "@weekly", "59 23 31 12 *", "0,30 2-3 * * *", "0 6 * * 7",
)  # fmt: skip


def elapses(event: str, after: datetime, count: int) -> list[datetime]:
    assert ANALYZE
    done = subprocess.run(
        [ANALYZE, "calendar", f"--base-time={after:%Y-%m-%d %H:%M:%S} UTC", f"--iterations={count}", event],
        check=True, capture_output=True, text=True, env={"TZ": "UTC", "LC_ALL": "C"},
    )  # fmt: skip
    found = re.findall(r"(?:Next elapse|Iter\. #\d+): \w+ (\S+ \S+) UTC", done.stdout)
    return [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in found]


@needs_systemd
@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_systemd_elapses_when_cron_runs(cron, zone):
    start, expected = NOW, []
    for _ in range(6):
        start = next_run(cron, start, time_zone=zone)
        expected.append(start)
    events = [e for e in on_calendar(cron, time_zone=zone, now=NOW) if not e.startswith("*-*-* 03:00:00 Europe")]
    assert sorted({at for event in events for at in elapses(event, NOW, 6)})[:6] == expected


@needs_systemd
def test_a_time_that_clocks_skip_has_an_event_after_the_gap():
    events = on_calendar("30 2 * * *", time_zone="Europe/Vienna", now=NOW)
    assert events == ("*-*-* 02:30:00 Europe/Vienna", "*-*-* 03:00:00 Europe/Vienna")
    before = datetime(2027, 3, 28, 0, 0, tzinfo=UTC)
    run = next_run("30 2 * * *", before, time_zone="Europe/Vienna")
    assert run == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)
    assert run in [at for event in events for at in elapses(event, before, 1)]
    assert on_calendar("30 4 * * *", time_zone="Europe/Vienna", now=NOW) == ("*-*-* 04:30:00 Europe/Vienna",)


@needs_systemd
def test_systemd_finds_no_fault_in_the_units(tmp_path):
    assert ANALYZE
    argv = ["/usr/bin/printf", "%s $HOME", 'a "quoted" word', "back\\slash", "semi;colon", "it's"]
    service = service_text("fleetctl runbook 100% pre-warm", argv, {"PATH": "/a b:/c%d", "X": 'say "hi"'}, user="root")
    timer = timer_text(
        "fleetctl runbook pre-warm", "30 7 * * mon-fri", time_zone="Europe/Vienna", catches_up=True, key="k", now=NOW
    )
    (tmp_path / "fleetctl-runbook-x.service").write_text(service)
    (tmp_path / "fleetctl-runbook-x.timer").write_text(timer)
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(tmp_path / "fleetctl-runbook-x.timer"), str(tmp_path / "fleetctl-runbook-x.service")],
        check=False, capture_output=True, text=True, env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system"},
    )  # fmt: skip
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "fleetctl-runbook" in line]
    assert (done.returncode, ours) == (0, [])
    assert "Persistent=true" in timer
    assert "KillMode=process" in service


def test_words_are_quoted_as_systemd_reads_them():
    service = service_text("d", ["/bin/x", "50%", "$HOME", "a b", 'q"q', "\\", ""], {"A": "1 2", "B": "x"})
    assert r'ExecStart=/bin/x 50%% $$HOME "a b" "q\"q" "\\" ""' in service
    assert 'Environment="A=1 2"\nEnvironment=B=x' in service


def test_a_line_break_stands_in_no_unit():
    with pytest.raises(ConfigError):
        service_text("d", ["/bin/x", "a\nExecStartPost=evil"], {})
    with pytest.raises(ConfigError):
        service_text("d", ["/bin/x"], {"A": "1\nUser=root"})


def test_cut_runs_are_looked_for_beside_the_schedule():
    timer = timer_text("d", "30 7 * * *", time_zone="", catches_up=False, key="k", now=NOW)
    assert "Persistent=false" in timer
    again = re.findall(r"OnCalendar=\*-\*-\* \*:(\S+):00", timer)
    assert len(again) == 1
    minutes = [int(minute) for minute in again[0].split(",")]
    assert [b - a for a, b in itertools.pairwise(minutes)] == [10] * 5
    assert 30 not in minutes
    assert timedelta(minutes=minutes[0]) < timedelta(minutes=10)
