"""`events`, followed by a process of its own: each line once, until the fleet is gone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.journal import JournalEntry
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.state.sqlite import SqliteStore
    from tests.cli.conftest import Ran

EVENTS = (sys.executable, "-m", "fleetctl", "events", "demo", "--follow", "-o", "json")
NOTICE = JournalEntry(
    seq=0,
    at=samples.EPOCH,
    fleet="demo",
    kind=EntryKind.NOTICE,
    subject=Subject.lane("short"),
    action="notice",
    reason="0",
)


def forget(store: SqliteStore) -> None:
    """End the fleet as its controller does."""
    store.set_phase("demo", DesiredPhase.DOWN, now=samples.EPOCH)
    for record in store.replicas("demo"):
        store.put_replica(replace(record, state=ReplicaState.GONE))
    store.remove_fleet("demo")


def followed(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*EVENTS, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_each_line_comes_once_and_the_end_of_the_fleet_is_the_end(dead_fleet: str, store: SqliteStore) -> None:
    with followed("--kind", "notice", "--since", "1h") as running:
        assert running.stdout is not None
        store.append((replace(NOTICE, at=samples.EPOCH + timedelta(days=3650)),))
        read = [json.loads(running.stdout.readline())["reason"]]  # it has begun
        for number in range(1, 40):
            store.append((replace(NOTICE, reason=str(number)), replace(NOTICE, kind=EntryKind.ALERT, reason="other")))
        forget(store)
        out, err = running.communicate(timeout=60)
    read += [json.loads(line)["reason"] for line in out.splitlines()]
    assert read == [str(number) for number in range(40)]
    assert (running.returncode, err.splitlines()[-1]) == (0, "fleet demo is gone")


def test_a_fleet_that_was_gone_before_is_told_and_ends_at_once(
    dead_fleet: str, store: SqliteStore, fleetctl: Callable[..., Ran]
) -> None:
    forget(store)
    ran = fleetctl("events", "demo", "--follow")
    assert ran.code == 8
    assert len(ran.out.splitlines()) == 2
    assert "fleet 'demo' is gone, and nothing more happens to it" in ran.err
    assert fleetctl("events", "demo").code == 0


def test_a_fleet_that_never_was_is_not_followed(fleetctl: Callable[..., Ran]) -> None:
    assert fleetctl("events", "nobody", "--follow").code == 8


@pytest.mark.parametrize("options", [(), ("--since", "1h"), ("--kind", "alert", "--limit", "1")], ids=" ".join)
def test_ctrl_c_is_130(options: tuple[str, ...], dead_fleet: str, store: SqliteStore) -> None:
    alert = replace(NOTICE, at=samples.EPOCH + timedelta(days=3650), kind=EntryKind.ALERT)
    store.append((alert,))
    with followed(*options) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in err


def test_a_reader_that_leaves_ends_it_although_nothing_happens(dead_fleet: str) -> None:
    with followed() as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.wait(timeout=60) in (0, 141)
