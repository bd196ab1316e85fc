"""A state that machines share: whoever comes between, whatever answer is lost, each commit is there once."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import DamagedStateError, FencedError, LockHeldError, MissingStateError, StateError
from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import Subject
from fleetctl.ports.lease import LEASE_TTL_S, LeaseHolder
from fleetctl.ports.objects import OutdatedVersionError, StoredObject
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.state.lease_watch import LeaseHeldError
from fleetctl.state.migrations import STEPS
from fleetctl.state.row_changes import RowChange
from fleetctl.state.shared import SharedStore
from fleetctl.state.shared_head import StateHead, pack
from fleetctl.testing.objects import MemoryObjects
from fleetctl.testing.samples import EPOCH, plan, profile, replica

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = "fleets/demo/head"


def entry(text: str = "x") -> JournalEntry:
    return JournalEntry(
        seq=0, at=EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.lane("short"), action="x", reason=text
    )


def holder(host: str, pid: int = 1) -> LeaseHolder:
    return LeaseHolder(pid=pid, host=host, boot_id=f"boot of {host}", started_at=EPOCH)


@pytest.fixture
def objects():
    return MemoryObjects()


@pytest.fixture
def open_store(objects, clock):
    return lambda **bounds: SharedStore(objects, clock=clock, **bounds)


def between(objects: MemoryObjects, key: str, work: Callable[[], object]) -> None:
    """Have another's write come right before the next one to a key."""

    def once(written: str) -> None:
        if written == key:
            objects.before_put = lambda _: None
            work()

    objects.before_put = once


def test_a_transaction_that_another_came_between_is_run_again_on_what_is_so(objects, open_store):
    first, second = open_store(), open_store()
    assert [first.next_replica_number("demo"), second.next_replica_number("demo")] == [1, 2]
    between(objects, HEAD, lambda: second.next_replica_number("demo"))
    assert first.next_replica_number("demo") == 4


def test_a_lease_that_is_taken_between_check_and_commit_fences_the_commit(objects, open_store):
    first, second = open_store(), open_store()
    old = first.under(first.acquire_lease("demo", holder("here"), now=EPOCH))
    old.append((entry(),))
    between(objects, HEAD, lambda: second.acquire_lease("demo", holder("here", 2), now=EPOCH))
    with pytest.raises(FencedError, match="process 2 on here has held epoch 2"):
        old.append((entry("late"),))
    assert [each.reason for each in second.journal("demo")] == ["x"]


def test_a_refusal_by_an_old_reading_is_looked_at_again(objects, open_store):
    first, second = open_store(), open_store()
    first.append((entry(),))
    second.put_replica(replica("r1"))
    assert first.request_drain("demo", "r1", now=EPOCH).drain_requested


def test_fleets_do_not_contend(objects, open_store):
    store = open_store()
    store.put_fleet(profile("alpha"), plan("alpha"), now=EPOCH)
    store.put_fleet(profile("beta"), plan("beta"), now=EPOCH)
    objects.written.clear()
    store.put_replica(replica("r1"))
    store.next_replica_number("alpha")
    assert [key for key, _ in objects.written] == [HEAD, "fleets/alpha/head"]
    with pytest.raises(StateError, match="several fleets"):
        store.append((entry(), _of("beta")))


def _of(fleet: str) -> JournalEntry:
    return JournalEntry(
        seq=0, at=EPOCH, fleet=fleet, kind=EntryKind.DECISION, subject=Subject.lane("short"), action="x", reason=""
    )


