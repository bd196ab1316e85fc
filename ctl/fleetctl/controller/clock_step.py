"""What is on record, moved along with a wall clock that was set, and written as one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.core.expiry import with_clock_set
from fleetctl.model.budget import BudgetLedger
from fleetctl.model.decision import Memory
from fleetctl.model.desired import Overrides
from fleetctl.model.replica import Replica

if TYPE_CHECKING:
    from fleetctl.ports.store import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """A fleet's records after a step of the clock."""

    fleet: str
    by: timedelta
    records: tuple[Replica, ...]
    memory: Memory
    ledgers: dict[str, BudgetLedger]
    held: Overrides  # as last read, not moved
    now: datetime
    monotonic_s: float

    def write(self, store: StateStore) -> None:
        """Store all of it in one transaction: a controller that died in between would have the next one move some twice."""
        with store.together():
            for record in self.records:
                store.put_replica(record)
            store.put_memory(self.fleet, self.memory)
            store.put_ledgers(self.fleet, self.ledgers)
            self._move_overrides(store)
            store.renew_lease(now=self.now, monotonic_s=self.monotonic_s, accounts_for_clock=True)

    def _move_overrides(self, store: StateStore) -> None:
        """Move the ends of what people set by hand, unless they have set something else since."""
        found = store.fleet(self.fleet)
        if self.held == Overrides() or found is None or found.overrides != self.held:
            return
        store.set_overrides(self.fleet, with_clock_set(self.held, self.by), now=self.now, expected=self.held)
