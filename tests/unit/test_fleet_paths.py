"""No name leads out of the state, and nothing is done in a directory before it is known whose it is."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError, StateError
from fleetctl.operations.profiles import find_profile
from fleetctl.paths import FleetPaths

if TYPE_CHECKING:
    from pathlib import Path

ESCAPES = ["../../x", "..", ".", "", "/x", "a/b", "a\\b", "A", "a b", "a\n", "-a", "a-", "é", "a" * 41, "x\x00"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fleetctl"


@pytest.mark.parametrize("name", ESCAPES)
def test_no_path_is_made_of_what_is_no_name(name, tmp_path):
    with pytest.raises(ConfigError, match="is not a name"):
        FleetPaths(fleet=name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in ESCAPES if name])
def test_up_refuses_such_a_name(name):
    with pytest.raises(ConfigError, match="is not a name"):
        find_profile("quickstart", fleet=name)


def test_directories_are_the_users_alone(state):
    FleetPaths(fleet="demo").make()
    for directory in (state, state / "fleets", state / "fleets" / "demo", state / "fleets" / "demo" / "logs"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700 or directory.parent == state.parent


@pytest.mark.parametrize("planted", ["fleets/demo", "fleets/demo/logs", "fleets"])
def test_a_link_in_the_state_is_not_followed(planted, state, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (state / planted).parent.mkdir(parents=True)
    (state / planted).symlink_to(elsewhere)
    with pytest.raises(StateError, match="is a link"):
        FleetPaths(fleet="demo").make()
    assert list(elsewhere.iterdir()) == []
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


def test_a_file_in_the_way_is_an_error_that_names_it(state):
    state.mkdir(parents=True)
    (state / "fleets").write_text("")
    with pytest.raises(StateError, match="fleets is no directory"):
        FleetPaths(fleet="demo").make()


def test_another_users_directory_is_refused_before_anything_is_done_in_it(state, monkeypatch):
    FleetPaths(fleet="demo").make()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StateError, match="belongs to user"):
        FleetPaths(fleet="other").make()
    assert not (state / "fleets" / "other").exists()
