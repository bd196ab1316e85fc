"""The store, through its public door."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import NotFoundError, StateError
from fleetctl.model.action import EntryKind
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.journal import JournalEntry
from fleetctl.model.ladder import LadderStep
from fleetctl.model.replica import ReplicaState
from fleetctl.model.shared import SharedState
from fleetctl.model.subject import Subject
from fleetctl.ports.store import IntentState, Settlement, SharedIntent, StateStore, Tombstone
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.samples import EPOCH, node_request, plan, profile, replica, shared_resources

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.state.opening import OpenStore
    from fleetctl.testing.clocks import ManualClock
    from tests.state.conftest import StatePlace


def entry(subject: str = "short", fleet: str = "demo", **inputs: float | str) -> JournalEntry:
    return JournalEntry(
        seq=0, at=EPOCH, fleet=fleet, kind=EntryKind.DECISION, subject=Subject.lane(subject), action="launch", reason="one is missing",
        inputs=inputs,
    )  # fmt: skip


def test_store_implements_the_port(store: OpenStore) -> None:
    port: StateStore = store
    assert port.fleets() == ()


def test_owner_is_made_once_and_kept(place: StatePlace, tmp_path: Path) -> None:
    first, second = place.open(), place.open()
    assert len(first.owner) == 32
    assert first.owner == second.owner
    other = SqliteStore(tmp_path / "other.db")
    assert other.owner != first.owner
    for opened in (first, second, other):
        opened.close()


def test_files_are_the_users_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "fleetctl" / "state.db")
    store.put_fleet(profile(), plan(), now=EPOCH)
    assert stat.S_IMODE((tmp_path / "fleetctl").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "fleetctl").iterdir()}
    assert set(modes.values()) == {0o600}
    assert "state.db-wal" in modes
    store.close()


def test_desired_state_is_returned_as_put(store: OpenStore) -> None:
    desired = store.put_fleet(profile(), plan(), now=EPOCH)
    assert (desired.phase, desired.generation) == (DesiredPhase.UP, 1)
    assert store.fleet("demo") == desired
    assert (desired.profile, desired.plan) == (profile(), plan())
    assert store.fleet("absent") is None


def test_every_change_of_desired_state_grows_its_generation_and_up_clears_overrides(store: OpenStore) -> None:
    store.put_fleet(profile(), plan(), now=EPOCH)
    later = EPOCH + timedelta(minutes=1)
    scaled = store.set_overrides("demo", Overrides(replicas={"short": 4}, step={"long": LadderStep.SHED}), now=later)
    assert (scaled.generation, scaled.overrides.step["long"]) == (2, LadderStep.SHED)
    down = store.set_phase("demo", DesiredPhase.DOWN, now=later)
    assert (down.generation, down.phase, down.overrides) == (3, DesiredPhase.DOWN, scaled.overrides)
    again = store.put_fleet(profile(), plan(), now=later)
    assert (again.generation, again.phase, again.overrides) == (4, DesiredPhase.UP, Overrides())
    assert (again.created_at, again.changed_at) == (EPOCH, later)
    assert store.fleet("demo") == again


def test_setting_the_same_phase_again_changes_nothing(store: OpenStore) -> None:
    desired = store.put_fleet(profile(), plan(), now=EPOCH)
    assert store.set_phase("demo", DesiredPhase.UP, now=EPOCH + timedelta(hours=1)) == desired


def test_fleets_are_listed_by_name(store: OpenStore) -> None:
    for name in ("zeta", "alpha", "mid"):
        store.put_fleet(profile(name), plan(name), now=EPOCH)
    assert [desired.fleet for desired in store.fleets()] == ["alpha", "mid", "zeta"]


def test_unknown_fleet_is_an_error_that_lists_those_there_are(store: OpenStore) -> None:
    store.put_fleet(profile(), plan(), now=EPOCH)
    with pytest.raises(NotFoundError) as caught:
        store.set_phase("dmo", DesiredPhase.DOWN, now=EPOCH)
    assert "demo" in caught.value.hint


def test_intent_and_pending_replica_appear_together_and_are_settled_together(store: OpenStore) -> None:
    pending = replica()
    intent = store.begin_replica(pending, node_request(), now=EPOCH)
    assert store.open_intents("demo") == (intent,)
    assert store.replicas("demo") == (pending,)
    booting = replace(pending, state=ReplicaState.BOOTING, node_id="node-1")
    store.settle_intent("token-1", IntentState.DONE, replica=booting)
    assert store.open_intents("demo") == ()
    assert store.replicas("demo") == (booting,)


def test_intents_are_settled_together_or_not_at_all(store: OpenStore) -> None:
    pending = [replica(f"r{number}") for number in (1, 2)]
    begun = tuple((r, node_request(f"token-{r.id}", replica_id=r.id)) for r in pending)
    intents = store.begin_replicas(begun, now=EPOCH)
    booting = tuple(replace(r, state=ReplicaState.BOOTING, node_id=f"node-{r.id}") for r in pending)
    settled = tuple(
        Settlement(token=i.token, state=IntentState.DONE, replica=r) for i, r in zip(intents, booting, strict=True)
    )
    stranger = replace(settled[0], token="token-9")  # noqa: S106  # an intent's id
    with pytest.raises(NotFoundError, match="token-9"):
        store.settle_intents((*settled, stranger))
    assert (store.open_intents("demo"), store.replicas("demo")) == (intents, tuple(pending))
    store.settle_intents(settled)
    assert (store.open_intents("demo"), store.replicas("demo")) == ((), booting)
    store.settle_intents(())


def test_a_token_or_replica_is_begun_once(store: OpenStore) -> None:
    store.begin_replica(replica(), node_request(), now=EPOCH)
    with pytest.raises(StateError, match="begun before"):
        store.begin_replica(replica("r2"), node_request(), now=EPOCH)
    with pytest.raises(StateError, match="begun before"):
        store.begin_replica(replica(), node_request("token-2"), now=EPOCH)
    assert [r.id for r in store.replicas("demo")] == ["r1"]
    assert [i.token for i in store.open_intents("demo")] == ["token-1"]


def test_settling_an_unknown_token_is_an_error(store: OpenStore) -> None:
    with pytest.raises(NotFoundError, match="token-9"):
        store.settle_intent("token-9", IntentState.ABANDONED)


def test_replicas_come_oldest_first_and_ended_ones_stay_for_an_hour(store: OpenStore, clock: ManualClock) -> None:
    for number in (10, 2, 1):
        store.put_replica(replica(f"r{number}"))
    store.put_replica(replica("r11", lane="long", created_at=EPOCH - timedelta(minutes=1)))
    assert [r.id for r in store.replicas("demo")] == ["r11", "r1", "r2", "r10"]
    store.put_replica(replica("r1", state=ReplicaState.GONE))
    store.put_replica(replica("r2", state=ReplicaState.FAILED))
    clock.jump(3599)
    assert [r.id for r in store.replicas("demo")] == ["r11", "r1", "r2", "r10"]
    clock.jump(2)
    assert [r.id for r in store.replicas("demo")] == ["r11", "r10"]


def test_drain_asked_by_a_person_outlives_the_controllers_writes(store: OpenStore) -> None:
    ready = replica(state=ReplicaState.READY)
    store.put_replica(ready)
    assert store.request_drain("demo", "r1", now=EPOCH).drain_requested
    store.put_replica(replace(ready, reason="still ready"))
    assert store.replicas("demo")[0].drain_requested
    assert store.replicas("demo")[0].reason == "still ready"


def test_what_nobody_has_changed_is_read_as_the_same_objects(store: OpenStore) -> None:
    store.put_fleet(profile(), plan(), now=EPOCH)
    for number in (1, 2):
        store.put_replica(replica(f"r{number}"))
    fleet, (first, second) = store.fleet("demo"), store.replicas("demo")
    store.put_replica(replace(second, reason="news"))
    again = store.replicas("demo")
    assert again[0] is first
    assert again[1] == replace(second, reason="news")
    assert store.fleet("demo") is fleet
    store.set_phase("demo", DesiredPhase.DOWN, now=EPOCH)
    after = store.fleet("demo")
    assert after is not None
    assert after.phase is DesiredPhase.DOWN


def test_draining_an_unknown_replica_lists_the_live_ones(store: OpenStore) -> None:
    store.put_replica(replica())
    with pytest.raises(NotFoundError) as caught:
        store.request_drain("demo", "r7", now=EPOCH)
    assert "r1" in caught.value.hint


def test_numbers_are_never_given_twice_even_after_the_fleet_was_forgotten(store: OpenStore) -> None:
    store.put_fleet(profile(), plan(), now=EPOCH)
    assert [store.next_replica_number("demo") for _ in range(3)] == [1, 2, 3]
    assert store.next_replica_number("other") == 1
    store.set_phase("demo", DesiredPhase.DOWN, now=EPOCH)
    store.remove_fleet("demo")
    assert store.next_replica_number("demo") == 4


def test_only_an_empty_fleet_that_is_down_can_be_forgotten(store: OpenStore) -> None:
    store.put_fleet(profile(), plan(), now=EPOCH)
    store.append((entry(),))
    with pytest.raises(StateError, match="cannot be forgotten"):
        store.remove_fleet("demo")
    store.set_phase("demo", DesiredPhase.DOWN, now=EPOCH)
    store.put_replica(replica(state=ReplicaState.STOPPING))
    with pytest.raises(StateError, match="1 live"):
        store.remove_fleet("demo")
    store.put_replica(replica(state=ReplicaState.GONE))
    store.remove_fleet("demo")
    assert store.fleet("demo") is None
    assert store.replicas("demo") == ()
    assert len(store.journal("demo")) == 1
    store.remove_fleet("demo")


def test_memory_is_empty_for_a_new_fleet_and_returned_as_put(store: OpenStore) -> None:
    assert store.memory("demo") == Memory()
    memory = Memory(lanes={"short": LaneMemory(wanted=3, up_since=EPOCH, step=LadderStep.SPILL)})
    store.put_memory("demo", memory)
    assert store.memory("demo") == memory


def test_journal_answers_the_newest_of_a_subject_in_order(store: OpenStore) -> None:
    store.append(tuple(entry("short" if n % 2 else "long", n=float(n)) for n in range(10)))
    store.append((entry(fleet="other"),))
    assert [e.inputs["n"] for e in store.journal("demo", limit=3)] == [7.0, 8.0, 9.0]
    assert [e.inputs["n"] for e in store.journal("demo", limit=2, subjects=(Subject.lane("long"),))] == [6.0, 8.0]
    newest = store.journal("demo")[-1].seq
    assert store.journal("demo", after=newest) == ()
    assert [e.inputs["n"] for e in store.journal("demo", after=newest - 2)] == [8.0, 9.0]


def test_append_numbers_a_fleets_entries_in_one_growing_sequence(store: OpenStore) -> None:
    first = store.append((entry(), entry("long")))
    store.append((entry(fleet="other"),))
    third = store.append((entry(),))
    numbers = [e.seq for e in (*first, *third)]
    assert numbers[:2] == [1, 2]
    assert numbers == sorted(set(numbers))
    assert store.journal("demo") == (*first, *third)


def test_append_numbers_entries_in_one_growing_sequence(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state.db")
    first = store.append((entry(), entry("long")))
    second = store.append((entry(fleet="other"),))
    assert [e.seq for e in (*first, *second)] == [1, 2, 3]
    assert store.append(()) == ()
    store.close()


def test_figures_that_json_cannot_hold_are_journalled_as_words(store: OpenStore) -> None:
    store.append((entry(p99=float("nan"), limit=float("inf"), rps=2.0),))
    assert store.journal("demo")[0].inputs == {"p99": "nan", "limit": "inf", "rps": 2.0}


def test_oldest_entries_beyond_the_journals_bound_go(place: StatePlace) -> None:
    store = place.open(journal_entries_max=500)
    for _ in range(20):
        store.append(tuple(entry() for _ in range(100)))
    kept = store.journal("demo", limit=10_000)
    assert kept[-1].seq == 2000
    assert 500 <= len(kept) < 500 + 356  # a trim every 256 entries, and appends of 100
    store.close()


def shared_intent(state: SharedState = SharedState.PREPARING) -> SharedIntent:
    (resource,) = shared_resources(("network",), owner="owner-1", fleet="demo")
    return SharedIntent(token=resource.token, fleet="demo", state=state, resource=resource, created_at=EPOCH)


def test_a_shared_resource_is_kept_until_it_ends_and_holds_its_fleet(store: OpenStore) -> None:
    store.put_fleet(profile(), plan(), now=EPOCH)
    store.put_shared(shared_intent())
    store.put_shared(shared_intent(SharedState.PREPARED))
    assert store.shared_intents("demo") == (shared_intent(SharedState.PREPARED),)
    assert store.shared_intents("other") == ()
    store.set_phase("demo", DesiredPhase.DOWN, now=EPOCH)
    with pytest.raises(StateError, match="1 shared resources"):
        store.remove_fleet("demo")
    store.end_shared(shared_intent().token)
    store.remove_fleet("demo")


def test_a_shared_resource_that_was_buried_is_missed_no_longer_once_it_is_prepared_again(store: OpenStore) -> None:
    intent = shared_intent(SharedState.TEARING_DOWN)
    store.put_shared(intent)
    buried = Tombstone(
        token=intent.token, provider="fake", fleet="demo", replica_id="", node_id="", offering="", ended_at=EPOCH,
        reason="in use", shared=intent.resource,
    )  # fmt: skip
    store.end_shared(intent.token, tombstone=buried)
    assert store.shared_intents("demo") == ()
    assert store.tombstones("demo") == (buried,)
    store.put_shared(shared_intent())
    assert store.tombstones("demo") == ()
