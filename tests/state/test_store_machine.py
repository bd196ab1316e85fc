"""The store against a model of it, through any order of calls, reopened at any moment."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.ports.store import Intent, IntentState
from fleetctl.state.shared import SharedStore
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.objects import MemoryObjects
from fleetctl.testing.samples import EPOCH, node_request, replica

if TYPE_CHECKING:
    from fleetctl.state.opening import OpenStore

LANES = st.sampled_from(["short", "long"])
STATES = st.sampled_from(list(ReplicaState))


class StoreMachine(RuleBasedStateMachine):
    """Keeps beside the store what it should hold."""

    @initialize()
    def make(self) -> None:
        self.clock = ManualClock(EPOCH)
        self.make_place()
        self.store = self.open_store()
        self.owner = self.store.owner
        self.number = 0
        self.replicas: dict[str, Replica] = {}
        self.open: dict[str, Intent] = {}
        self.entries = 0

    def make_place(self) -> None:
        self.directory = Path(tempfile.mkdtemp())

    def open_store(self) -> OpenStore:
        return SqliteStore(self.directory / "state.db", clock=self.clock)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    @rule(lane=LANES)
    def begin(self, lane: str) -> None:
        number = self.store.next_replica_number("demo")
        assert number == self.number + 1
        self.number = number
        now = self.clock.now()
        made = replica(f"r{number}", lane=lane, created_at=now, changed_at=now)
        self.open[made.id] = self.store.begin_replica(made, node_request(made.id, replica_id=made.id), now=now)
        self.replicas[made.id] = made

    @precondition(lambda self: self.open.keys() & self.replicas.keys())
    @rule(data=st.data(), state=st.sampled_from([IntentState.DONE, IntentState.ABANDONED]), becomes=STATES)
    def settle(self, data: st.DataObject, state: IntentState, becomes: ReplicaState) -> None:
        token = data.draw(st.sampled_from(sorted(self.open.keys() & self.replicas.keys())))
        after = replace(self.replicas[token], state=becomes, changed_at=self.clock.now())
        self.store.settle_intent(token, state, replica=after)
        del self.open[token]
        self.replicas[token] = after

    @precondition(lambda self: self.replicas)
    @rule(data=st.data(), becomes=STATES)
    def put(self, data: st.DataObject, becomes: ReplicaState) -> None:
        name = data.draw(st.sampled_from(sorted(self.replicas)))
        # The controller writes what it knew, which may be older than a person's drain.
        written = replace(self.replicas[name], state=becomes, changed_at=self.clock.now(), drain_requested=False)
        self.store.put_replica(written)
        self.replicas[name] = replace(written, drain_requested=self.replicas[name].drain_requested)

    @precondition(lambda self: self.replicas)
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.replicas)))
        self.replicas[name] = self.store.request_drain("demo", name, now=self.clock.now())
        assert self.replicas[name].drain_requested

    @rule(count=st.integers(0, 5))
    def journal(self, count: int) -> None:
        entry = JournalEntry(
            seq=0, at=EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.lane("short"), action="x", reason=""
        )  # fmt: skip
        given = self.store.append((entry,) * count)
        assert [e.seq for e in given] == list(range(self.entries + 1, self.entries + count + 1))
        self.entries += count

    @rule(minutes=st.integers(1, 50))
    def wait(self, minutes: int) -> None:
        self.clock.jump(60.0 * minutes)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open_store()

    @invariant()
    def holds_what_it_was_given(self) -> None:
        if not hasattr(self, "store"):
            return
        since = self.clock.now() - timedelta(hours=1)
        # Beginning a replica forgets those that ended over an hour ago, which nobody sees any more by then.
        self.replicas = {k: r for k, r in self.replicas.items() if r.state.is_live or r.changed_at >= since}
        assert {r.id: r for r in self.store.replicas("demo")} == self.replicas
        assert {i.token for i in self.store.open_intents("demo")} == set(self.open)
        assert len(self.store.journal("demo", limit=10_000)) == self.entries
        assert self.store.owner == self.owner


class SharedStoreMachine(StoreMachine):
    """The same over objects: answers to writes are lost, writes come late, and another machine's come between."""

    def make_place(self) -> None:
        self.objects = MemoryObjects()
        self.other = self.open_store()
        self.notes = 0

    def open_store(self) -> OpenStore:
        store = SharedStore(self.objects, clock=self.clock, head_bytes_max=1_000)
        assert store.owner  # made before answers are lost
        self.objects.lose_answers(Random(self.clock.monotonic_s()), 0.2)
        return store

    @rule(fleet=st.sampled_from(["demo", "other", ""]))
    def write_elsewhere(self, fleet: str) -> None:
        self.notes += 1
        self.other.put_record(StoredRecord.of(Collection.AUDIT, f"{self.notes:06}", self.notes, at=EPOCH, fleet=fleet))

    @invariant()
    def others_writes_are_there_once(self) -> None:
        if hasattr(self, "store"):
            assert [each.value_as(int) for each in self.store.records(Collection.AUDIT)] == [*range(1, self.notes + 1)]


TestSharedStoreMachine = SharedStoreMachine.TestCase
TestSharedStoreMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
