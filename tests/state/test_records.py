"""Collections of records: bounded, ordered by their instants, and forgotten with their fleet unless they outlive it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import DamagedStateError
from fleetctl.model.desired import DesiredPhase
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.testing.samples import plan, profile

if TYPE_CHECKING:
    from fleetctl.state.opening import OpenStore

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A value to keep."""

    text: str
    count: int = 0


def noted(
    key: str, *, fleet: str = "chat", minutes: int = 0, collection: Collection = Collection.RUNBOOK_RUNS
) -> StoredRecord:
    """Return a record of that minute."""
    return StoredRecord.of(collection, key, Note(text=key), at=START + timedelta(minutes=minutes), fleet=fleet)


def test_a_record_is_read_as_it_was_written(store: OpenStore) -> None:
    store.put_record(noted("a"))
    found = store.find_record(Collection.RUNBOOK_RUNS, "a", fleet="chat")
    assert found == noted("a")
    assert found.value_as(Note) == Note(text="a")
    assert store.find_record(Collection.RUNBOOK_RUNS, "a", fleet="other") is None
    assert store.find_record(Collection.AUDIT, "a", fleet="chat") is None


def test_a_later_record_of_a_key_takes_the_place_of_the_earlier(store: OpenStore) -> None:
    store.put_record(noted("a"))
    store.put_record(noted("a", minutes=5), durable=False)
    assert store.records(Collection.RUNBOOK_RUNS) == (noted("a", minutes=5),)


def test_the_newest_come_oldest_first_of_one_fleet_or_all(store: OpenStore) -> None:
    records = [noted(str(n), minutes=n, fleet="chat" if n % 2 else "") for n in range(6)]
    for record in reversed(records):
        store.put_record(record)
    assert store.records(Collection.RUNBOOK_RUNS) == tuple(records)
    assert store.records(Collection.RUNBOOK_RUNS, fleet="chat", limit=2) == (records[3], records[5])
    assert store.records(Collection.RUNBOOK_RUNS, fleet="") == (records[0], records[2], records[4])
    assert store.records(Collection.RUNBOOK_RUNS, since=START + timedelta(minutes=4)) == (records[4], records[5])


def test_the_oldest_beyond_the_bound_go_and_other_fleets_keep_theirs(store: OpenStore) -> None:
    collection = Collection.RECORDINGS
    store.put_record(noted("other", fleet="other", collection=collection))
    for n in range(collection.records_max + 3):
        store.put_record(noted(f"{n:04}", minutes=n, collection=collection), durable=False)
    kept = store.records(collection, fleet="chat")
    assert len(kept) == collection.records_max
    assert kept[0].key == "0003"
    assert len(store.records(collection, fleet="other")) == 1


def test_a_removed_record_is_gone_and_removing_it_again_is_no_error(store: OpenStore) -> None:
    store.put_record(noted("a"))
    for _ in range(2):
        store.remove_record(Collection.RUNBOOK_RUNS, "a", fleet="chat")
    assert store.records(Collection.RUNBOOK_RUNS) == ()


def test_what_outlives_a_fleet_stays_when_it_is_forgotten(store: OpenStore) -> None:
    store.put_fleet(profile("chat"), plan("chat"), now=START)
    for collection in Collection:
        store.put_record(noted("a", collection=collection))
    store.set_phase("chat", DesiredPhase.DOWN, now=START)
    store.remove_fleet("chat")
    assert {c for c in Collection if store.records(c)} == {c for c in Collection if c.outlives_fleet}


def test_a_value_of_another_shape_is_damage_with_its_key(store: OpenStore) -> None:
    store.put_record(StoredRecord.of(Collection.AUDIT, "a", ["no", "object"], at=START))
    found = store.find_record(Collection.AUDIT, "a")
    assert found is not None
    with pytest.raises(DamagedStateError, match="'a' of audit"):
        found.value_as(Note)
