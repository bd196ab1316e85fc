"""The script that has an engine started anew on its instance: run by a real shell, among programs of the test's own."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl_aws.instance_restarts import restart_script

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 3, 2, 14, 0, 0, 500_000, tzinfo=UTC)


def ran(tmp_path: Path, *, unit: str, started: datetime, stop_status: int = 0) -> tuple[int, list[str], str]:
    """Run the script of slot 2 where its unit is in this state; return its status, what it did, and its errors."""
    programs, done = tmp_path / "bin", tmp_path / "done"
    programs.mkdir()
    scripts = {
        "systemctl": f'[ "$1" = is-active ] && {{ echo {unit}; [ {unit} = active ]; exit; }}\necho "systemctl $*" >>{done}',
        "docker": f'[ "$1" = inspect ] && exec echo {started.isoformat()}\necho "docker $*" >>{done}\nexit {stop_status}',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    command = ["/bin/sh", "-c", restart_script(2, started_before=NOW)]
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    result = subprocess.run(command, capture_output=True, check=False, timeout=30, env=environment, text=True)
    return result.returncode, done.read_text().splitlines() if done.exists() else [], result.stderr


def test_its_container_is_stopped_for_systemd_to_start_it_again_and_what_died_before_is_not_counted(tmp_path):
    status, done, _ = ran(tmp_path, unit="active", started=NOW - timedelta(hours=1))
    assert status == 0
    assert done == ["systemctl reset-failed fleetctl-engine@2.service", "docker stop -t 10 fleetctl-engine-2"]


@pytest.mark.parametrize(("unit", "age_s"), [("active", -2), ("activating", 3600)])
def test_one_that_was_started_since_or_that_starts_is_left_at_it(tmp_path, unit, age_s):
    assert ran(tmp_path, unit=unit, started=NOW - timedelta(seconds=age_s)) == (0, [], "")


def test_one_that_was_given_up_is_started_once_systemd_has_forgotten_that(tmp_path):
    status, done, _ = ran(tmp_path, unit="failed", started=NOW)
    unit = "fleetctl-engine@2.service"
    assert (status, done) == (0, [f"systemctl reset-failed {unit}", f"systemctl start --no-block {unit}"])


def test_one_that_was_stopped_is_said(tmp_path):
    status, done, errors = ran(tmp_path, unit="inactive", started=NOW)
    assert (status, done, "its unit is inactive" in errors) == (1, [], True)


def test_a_container_that_does_not_end_is_said(tmp_path):
    assert ran(tmp_path, unit="active", started=NOW - timedelta(hours=1), stop_status=1)[0] == 1
