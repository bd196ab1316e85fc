"""The state of a living fleet is deleted, moved away or damaged: people are told, and `down` ends all that lives."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.watched import FLEET, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

_DELETIONS_MAX = 20

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def watched() -> Iterator[Watched]:
    root = Path(tempfile.mkdtemp(prefix="fo-"))
    fleet = Watched(root)
    fleet.up()
    yield fleet
    left = fleet.take_down()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def deleted(state: Path) -> None:
    """Delete it under a fleet that goes on writing: what it makes meanwhile is deleted with the rest."""
    for _ in range(_DELETIONS_MAX):
        shutil.rmtree(state, ignore_errors=True)
        if not state.exists():
            return
    raise AssertionError(f"{state} comes back faster than it is deleted")


def moved(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))


def emptied(state: Path) -> None:
    os.truncate(state / "state.db", 0)


def truncated(state: Path) -> None:
    _empty_log(state)
    os.truncate(state / "state.db", 8192)


def of_other_tables(state: Path) -> None:
    with closing(sqlite3.connect(state / "state.db", timeout=20)) as db:
        db.executescript("DROP TABLE fleets; CREATE TABLE fleets (name TEXT)")


def _empty_log(state: Path) -> None:
    """Have everything in the file itself: SQLite mends a page from its log as long as it is there."""
    with closing(sqlite3.connect(state / "state.db", timeout=20)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


LOST = (deleted, moved)
DAMAGED = (emptied, truncated, of_other_tables)


@pytest.mark.parametrize("strike", LOST)
def test_a_fleet_whose_state_is_gone_is_named_and_ended(watched, strike):
    before = _processes(watched)
    strike(watched.place.parent.parent)
    for words in (("ls",), ("status", FLEET), ("up", str(watched.profile), "-y", "-q")):
        _names_all(watched.run(*words, env="cron-like").stderr, before)
    _end(watched, before)
    assert watched.run("down", FLEET, "-y").stderr.endswith("nothing to do\n")
    _bring_up_anew(watched)


@pytest.mark.parametrize("strike", DAMAGED)
def test_a_fleet_whose_state_is_damaged_can_be_ended_and_brought_up_anew(watched, strike):
    before = _processes(watched)
    state = watched.place.parent.parent
    strike(state)
    for words in (("ls",), ("status", FLEET), ("up", str(watched.profile), "-y", "-q")):
        done = watched.run(*words, env="cron-like")
        assert done.returncode == 1, done
        assert f"{state}/state.db is damaged" in done.stderr
    _end(watched, before)
    done = watched.run("down", FLEET, "-y")
    # The last to close an emptied file may have written into it what its log still held.
    assert "is damaged" in done.stderr or "nothing is left" in done.stderr, done
    aside = state / "damaged"
    aside.mkdir()
    for path in state.glob("state.db*"):
        path.rename(aside / path.name)
    _bring_up_anew(watched)


def _processes(fleet: Watched) -> dict[int, str]:
    """Return what a fleet at work consists of, by pid."""
    names = {pid: role for role in ("controller", "gateway") for pid in fleet.pids(role)}
    assert len(names) == 2
    return names


def _names_all(text: str, processes: dict[int, str]) -> None:
    for pid, role in processes.items():
        assert f"{pid} ({role} of {FLEET})" in text, text


def _end(fleet: Watched, before: dict[int, str]) -> None:
    done = fleet.run("down", FLEET, "-y", env="unit")
    assert done.returncode == 0, done
    assert "nothing to do" not in done.stderr
    _names_all(done.stderr, before)
    assert fleet.processes() == [], done.stderr


def _bring_up_anew(fleet: Watched) -> None:
    done = fleet.run("up", str(fleet.profile), "-y", "-q")
    assert done.returncode == 0, done.stderr
    assert fleet.becomes_right(), fleet.logs()
