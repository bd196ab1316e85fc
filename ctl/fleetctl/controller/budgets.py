"""Keeps every lane's error-budget ledger: counted from the gateway's totals, stored so that restarts lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.budget import count_requests

if TYPE_CHECKING:
    from fleetctl.controller.world import World
    from fleetctl.model.budget import BudgetLedger
    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import GatewaySnapshot

# A controller killed in between reads the same gateway's totals again, and counts what it had not stored.
_STORE_INTERVAL_S = 5.0


class Budgets:
    """Holds the ledgers by lane."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ledgers = self._stored = world.store.ledgers()
        self._stored_s = float("-inf")

    def count(self, desired: Desired, gateway: GatewaySnapshot | None) -> dict[str, BudgetLedger]:
        """Return the ledgers of the profile's lanes with what the gateway has counted since."""
        names = [lane.name for lane in desired.profile.lanes]
        ledgers = {name: self._ledgers[name] for name in names if name in self._ledgers}
        for lane in gateway.lanes if gateway else ():
            if lane.name in names and lane.totals is not None and gateway is not None:
                ledgers[lane.name] = count_requests(
                    ledgers.get(lane.name),
                    lane.totals,
                    gateway_started_at=gateway.started_at,
                    now=self._world.clock.now(),
                    window_s=desired.profile.objective.window_s,
                )
        self._ledgers = ledgers
        self._store()
        return ledgers

    def _store(self) -> None:
        now_s = self._world.clock.monotonic_s()
        if self._ledgers != self._stored and now_s - self._stored_s >= _STORE_INTERVAL_S:
            self._world.store.put_ledgers(self._ledgers)
            self._stored, self._stored_s = self._ledgers, now_s