def test_a_write_is_as_small_as_what_it_changes_and_the_rest_lies_in_parts(objects, open_store):
    store = open_store(head_bytes_max=8_000)
    dice = Random(3)
    for n in range(600):
        store.put_record(
            StoredRecord.of(Collection.AUDIT, f"{n:04}", dice.randbytes(200).hex(), at=EPOCH, fleet="demo")
        )
    heads = [size for key, size in objects.written if key == HEAD]
    assert max(heads) <= 8_000
    assert {key.split("/")[2].split("-")[0] for key in objects.objects if key.startswith("fleets/demo/")} == {
        "head", "base", "segment",
    }  # fmt: skip
    database = open_store().database("demo")
    with database.read() as db:
        assert db.execute("SELECT count(*) FROM records").fetchone() == (600,)
    named = {f"fleets/demo/{part.key}" for part in database.head.parts}
    assert {key for key in objects.objects if key.startswith("fleets/demo/")} == {*named, HEAD}, (
        "what is not named goes"
    )


def test_who_follows_reads_only_what_is_new(objects, open_store):
    writer, reader = open_store(head_bytes_max=2_000), open_store()
    for n in range(100):
        writer.append((entry(f"line {n} {n * 7919}"),))
        assert len(reader.journal("demo", limit=1_000)) == n + 1
    objects.reads = 0
    reader.journal("demo")
    assert objects.reads == 1
    with reader.under(writer.acquire_lease("demo", holder("here"), now=EPOCH)).snapshot():
        objects.reads = 0
        reader.fleet("demo")
        reader.replicas("demo")
        assert objects.reads == 0


def test_objects_that_are_gone_are_missing_and_not_an_empty_state(objects, open_store):
    store = open_store()
    store.append((entry(),))
    head = objects.objects.pop(HEAD)
    with pytest.raises(MissingStateError, match="fleets/demo/head is gone"):
        store.journal("demo")
    objects.objects[HEAD] = head
    assert len(store.journal("demo")) == 1


@pytest.mark.parametrize("data", [b"", b"noise", b"fleetctl state\nnoise"])
def test_a_damaged_head_is_named(objects, open_store, data):
    open_store().append((entry(),))
    objects.objects[HEAD] = StoredObject(data=data, version="x")
    with pytest.raises(DamagedStateError, match="memory://objects/fleets/demo/head is damaged"):
        open_store().journal("demo")


def test_a_part_that_is_lost_is_damage(objects, open_store):
    store = open_store(head_bytes_max=100)
    store.append((entry(),))
    (part,) = (key for key in objects.objects if "segment" in key)
    del objects.objects[part]
    with pytest.raises(DamagedStateError, match="not there"):
        open_store().journal("demo")


def test_a_state_of_an_earlier_schema_is_brought_forward_and_a_later_one_refused(objects, open_store):
    assert open_store().owner
    record = '{"seq":0,"at":"2026-01-01T00:00:00Z","fleet":"demo","kind":"lifecycle","subject":{"kind":"replica","name":"r1"},"action":"ordered","code":"ordered","reason":"load"}'
    changes = (RowChange(1, "journal", (7,), (7, "demo", "replica/r1", record)),)
    objects.put(HEAD, pack(StateHead(schema=8, fleet="demo", commit=1, changes=changes)), replaces=None)
    store = open_store()
    assert [(each.seq, each.code) for each in store.journal("demo")] == [(7, ReasonCode.NODE_REQUESTED)]
    assert store.append((entry(),))[0].seq == 8
    database = open_store().database("demo")
    with database.read():
        assert database.head.schema == STEPS[-1].version
    assert len(open_store().journal("demo")) == 2
    objects.put(
        "fleets/other/head", pack(StateHead(schema=STEPS[-1].version + 1, fleet="other", commit=1)), replaces=None
    )
    with pytest.raises(StateError, match="this fleetctl knows only up to"):
        open_store().fleet("other")


class CarelessObjects(MemoryObjects):
    """Takes every write, as look-alikes of S3 do that know no conditions."""

    def __init__(self, *, knows_absence: bool) -> None:
        super().__init__()
        self._knows_absence = knows_absence

    def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        there = self.objects.get(key)
        if replaces is None and self._knows_absence and there is not None:
            raise OutdatedVersionError(key)
        return super().put(key, data, replaces=there.version if there is not None else None)


