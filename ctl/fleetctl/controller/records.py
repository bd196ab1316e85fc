"""Replica records as the controller keeps them: read each tick, changed through the store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl.model.replica import Replica, ReplicaState
    from fleetctl.ports.store import IntentState, StateStore


class Records:
    """Holds the fleet's replica records by id. Operators change only `drain_requested`, which the store itself never loses."""

    def __init__(self, store: StateStore, fleet: str, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._by_id: dict[str, Replica] = {}

    def read(self) -> tuple[Replica, ...]:
        """Return the records as the store has them now, ended ones included."""
        found = self._store.replicas(self._fleet)
        self._by_id = {record.id: record for record in found}
        return found

    @property
    def all(self) -> tuple[Replica, ...]:
        """The records as last read or changed here."""
        return tuple(self._by_id.values())

    def get(self, replica_id: str) -> Replica | None:
        """Return one record."""
        return self._by_id.get(replica_id)

    def add(self, record: Replica) -> None:
        """Know of a record that was just begun in the store."""
        self._by_id[record.id] = record

    def move(self, replica_id: str, state: ReplicaState, reason: str, **changes: object) -> Replica | None:
        """Store a record's new state and return it; None: there is no such record any longer."""
        moved = self._moved(replica_id, state, reason, changes)
        if moved is not None:
            self._store.put_replica(moved)
            self._by_id[replica_id] = moved
        return moved

    def change(self, replica_id: str, **changes: object) -> None:
        """Store changed fields of a record whose state stays."""
        record = self._by_id.get(replica_id)
        if record is not None:
            self._by_id[replica_id] = replace(record, **changes)  # type: ignore[arg-type]  # fields by name
            self._store.put_replica(self._by_id[replica_id])

    def settle(
        self, token: str, outcome: IntentState, replica_id: str, state: ReplicaState, reason: str, **changes: object
    ) -> Replica | None:
        """Close an intent and store its replica's new state in one transaction."""
        moved = self._moved(replica_id, state, reason, changes)
        self._store.settle_intent(token, outcome, replica=moved)
        if moved is not None:
            self._by_id[replica_id] = moved
        return moved

    def _moved(self, replica_id: str, state: ReplicaState, reason: str, changes: dict[str, object]) -> Replica | None:
        record = self._by_id.get(replica_id)
        if record is None:
            return None
        return replace(record, state=state, reason=reason, changed_at=self._clock.now(), **changes)  # type: ignore[arg-type]  # fields by name
