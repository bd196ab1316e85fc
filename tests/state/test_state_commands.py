"""`fleetctl state`: what is on record where, a lease that is ended by hand, and a state that moves there and back."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import FencedError, StateError
from fleetctl.locks import FileLock
from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.journal import JournalEntry
from fleetctl.model.subject import Subject
from fleetctl.paths import FleetPaths, state_db
from fleetctl.ports.lease import LeaseHolder
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.ports.store import Tombstone
from fleetctl.state.opening import open_store
from fleetctl.testing.samples import EPOCH, node_request, plan, profile, replica

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.ports.store import StateStore
    from tests.state.conftest import S3Place

ELSEWHERE = LeaseHolder(pid=7, host="far", boot_id="b", started_at=EPOCH)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("FLEETCTL_STATE", raising=False)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def command(*argv: str) -> tuple[int, str, str]:
        code = main(["state", *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def fill(store: StateStore) -> None:
    for fleet in ("alpha", "beta"):
        store.put_fleet(profile(fleet), plan(fleet), now=EPOCH)
        store.begin_replica(replica("r1", fleet=fleet), node_request(f"t-{fleet}", replica_id="r1"), now=EPOCH)
        store.next_replica_number(fleet)
        store.append((line(fleet, "one"), line(fleet, "two")))
        store.acquire_lease(fleet, LeaseHolder(pid=1, host="h", boot_id="b", started_at=EPOCH), now=EPOCH)
    store.put_record(StoredRecord.of(Collection.AUDIT, "a", ["kept"], at=EPOCH))
    store.bury(
        Tombstone(
            token="t", provider="fake", fleet="gone", replica_id="r", node_id="n", offering="", ended_at=EPOCH, reason="x"  # noqa: S106  # an order's
        )
    )  # fmt: skip


def line(fleet: str, reason: str) -> JournalEntry:
    return JournalEntry(
        seq=0, at=EPOCH, fleet=fleet, kind=EntryKind.DECISION, subject=Subject.lane("short"), action="x", reason=reason
    )


def content(store: StateStore) -> object:
    fleets = store.fleets()
    return (
        store.owner, fleets, store.former_fleets(), store.tombstones(), store.records(Collection.AUDIT),
        store.records(Collection.ROLLOUTS),
        [
            (
                store.replicas(f.fleet), store.open_intents(f.fleet), store.last_replica_number(f.fleet), store.lease(f.fleet),
                [entry.reason for entry in store.journal(f.fleet)],
            )
            for f in fleets
        ],
    )  # fmt: skip


def test_a_state_moves_to_s3_and_back_with_all_that_is_in_it(
    s3_place: S3Place, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store("")) as store:
        fill(store)
        before = content(store)
    code, _, err = run("migrate", s3_place.url, "--yes")
    assert (code, "export FLEETCTL_STATE=" in err) == (0, True), err
    assert not state_db().exists()
    assert list(state_db().parent.glob("state.db.moved-*"))
    with closing(open_store(s3_place.url)) as store:
        assert content(store) == before
        store.append((line("alpha", "three"),))
        store.append((line("beta", "three"),))
        store.set_phase("alpha", DesiredPhase.DOWN, now=EPOCH)
        before = content(store)
    monkeypatch.setenv("FLEETCTL_STATE", s3_place.url)
    assert run("migrate", "local", "--yes")[0] == 0
    with closing(open_store("")) as store:
        assert content(store) == before
        assert store.append((line("alpha", "four"),))[0].seq == 7
    with closing(open_store(s3_place.url)) as store, pytest.raises(StateError, match="has moved to local"):
        store.fleets()
    monkeypatch.delenv("FLEETCTL_STATE")
    code, _, err = run("migrate", s3_place.url, "--yes")
    assert code == StateError.exit_code
    assert "is not empty" in err


@pytest.mark.parametrize("living", ["controller.lock", "gateway.lock"])
def test_a_state_whose_fleet_is_at_work_stays_where_it_is(
    living: str, s3_place: S3Place, run: Callable[..., tuple[int, str, str]]
) -> None:
    with closing(open_store("")) as store:
        store.put_fleet(profile(), plan(), now=EPOCH)
    paths = FleetPaths(fleet="demo")
    paths.make()
    lock = FileLock(paths.home / living)
    assert lock.try_acquire()
    code, _, err = run("migrate", s3_place.url, "--yes")
    lock.release()
    assert code == 7
    assert "fleet demo is at work" in err
    assert s3_place.dump() == {}
    assert state_db().exists()


def test_a_fleet_that_another_machine_keeps_holds_its_state_too(
    s3_place: S3Place, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_STATE", s3_place.url)
    with closing(open_store(s3_place.url)) as store:
        store.put_fleet(profile(), plan(), now=EPOCH)
        held = store.under(store.acquire_lease("demo", ELSEWHERE, now=SYSTEM_CLOCK.now()))
        code, _, err = run("migrate", "local", "--yes")
        assert code == 7
        assert "process 7 on far" in err
        assert not state_db().exists()
        assert run("unlock", "demo", "--yes")[0] == 0
        with pytest.raises(FencedError):
            held.append((line("demo", "late"),))
        code, out, _ = run("show", "-o", "json")
        assert code == 0
        (found,) = json.loads(out)["fleets"]
        assert (found["epoch"], found["is_released"]) == (2, True)
        assert found["commits"] > 2
        assert store.acquire_lease("demo", ELSEWHERE, now=EPOCH).epoch == 3, "at once"
        assert "demo" in run("show")[1]


def test_a_file_has_nothing_to_unlock_and_no_state_is_shown_as_none(
    run: Callable[..., tuple[int, str, str]], s3_place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run("show")
    assert (code, "State" in out) == (0, True)
    assert not state_db().exists()
    code, _, err = run("unlock", "demo", "--yes")
    assert (code, "nothing to unlock" in err) == (3, True)
    assert run("migrate", "somewhere", "--yes")[0] == 3
    assert run("migrate", "local", "--yes")[0] == 3
    monkeypatch.setenv("FLEETCTL_STATE", s3_place.url)
    assert run("show")[0] == 0
    assert s3_place.dump() == {}, "to look makes nothing"
    monkeypatch.setenv("FLEETCTL_STATE", "bucket/prefix")
    code, _, err = run("show")
    assert (code, "s3://BUCKET/PREFIX" in err) == (3, True)
