"""The file under the store: its age, its damage, its sharers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import DamagedStateError, LockHeldError, StateError
from fleetctl.model.action import EntryKind
from fleetctl.model.decision import Memory
from fleetctl.model.journal import JournalEntry
from fleetctl.model.ladder import LadderStep
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.ports.store import IntentState
from fleetctl.state.database import Database
from fleetctl.state.migrations import STEPS, Step, migrate, version_of
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH, node_request, replica

NEXT = STEPS[-1].version + 1
V1_SQL = Path(__file__).parent / "schema_v1.sql"

WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from fleetctl.model.decision import Memory
from fleetctl.model.ladder import LadderStep
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.store import IntentState
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.samples import EPOCH, node_request, replica

store = SqliteStore(Path(sys.argv[1]))
lane, writes = sys.argv[2], int(sys.argv[3])
print("open", flush=True)
for _ in range(writes):
    number = store.next_replica_number("demo")
    made = replica(f"r{number}", lane=lane)
    store.begin_replica(made, node_request(f"token-{number}"), now=EPOCH)
    booting = replace(made, state=ReplicaState.BOOTING, node_id="node")
    store.settle_intent(f"token-{number}", IntentState.DONE, replica=booting)
    print(number, flush=True)
"""


def build_v1(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(V1_SQL.read_text())
    connection.close()


def test_a_file_of_schema_1_opens_with_everything_in_it(tmp_path: Path) -> None:
    build_v1(tmp_path / "state.db")
    store = SqliteStore(tmp_path / "state.db")
    assert store.owner == "5eed5eed5eed5eed5eed5eed5eed5eed"
    assert [(r.id, r.state, r.drain_requested) for r in store.replicas("demo")] == [
        ("short-1", ReplicaState.READY, True)
    ]
    assert [(i.token, i.state, i.request.port) for i in store.open_intents("demo")] == [
        ("token-2", IntentState.OPEN, 20002)
    ]
    assert store.next_replica_number("demo") == 8
    assert [(e.seq, e.subject.path, e.reason) for e in store.journal("demo")] == [(41, "lane/short", "one is missing")]
    # Its ladder steps were numbers: an operator's are kept by their name, the controller works its own out anew.
    assert store.memory("demo") == Memory()
    fleet = store.fleet("quickstart")
    assert fleet is not None
    assert fleet.overrides.step == {"long": LadderStep.CAP_TOKENS}
    store.close()


@pytest.mark.parametrize(
    ("subject", "action", "path"),
    [
        ("fleet", "down", "fleet/fleet"),
        ("gateway", "started", "gateway/gateway"),
        ("short-12", "drain", "replica/short-12"),
        ("rag", "launch", "lane/rag"),
        ("i-0abc12", "stop-orphaned-node", "node/i-0abc12"),
    ],
)
def test_old_journal_lines_get_typed_subjects(tmp_path: Path, subject: str, action: str, path: str) -> None:
    build_v1(tmp_path / "state.db")
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute(
            "UPDATE journal SET subject = ?1, record = json_set(record, '$.subject', ?1, '$.action', ?2)",
            (subject, action),
        )
    connection.close()
    store = SqliteStore(tmp_path / "state.db")
    (found,) = store.journal("demo")
    assert found.subject.path == path
    assert store.journal("demo", subjects=(found.subject,)) == (found,)
    store.close()


def test_a_step_is_taken_forward_with_the_rows_kept_and_a_copy_left_aside(tmp_path: Path) -> None:
    build_v1(tmp_path / "state.db")
    newer = (*STEPS, Step(version=NEXT, statements=("ALTER TABLE fleets ADD COLUMN note TEXT NOT NULL DEFAULT ''",)))
    Database(tmp_path / "state.db", steps=newer).close()
    connection = sqlite3.connect(tmp_path / "state.db")
    assert version_of(connection) == NEXT
    assert connection.execute("SELECT fleet, last FROM replica_numbers").fetchall() == [("demo", 7)]
    assert connection.execute("SELECT note FROM fleets").fetchall() == [("",)]
    assert migrate(connection, newer) == ()
    connection.close()
    copy = sqlite3.connect(tmp_path / "state.db.schema1")
    assert version_of(copy) == 1
    assert copy.execute("SELECT owner FROM identity").fetchone() == ("5eed5eed5eed5eed5eed5eed5eed5eed",)
    copy.close()


def test_a_journal_that_spells_the_reason_for_a_new_node_as_it_once_did_opens(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db")
    entry = JournalEntry(
        seq=0, at=EPOCH, fleet="demo", kind=EntryKind.LIFECYCLE, subject=Subject.replica("r1"),
        action="request-node", code=ReasonCode.NODE_REQUESTED, reason="load",
    )  # fmt: skip
    store.append((entry, replace(entry, code=ReasonCode.HEALTHY, action="warm")))
    store.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as file, file:
        file.execute(
            "UPDATE journal SET record = replace(replace(record, 'node-requested', 'ordered'), 'request-node', 'ordered')"
        )
        file.execute("DROP TABLE records")
        file.execute("DELETE FROM schema_version WHERE version > 8")
    store = SqliteStore(tmp_path / "state.db")
    assert [(e.code, e.action) for e in store.journal("demo")] == [
        (ReasonCode.NODE_REQUESTED, "request-node"),
        (ReasonCode.HEALTHY, "warm"),
    ]
    store.close()


def test_a_failing_step_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    build_v1(tmp_path / "state.db")
    broken = Step(version=NEXT, statements=("DROP TABLE journal", "ALTER TABLE absent ADD COLUMN x"))
    with pytest.raises(StateError, match="absent"):
        Database(tmp_path / "state.db", steps=(*STEPS, broken))
    store = SqliteStore(tmp_path / "state.db")
    assert len(store.journal("demo")) == 1
    store.close()


def test_schema_1_text_is_what_step_1_makes(tmp_path: Path) -> None:
    """A released step must never be edited: the frozen text is the witness."""
    build_v1(tmp_path / "frozen.db")
    Database(tmp_path / "made.db", steps=STEPS[:1]).close()

    def shape(name: str) -> list[tuple[str, str]]:
        connection = sqlite3.connect(tmp_path / name)
        rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
        connection.close()
        return [(row[0], " ".join(row[1].split())) for row in rows]

    assert shape("made.db") == shape("frozen.db")


def test_a_file_from_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    build_v1(tmp_path / "state.db")
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("INSERT INTO schema_version VALUES (999)")
    connection.commit()
    connection.close()
    before = (tmp_path / "state.db").read_bytes()
    with pytest.raises(StateError, match="schema 999") as caught:
        SqliteStore(tmp_path / "state.db")
    assert "upgrade" in caught.value.hint
    assert (tmp_path / "state.db").read_bytes() == before


@pytest.mark.parametrize("damage", ["noise", "torn"])
def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "state.db"
    build_v1(path)
    raw = bytearray(path.read_bytes())
    if damage == "noise":
        raw[:] = Random(7).randbytes(len(raw))
    else:
        raw[4096:] = Random(7).randbytes(len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(StateError, match="damaged") as caught:
        SqliteStore(path).journal("demo")
    assert "mv" in caught.value.hint


def test_a_file_emptied_under_those_who_have_it_open_is_told_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db")
    assert store.owner
    os.truncate(tmp_path / "state.db", 0)
    with pytest.raises(DamagedStateError, match="it is empty, though it is in use"):
        SqliteStore(tmp_path / "state.db")
    store.close()


def test_a_file_with_other_tables_is_damaged_and_not_a_matter_of_room(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "state.db").close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as db:
        db.executescript("DROP TABLE fleets; CREATE TABLE fleets (name TEXT)")
    with closing(SqliteStore(tmp_path / "state.db")) as store, pytest.raises(DamagedStateError, match="no state of"):
        store.fleets()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("CREATE TABLE songs (title)")
    connection.commit()
    connection.close()
    with pytest.raises(StateError, match="another program"):
        SqliteStore(tmp_path / "state.db")


def test_a_directory_in_the_way_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(StateError) as caught:
        SqliteStore(tmp_path / "state.db")
    assert "XDG_STATE_HOME" in caught.value.hint


def test_a_lock_held_past_the_deadline_is_said_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db", busy_timeout_s=0.1)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockHeldError, match="locked"):
        store.put_replica(replica())
    other.execute("ROLLBACK")
    store.put_replica(replica())
    other.close()
    store.close()


def spawn_writer(path: Path, lane: str, writes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), lane, str(writes)], stdout=subprocess.PIPE, text=True
    )


def test_eight_processes_lose_no_write(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    # All eight also race to create the file; and take their numbers from one row.
    writers = [spawn_writer(path, f"lane{n % 4}", 34) for n in range(8)]
    for writer in writers:
        writer.communicate(timeout=50)
        assert writer.returncode == 0
    store = SqliteStore(path)
    kept = store.replicas("demo")
    assert sorted(r.id for r in kept) == sorted(f"r{n}" for n in range(1, 273))
    assert {r.state for r in kept} == {ReplicaState.BOOTING}
    assert store.open_intents("demo") == ()
    store.close()


def test_killed_writers_leave_a_consistent_store_and_lose_nothing_they_had_said(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    rng = Random(11)
    acknowledged: list[int] = []
    for _ in range(8):
        writer = spawn_writer(path, "short", 1000)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        SYSTEM_CLOCK.sleep_blocking(rng.uniform(0.0, 0.15))
        os.kill(writer.pid, signal.SIGKILL)
        rest, _ = writer.communicate(timeout=20)
        acknowledged += [int(line) for line in rest.splitlines() if line.strip()]
        store = SqliteStore(path)
        replicas = {r.id: r for r in store.replicas("demo")}
        open_ids = {i.replica_id for i in store.open_intents("demo")}
        # Every replica is either settled, or has its open intent: never one without the other.
        assert {r.id for r in replicas.values() if r.state is ReplicaState.PENDING} == open_ids
        store.close()
    assert acknowledged
    assert len(acknowledged) == len(set(acknowledged))
    store = SqliteStore(path)
    settled = {r.id for r in store.replicas("demo") if r.state is ReplicaState.BOOTING}
    assert {f"r{n}" for n in acknowledged} <= settled
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.begin_replica(replica("new-1"), node_request("token-new"), now=EPOCH)
    store.close()


def test_a_store_opened_on_use_makes_no_file_by_being_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db", opens_on_use=True)
    assert store.fleets() == ()
    assert store.fleet("demo") is None
    assert store.journal("demo") == ()
    assert not any(tmp_path.iterdir())
    desired = store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    assert store.fleets() == (desired,)
    store.close()


def test_a_store_opened_on_use_reports_a_damaged_file_at_its_first_call(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"this is no database, and long enough to be read as one" * 40)
    store = SqliteStore(path, opens_on_use=True)
    with pytest.raises(StateError, match="damaged"):
        store.fleets()
    store.close()


def test_a_store_in_memory_keeps_what_it_is_given_and_touches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(None)
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    assert [desired.fleet for desired in store.fleets()] == ["demo"]
    assert store.owner == store.owner
    assert not any(tmp_path.iterdir())
    store.close()


def test_a_second_connection_of_a_process_leaves_the_log_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first, second = SqliteStore(path), SqliteStore(path)
    first.put_fleet(samples.profile(), samples.plan(), now=EPOCH)
    log = path.with_name("state.db-wal")
    before = log.stat().st_ino
    reader = "import sys; from pathlib import Path; from fleetctl.state.sqlite import SqliteStore; "
    reader += "SqliteStore(Path(sys.argv[1])).close()"
    subprocess.run([sys.executable, "-c", reader, str(path)], check=True)
    assert log.stat().st_ino == before
    second.close()
    first.close()