@pytest.mark.parametrize(("knows_absence", "condition"), [(False, "If-None-Match"), (True, "If-Match")])
def test_a_place_that_ignores_conditions_gets_no_state(knows_absence, condition, clock):
    objects = CarelessObjects(knows_absence=knows_absence)
    store = SharedStore(objects, clock=clock)
    with pytest.raises(StateError, match=f"does not keep to {condition}:"):
        store.put_fleet(profile(), plan(), now=EPOCH)
    assert objects.objects == {}


def test_a_fleet_of_a_machine_that_lives_is_not_taken_over(open_store, clock):
    here, there = open_store(), open_store()
    held = here.under(here.acquire_lease("demo", holder("a"), now=EPOCH))
    with pytest.raises(LeaseHeldError, match="fleet demo is kept by process 1 on a, last seen at") as first:
        there.acquire_lease("demo", holder("b"), now=EPOCH)
    assert not first.value.is_alive
    clock.jump(LEASE_TTL_S - 1)
    held.renew_lease(now=EPOCH)  # whatever its wall clock says
    held.renew_lease(now=clock.now())
    with pytest.raises(LeaseHeldError) as second:
        there.acquire_lease("demo", holder("b"), now=EPOCH)
    assert second.value.is_alive
    clock.jump(LEASE_TTL_S + 1)
    assert there.acquire_lease("demo", holder("b"), now=EPOCH).epoch == 2
    with pytest.raises(FencedError):
        held.append((entry(),))


def test_a_fleet_whose_holder_went_by_itself_or_had_our_locks_is_taken_over_at_once(open_store):
    here, there = open_store(), open_store()
    held = here.under(here.acquire_lease("demo", holder("a"), now=EPOCH))
    assert here.acquire_lease("demo", holder("a", 2), now=EPOCH).epoch == 2
    held = here.under(here.acquire_lease("demo", holder("a"), now=EPOCH))
    held.release_lease(now=EPOCH)
    assert there.acquire_lease("demo", holder("b"), now=EPOCH).epoch == 4


def test_a_block_that_others_write_into_is_no_transaction_and_a_call_is_made_again(objects, open_store):
    first, second = open_store(), open_store()
    bound = first.under(first.acquire_lease("demo", holder("a"), now=EPOCH))

    def write(store: SharedStore) -> None:
        store.append((entry("one"),))
        store.append((entry("two"),))

    between(objects, HEAD, lambda: second.append((entry("theirs"),)))
    with pytest.raises(LockHeldError, match="nothing was written"), bound.together():
        write(bound)
    assert [each.reason for each in second.journal("demo")] == ["theirs"]
    between(objects, HEAD, lambda: second.append((entry("theirs too"),)))
    objects.written.clear()
    bound.transact(write)
    assert len(objects.written) == 2, "the other's, and one for both of ours"
    assert [each.reason for each in second.journal("demo")] == ["theirs", "theirs too", "one", "two"]


def test_parts_are_cut_to_what_one_object_may_have(clock):
    dice, texts = Random(3), {}
    objects = MemoryObjects(object_bytes_max=6_000)
    store = SharedStore(objects, clock=clock, head_bytes_max=3_000)
    for n in range(200):
        texts[f"{n:04}"] = dice.randbytes(dice.randrange(50, 2_000)).hex()
        store.put_record(StoredRecord.of(Collection.AUDIT, f"{n:04}", texts[f"{n:04}"], at=EPOCH, fleet="demo"))
    again = SharedStore(objects, clock=clock).records(Collection.AUDIT, fleet="demo")
    assert {each.key: each.value_as(str) for each in again} == texts
    with pytest.raises(StateError, match="a row of records has"):
        store.put_record(StoredRecord.of(Collection.AUDIT, "x", dice.randbytes(9_000).hex(), at=EPOCH, fleet="demo"))
    assert store.find_record(Collection.AUDIT, "x", fleet="demo") is None
