"""`install.sh uninstall` takes nothing away from a fleet that lives, and leaves nothing where none does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALLER = Path(__file__).parents[2] / "install.sh"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's home with an installation whose `fleetctl ls` prints the file `fleets`, or fails without it."""
    share, own_bin = tmp_path / ".local/share/fleetctl", tmp_path / ".local/bin"
    (share / "venv/bin").mkdir(parents=True)
    own_bin.mkdir(parents=True)
    command = share / "venv/bin/fleetctl"
    command.write_text(f'#!/bin/sh\nif [ "$1" = ls ]; then cat "{tmp_path}/fleets"; fi\n')
    command.chmod(0o755)
    (share / "venv/bin/python").symlink_to(sys.executable)
    (share / "tree").write_text("0\n")
    (own_bin / "fleetctl").symlink_to(command)
    (tmp_path / "fleets").write_text("")
    return tmp_path


def uninstall(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "80"}
    return subprocess.run(
        [INSTALLER, "uninstall", *options], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def is_installed(home: Path) -> bool:
    return (home / ".local/bin/fleetctl").exists()


@pytest.fixture
def gateway(home: Path) -> Iterator[int]:
    """A process of this installation that no state of this user knows."""
    (home / "gateway.py").write_text("print('up', flush=True)\nimport time\ntime.sleep(600)\n")
    python = home / ".local/share/fleetctl/venv/bin/python"
    with subprocess.Popen([python, "-m", "gateway", "lost"], cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process.pid
        process.kill()


def test_nothing_is_left_where_no_fleet_lives(home: Path) -> None:
    ran = uninstall(home)
    assert (ran.returncode, ran.stderr) == (0, "==> removed\n")
    assert not (home / ".local/share/fleetctl").exists()
    assert list((home / ".local/bin").iterdir()) == []
    assert uninstall(home).returncode == 0  # again


def test_records_that_stay_are_named(home: Path) -> None:
    state = home / ".local/state/fleetctl"
    state.mkdir(parents=True)
    assert f"fleets' records and journals stay in {state}" in uninstall(home).stderr
    assert state.is_dir()


def test_fleets_that_are_up_are_named_and_keep_their_command(home: Path) -> None:
    (home / "fleets").write_text("chat\nrag\n")
    ran = uninstall(home)
    assert (ran.returncode, is_installed(home)) == (1, True)
    assert "fleets are up: chat rag" in ran.stderr
    assert "fleetctl down FLEET" in ran.stderr
    assert uninstall(home, "--force").returncode == 0
    assert not is_installed(home)


def test_where_fleets_cannot_be_seen_nothing_is_taken(home: Path) -> None:
    (home / "fleets").unlink()
    ran = uninstall(home)
    assert (ran.returncode, is_installed(home)) == (1, True)
    assert "whether fleets are up cannot be seen" in ran.stderr


def test_a_fleet_of_another_state_lives_on_this_installation(home: Path, gateway: int) -> None:
    ran = uninstall(home)
    assert (ran.returncode, is_installed(home)) == (1, True)
    assert f"fleets run on this installation: {gateway} (gateway lost)" in ran.stderr
