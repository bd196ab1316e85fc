"""Replica records as the controller keeps them: read each tick, changed through the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.transitions import node_seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.controller.write_behind import WriteBehindStore
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node
    from fleetctl.model.replica import Replica
    from fleetctl.ports.store import Settlement


class Records:
    """Holds the fleet's replica records by id. Operators change only `drain_requested`, which the store itself never loses."""

    def __init__(self, store: WriteBehindStore) -> None:
        self._store = store
        self._by_id: dict[str, Replica] = {}

    def read(self) -> tuple[Replica, ...]:
        """Return the records as the store has them now, ended ones included."""
        found = self._store.replicas()
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

    def put(self, record: Replica) -> None:
        """Store a record's new version."""
        self._store.put_replica(record)
        self._by_id[record.id] = record

    def note_nodes(
        self, node_of: Callable[[Replica], Node | None], *, sold_of: Callable[[Replica, Node], Offering | None]
    ) -> None:
        """Store what the nodes of living replicas say of themselves, where it is news.

        `sold_of` returns the offering a node names where its record does not know it yet.
        """
        for record in self.all:
            node = node_of(record) if record.state.is_live and record.node_id else None
            if node is not None and (seen := node_seen(record, node, sold=sold_of(record, node))) is not record:
                self.put(seen)

    def settle(self, settled: tuple[Settlement, ...]) -> None:
        """Close intents and change their replicas' records, in one transaction."""
        self._store.settle_intents(settled)
        for settlement in settled:
            if settlement.replica is not None:
                self._by_id[settlement.replica.id] = settlement.replica
