"""One writer a fleet: whoever holds an older lease than the newest writes nothing, by whichever call."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import FencedError, FleetctlError, StateError
from fleetctl.model.action import EntryKind
from fleetctl.model.decision import Memory
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.journal import JournalEntry
from fleetctl.model.subject import Subject
from fleetctl.ports.lease import LeaseHolder
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.ports.store import IntentState
from fleetctl.state.shared import SharedStore
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.samples import EPOCH, node_request, plan, profile, replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.lease import Lease
    from fleetctl.state.opening import OpenStore


def holder(pid: int = 1) -> LeaseHolder:
    return LeaseHolder(pid=pid, host="here", boot_id="boot", started_at=EPOCH)


def acquire(store: OpenStore, pid: int = 1) -> Lease:
    return store.acquire_lease("demo", holder(pid), now=EPOCH)


def entry() -> JournalEntry:
    return JournalEntry(
        seq=0, at=EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.lane("short"), action="x", reason=""
    )


WRITES: dict[str, Callable[[OpenStore], object]] = {
    "put_fleet": lambda s: s.put_fleet(profile(), plan(), now=EPOCH),
    "set_phase": lambda s: s.set_phase("demo", DesiredPhase.DOWN, now=EPOCH),
    "set_overrides": lambda s: s.set_overrides("demo", Overrides(), now=EPOCH),
    "remove_fleet": lambda s: s.remove_fleet("demo"),
    "begin_replicas": lambda s: s.begin_replicas(((replica("r2"), node_request("t2", replica_id="r2")),), now=EPOCH),
    "amend_intents": lambda s: s.amend_intents(s.open_intents("demo")),
    "settle_intent": lambda s: s.settle_intent("t1", IntentState.DONE),
    "put_replica": lambda s: s.put_replica(replica("r1", reason="written late")),
    "request_drain": lambda s: s.request_drain("demo", "r1", now=EPOCH),
    "next_replica_number": lambda s: s.next_replica_number("demo"),
    "put_memory": lambda s: s.put_memory("demo", Memory()),
    "put_ledgers": lambda s: s.put_ledgers("demo", {}),
    "append": lambda s: s.append((entry(),)),
    "put_record": lambda s: s.put_record(StoredRecord.of(Collection.AUDIT, "a", ["by a fenced one"], at=EPOCH)),
    "remove_record": lambda s: s.remove_record(Collection.AUDIT, "a"),
    "end_shared": lambda s: s.end_shared("token"),
    "unbury": lambda s: s.unbury("token"),
    "renew_lease": lambda s: s.renew_lease(now=EPOCH),
    "release_lease": lambda s: s.release_lease(now=EPOCH),
    "acquire_lease": lambda s: s.acquire_lease("demo", holder(), now=EPOCH),
}


@pytest.fixture
def filled(store: OpenStore) -> OpenStore:
    store.put_fleet(profile(), plan(), now=EPOCH)
    store.begin_replica(replica("r1"), node_request("t1", replica_id="r1"), now=EPOCH)
    store.append((entry(),))
    return store


def test_every_call_that_writes_is_among_those_tried():
    reads = {
        "check_lease",
        "close",
        "find_record",
        "fleet",
        "fleets",
        "former_fleets",
        "has_disk_space",
        "is_in_place",
        "is_shared",
        "journal",
        "last_replica_number",
        "lease",
        "ledgers",
        "location",
        "memory",
        "open_intents",
        "owner",
        "records",
        "replicas",
        "shared_intents",
        "snapshot",
        "together",
        "tombstones",
        "transact",
        "under",
        "while_leased",
    }
    tried = {
        "begin_replica",
        "settle_intents",
        "put_shared",
        "bury",
        *WRITES,
    }  # those four are called by, or write like, others
    assert {name for name in dir(SqliteStore) if not name.startswith("_")} == reads | tried
    assert {name for name in dir(SharedStore) if not name.startswith("_")} == reads | tried | {
        "break_lease",
        "check_conditions",
        "database",
        "partitions",
    }


@pytest.mark.parametrize("name", WRITES)
def test_a_fenced_controller_writes_nothing(name, filled, place):
    old = filled.under(acquire(filled))
    acquire(filled, pid=2)
    before = place.dump()
    with pytest.raises(
        FencedError, match="the lease of epoch 1 on fleet demo is over: process 2 on here has held epoch 2 since"
    ):
        WRITES[name](old)
    assert place.dump() == before


@pytest.mark.parametrize("name", sorted(set(WRITES) - {"remove_fleet"}))
def test_the_holder_of_the_newest_lease_writes(name, filled):
    acquire(filled)
    WRITES[name](filled.under(acquire(filled, pid=2)))


def test_people_write_under_no_lease(filled):
    acquire(filled)
    assert filled.set_phase("demo", DesiredPhase.DOWN, now=EPOCH).phase is DesiredPhase.DOWN
    filled.check_lease()


def test_a_fenced_controller_is_told_before_it_acts_elsewhere(filled):
    old = filled.under(acquire(filled))
    old.check_lease()
    with old.while_leased():
        pass
    acquire(filled, pid=2)
    with pytest.raises(FencedError):
        old.check_lease()
    with pytest.raises(FencedError), old.while_leased():
        pytest.fail("the block was entered")


def test_nobody_takes_the_fleet_over_while_its_holder_writes_elsewhere(file_place, tmp_path):
    filled = file_place.open()
    held = filled.under(acquire(filled))
    with closing(SqliteStore(tmp_path / "state.db", busy_timeout_s=0.05)) as other:
        with held.while_leased(), pytest.raises(FleetctlError):
            other.acquire_lease("demo", holder(2), now=EPOCH)
        assert other.acquire_lease("demo", holder(2), now=EPOCH).epoch == 2
    filled.close()


def test_epochs_only_grow_also_over_a_fleet_that_was_forgotten_and_a_state_that_was_lost(store):
    assert acquire(store).epoch == 1
    store.put_fleet(profile(), plan(), now=EPOCH)
    store.set_phase("demo", DesiredPhase.DOWN, now=EPOCH)
    store.remove_fleet("demo")
    assert acquire(store).epoch == 2
    assert store.acquire_lease("demo", holder(), now=EPOCH, after=40).epoch == 41
    assert store.acquire_lease("other", holder(), now=EPOCH).epoch == 1


def test_a_lease_tells_when_its_holder_was_last_at_work(store, clock):
    bound = store.under(acquire(store))
    clock.jump(60)
    bound.renew_lease(now=clock.now())
    seen = store.lease("demo")
    assert seen.last_seen_at == clock.now()
    clock.jump(60)
    bound.release_lease(now=clock.now())
    assert store.lease("demo").last_seen_at == clock.now()
    assert store.lease("nobody") is None


def test_a_step_of_the_clock_stays_on_record_until_all_else_accounts_for_it(store, clock):
    bound = store.under(acquire(store))
    bound.renew_lease(now=clock.now(), monotonic_s=clock.monotonic_s())
    before = clock.now() - timedelta(seconds=clock.monotonic_s())
    clock.jump(30)
    clock.step_wall(-3600)
    bound.renew_lease(now=clock.now(), monotonic_s=clock.monotonic_s())
    assert store.lease("demo").origin == before
    bound = store.under(acquire(store))
    assert store.lease("demo").origin == before, "its holder died first, and the next one is to find it"
    bound.renew_lease(now=clock.now(), monotonic_s=clock.monotonic_s(), accounts_for_clock=True)
    assert store.lease("demo").origin == before - timedelta(hours=1)
    bound.release_lease(now=clock.now())
    assert store.lease("demo").origin == before - timedelta(hours=1)
    assert store.acquire_lease("demo", replace(holder(), boot_id="next"), now=EPOCH).origin is None


def test_a_file_that_came_into_the_place_of_ours_fences_us(file_place, tmp_path):
    filled = file_place.open()
    held = filled.under(acquire(filled))
    path = tmp_path / "state.db"
    shutil.copy(path, tmp_path / "copy.db")
    (tmp_path / "copy.db").replace(path)
    with pytest.raises(FencedError, match="another file"):
        held.put_memory("demo", Memory())
    filled.close()


def test_a_copy_beside_its_original_is_refused_and_one_in_its_place_is_not(file_place, tmp_path):
    store = file_place.open()
    acquire(store)
    store.close()
    copied, moved = tmp_path / "copy", tmp_path / "moved"
    copied.mkdir()
    shutil.copy(tmp_path / "state.db", copied / "state.db")
    with closing(SqliteStore(copied / "state.db")) as copy:
        with pytest.raises(StateError, match="is a copy of"):
            acquire(copy, pid=2)
        (tmp_path / "state.db").rename(moved)
        assert acquire(copy, pid=2).epoch == 2


def test_writes_of_one_transaction_are_all_stored_or_none(filled):
    bound = filled.under(acquire(filled))

    def die_in_the_middle() -> None:
        with bound.together():
            bound.put_replica(replica("r1", reason="changed"))
            bound.append((entry(),))
            assert bound.replicas("demo")[0].reason == "changed", "it reads what it has written"
            raise LookupError

    with pytest.raises(LookupError):
        die_in_the_middle()
    assert filled.replicas("demo")[0].reason != "changed"
    assert len(filled.journal("demo")) == 1
    with bound.together():
        bound.put_replica(replica("r1", reason="changed"))
        bound.append((entry(),))
    assert filled.replicas("demo")[0].reason == "changed"
    assert len(filled.journal("demo")) == 2


def test_a_transaction_of_a_fenced_controller_writes_nothing(filled):
    old = filled.under(acquire(filled))
    acquire(filled)
    with pytest.raises(FencedError), old.together():
        old.put_replica(replica("r1", reason="written late"))
    assert filled.replicas("demo")[0].reason != "written late"
