"""Fleets recorded before names were checked, or in a state from elsewhere: shown, taken down, and never a path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.desired import DesiredPhase
from fleetctl.model.replica import ReplicaState
from fleetctl.paths import state_dir
from fleetctl.printable import is_printable
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.state.sqlite import SqliteStore
    from tests.cli.conftest import Ran

NAMES = ("..", "../../x", "a b", "/etc", "two\nlines", "\x1b]0;pwned\x07", "-rf", "\u202egnp", "x" * 300, "a/../../b")


@pytest.fixture(params=NAMES, ids=ascii)
def name(request: pytest.FixtureRequest, store: SqliteStore) -> str:
    """The name of a fleet on record, with two replicas that nobody looks after."""
    found: str = request.param
    profile = replace(samples.profile(), name=found)
    store.put_fleet(profile, replace(samples.plan(), fleet=found), now=samples.EPOCH)
    for number in (1, 2):
        store.put_replica(replace(samples.replica(f"r{number}", state=ReplicaState.READY), fleet=found))
    return found


def files_under(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*")}


def test_it_is_listed_and_shown_with_what_to_do(name: str, fleetctl: Callable[..., Ran], home: Path) -> None:
    before = files_under(home)
    for command in (("ls",), ("status", "-f", name), ("lanes", "-f", name), ("doctor",)):
        ran = fleetctl(*command) if command[0] in ("ls", "doctor") else fleetctl(command[0], "--", name)
        assert is_printable(ran.out + ran.err), command
        assert "Traceback" not in ran.err
    listed = json.loads(fleetctl("ls", "-o", "json").out)
    assert [fleet["fleet"] for fleet in (listed if isinstance(listed, list) else listed["fleets"])] == [name]
    assert "fleetctl down" in (ran := fleetctl("status", "--", name)).out + ran.err
    new = files_under(home) - before
    assert {path for path in new if "state.db" not in path} == set()


def test_it_is_taken_down_and_nothing_is_written_outside(
    name: str, fleetctl: Callable[..., Ran], home: Path, store: SqliteStore
) -> None:
    before = files_under(home.parent)
    ran = fleetctl("down", "--yes", "--", name)
    assert ran.code == 0, ran.err
    assert "fleetctl gc" in ran.err
    assert is_printable(ran.out + ran.err)
    assert store.fleets() == ()
    (stone,) = store.tombstones()
    assert (stone.fleet, stone.is_of_fleet) == (name, True)
    new = files_under(home.parent) - before
    assert {path for path in new if "state.db" not in path} == set()


def test_as_it_is_shown_it_can_be_typed(fleetctl: Callable[..., Ran], store: SqliteStore) -> None:
    for name in ("two\nlines", "demo"):
        profile = replace(samples.profile(), name=name)
        store.put_fleet(profile, replace(samples.plan(), fleet=name), now=samples.EPOCH)
    assert fleetctl("down", "--yes", r"two\nlines").code == 0
    assert [desired.fleet for desired in store.fleets()] == ["demo"]


@pytest.mark.parametrize("tag", ["FLEETCTL_STATE_DIR", "FLEETCTL_STATE"])  # the latter on those of earlier versions
def test_its_processes_are_ended_and_nobody_elses(
    fleetctl: Callable[..., Ran], store: SqliteStore, home: Path, tag: str
) -> None:
    for name in ("..", "demo"):
        store.put_fleet(replace(samples.profile(), name=name), replace(samples.plan(), fleet=name), now=samples.EPOCH)
    tags = {"FLEETCTL_OWNER": store.owner, tag: str(state_dir()), "FLEETCTL_REPLICA": "r1"}
    script = [sys.executable, "-c", "import time; time.sleep(60)"]
    running = {
        name: subprocess.Popen(script, env=os.environ | tags | {"FLEETCTL_FLEET": name}) for name in ("..", "demo")
    }
    try:
        ran = fleetctl("down", "--yes", "--", "..")
        assert ran.code == 0, ran.err
        running[".."].wait(timeout=20)  # by itself it would live for a minute
        assert running["demo"].poll() is None
        assert store.fleet("demo") is not None
        assert store.fleet("demo").phase is DesiredPhase.UP  # type: ignore[union-attr]  # looked at above
    finally:
        for process in running.values():
            process.kill()
            process.wait()
