"""Keeps every lane's error-budget ledger: counted from the gateway's totals, stored so that restarts lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.budget import count_gateway, read_budgets

if TYPE_CHECKING:
    from fleetctl.controller.world import World
    from fleetctl.model.budget import LaneBudget
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation

# A controller killed in between reads the same gateway's totals again, and counts what it had not stored; only where the
# gateway dies with it are these seconds lost.
_STORE_INTERVAL_S = 5.0


class Budgets:
    """Holds the ledgers by lane."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledgers = self._stored = world.store.ledgers()
        self._stored_s = float("-inf")

    def count(self, desired: Desired, observation: Observation) -> dict[str, LaneBudget]:
        """Return the profile's lanes' budgets with what the gateways have counted since."""
        profile, now = desired.profile, self._world.clock.now()
        by_number = {each.number: each.snapshot for each in observation.gateways} or {1: observation.gateway}
        for number, snapshot in by_number.items():
            self._ledgers = count_gateway(self._ledgers, snapshot, profile, now, number=number)
        self._store()
        named = {lane.name: self._ledgers[lane.name] for lane in profile.lanes if lane.name in self._ledgers}
        return read_budgets(named, profile.objective, now)

    def _store(self) -> None:
        now_s = self._world.clock.monotonic_s()
        if self._ledgers != self._stored and now_s - self._stored_s >= _STORE_INTERVAL_S:
            self._world.store.put_ledgers(self._ledgers)
            self._stored, self._stored_s = self._ledgers, now_s
