"""What must hold at every instant of a simulation; each kind of violation is kept with its first instants and a count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.dispatch.lending import lent
from fleetctl.core.dispatch.state import RequestState
from fleetctl.core.machines import machine_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.model.profile import CapacitySpec
    from fleetctl.model.replica import Replica
    from fleetctl.sim.nodes import SimulatedNode

_FIRST_KEPT = 3
_CENTS = 1e-6
# Refusals that say that there is no room.
_FOR_WANT_OF_ROOM: Final = frozenset((Refusal.QUEUE_FULL, Refusal.MAX_WAIT, Refusal.PREDICTED_WAIT))


class Checker:
    """Looks at every tick, every refusal, every end of a request, and what has not ended when the simulation does."""

    def __init__(self, capacity: CapacitySpec) -> None:
        self._capacity = capacity
        self._counts: Counter[str] = Counter()
        self._first: dict[str, list[str]] = {}

    def violations(self) -> tuple[str, ...]:
        """Return what did not hold, a line for each kind."""
        return tuple(
            f"{kind}: {count} times; first {', '.join(self._first[kind])}" for kind, count in self._counts.items()
        )

    def ended(self, times: int, now_s: float) -> None:
        """Check that a request has ended for the first time."""
        if times != 1:
            self._note("a request ended twice", f"at {now_s:.1f} s")

    def still_open(self, request: ActiveRequest, patience_s: float, now_s: float) -> None:
        """Check that a request which has not ended by the end of the simulation waits or runs, and waits no longer than it may."""
        where = f"{request.lane.route.name} at {now_s:.1f} s"
        if request.state is RequestState.OVER:
            self._note("a request ended and its client was not told", where)
        elif request.state is RequestState.QUEUED and now_s - request.stopwatch.started_s > patience_s:
            self._note("a request waits longer than its lane lets it", where)

    def refused(self, request: ActiveRequest, refusal: Refusal, now_s: float) -> None:
        """Check that nobody is refused for want of room while a replica does nothing, be it the lane's own or one it is lent."""
        lane: DispatchLane[ActiveRequest] = request.lane
        if refusal not in _FOR_WANT_OF_ROOM or lane.degradation.breaks or lane.degradation.holds_queue:
            return
        borrowed = (candidate for owner in lane.lenders for candidate in lent(request, owner, now_s))
        for candidate in (*lane.candidates, *borrowed):
            is_idle = candidate.in_rotation and not candidate.in_flight and not candidate.ejected_until_s
            if is_idle and candidate.holds(request.needed_tokens):
                self._note("refused beside an idle replica", f"{lane.route.name} at {now_s:.1f} s, {candidate.id} idle")
                return

    def ticked(self, records: Mapping[str, Replica], nodes: Mapping[str, SimulatedNode], now_s: float) -> None:
        """Check caps, and that every node that lives belongs to a replica."""
        held = machine_count(records.values())
        if held > self._capacity.max_nodes:
            self._note("over max_nodes", f"{held} at {now_s:.0f} s")
        cap = self._capacity.max_cost_usd_per_hour
        if cap is not None:
            cost = sum(record.price_usd_per_hour for record in records.values())
            if cost > cap + _CENTS:
                self._note("over max_cost_per_hour", f"${cost:.2f} at {now_s:.0f} s")
        for replica_id, node in nodes.items():
            if not node.ended and replica_id not in records:
                self._note("a node without a replica", f"{node.id} at {now_s:.0f} s")

    def _note(self, kind: str, where: str) -> None:
        self._counts[kind] += 1
        first = self._first.setdefault(kind, [])
        if len(first) < _FIRST_KEPT:
            first.append(where)
