"""Where things lie: with the state, whatever else an environment says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import StateError
from fleetctl.paths import FleetPaths

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("runtime", ["", "/run/user/0", "/nowhere", "relative"])
def test_locks_do_not_depend_on_a_runtime_directory(state, monkeypatch, runtime):
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    paths = FleetPaths(fleet="demo")
    for lock in (paths.controller_lock, paths.gateway_lock):
        assert lock.parent == state / "fleetctl" / "fleets" / "demo"


def test_everything_is_the_users_alone():
    paths = FleetPaths(fleet="demo")
    paths.make()
    assert all(
        directory.stat().st_mode & 0o077 == 0 for directory in (paths.home, paths.logs, paths.home.parent.parent)
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_nothing_is_written_into_another_users_state(state):
    (state / "fleetctl").mkdir(mode=0o700)
    os.chown(state / "fleetctl", 1234, 1234)
    with pytest.raises(StateError, match="belongs to user 1234, and this is user 0"):
        FleetPaths(fleet="demo").make()
