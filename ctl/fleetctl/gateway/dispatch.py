"""The routing table at work: who enters which lane, who goes to which replica, who waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.core.admission.admit import Admission, admit
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import TokenRatio
from fleetctl.core.lanes import LaneChoice
from fleetctl.core.routing.candidate import Candidate, PromptLoad
from fleetctl.core.routing.filters import usable
from fleetctl.core.routing.picker import pick
from fleetctl.core.routing.prefix_index import PrefixIndex
from fleetctl.gateway.lanes import LaneRuntime
from fleetctl.gateway.replicas import ReplicaRuntime

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from fleetctl.core.admission.queue import LaneQueue
    from fleetctl.gateway.classify import Ask
    from fleetctl.gateway.flight import Flight
    from fleetctl.gateway.limits import DoorLimits
    from fleetctl.model.gateway import RouteLane, RoutingTable


class Dispatcher:
    """Holds every lane and replica; one table replaces another between two requests."""

    def __init__(self, clock: Callable[[], float], rng: random.Random, limits: DoorLimits) -> None:
        self.clock = clock
        self.rng = rng
        self.limits = limits
        self.table: RoutingTable | None = None
        self.lanes: dict[str, LaneRuntime] = {}
        self.replicas: dict[str, ReplicaRuntime] = {}
        self.flights: set[Flight] = set()
        self.ratio = TokenRatio()
        self.prefixes = PrefixIndex()
        self.keeps_transcripts = False  # some replica could continue a lost stream
        self._choice: LaneChoice[RouteLane] = LaneChoice(())
        self._served_by: dict[str, list[LaneRuntime]] = {}  # a lane's replicas -> the lanes they may serve

    # The table.

    def apply(self, table: RoutingTable) -> None:
        """Replace the table. Replicas and lanes it names no longer keep what they carry."""
        now_s = self.clock()
        self.table = table
        self._choice = LaneChoice(table.lanes)
        self._apply_replicas(table)
        for route in table.lanes:
            lane = self.lanes.get(route.name)
            if lane is None:
                self.lanes[route.name] = LaneRuntime(route, now_s=now_s)
            else:
                lane.apply(route)
        self._wire_lanes(table)
        self.keeps_transcripts = any(r.continues for r in table.replicas)
        for lane in list(self.lanes.values()):
            self.pump(lane)

    def _apply_replicas(self, table: RoutingTable) -> None:
        listed = {route.id: route for route in table.replicas}
        for replica_id, replica in list(self.replicas.items()):
            route = listed.get(replica_id)
            if route is None or (route.host, route.port) != (replica.route.host, replica.route.port):
                # What it carries holds on to it; for new requests it has gone.
                replica.retire()
                del self.replicas[replica_id]
                self.prefixes.forget(replica_id)
        for route in table.replicas:
            if route.id in self.replicas:
                self.replicas[route.id].apply(route)
            else:
                self.replicas[route.id] = ReplicaRuntime(route, self.clock, idle_s=self.limits.upstream_idle_s)

    def _wire_lanes(self, table: RoutingTable) -> None:
        own: dict[str, list[Candidate]] = {name: [] for name in self.lanes}
        for replica in self.replicas.values():
            own.setdefault(replica.route.lane, []).append(replica.candidate)
        named = {route.name for route in table.lanes}
        self._served_by = {}
        for name, lane in list(self.lanes.items()):
            lane.candidates = own[name]
            lane.spill = [own[other] for other in lane.route.spill_to if other in own]
            if name not in named and lane.is_idle:
                del self.lanes[name]
                continue
            for source in (name, *lane.route.spill_to):
                self._served_by.setdefault(source, []).append(lane)

    # A new request.

    def prompt_load(self, ask: Ask, hashes: list[int]) -> PromptLoad:
        """Return what a prompt brings: its length, estimated unless it came as token ids, and who has it cached."""
        tokens = ask.prompt_tokens if ask.prompt_tokens is not None else self.ratio.tokens(len(ask.prompt))
        cached = self.prefixes.cached_bytes(hashes) if hashes else {}
        per_token = self.ratio.bytes_per_token
        for replica_id, length in cached.items():
            cached[replica_id] = min(tokens, int(length / per_token))
        return PromptLoad(tokens, cached)

    def lane_of(
        self, prompt: PromptLoad, *, header: str | None, batch_hint: bool, stream: bool
    ) -> LaneRuntime | Refusal:
        """Return the lane a request enters."""

        def uncached(lane_name: str) -> int:
            return min((prompt.uncached(c.id) for c in self.lanes[lane_name].candidates), default=prompt.prompt_tokens)

        chosen = self._choice.choose(
            header=header, batch_hint=batch_hint, uncached_prompt_tokens=uncached, stream=stream
        )
        return chosen if isinstance(chosen, Refusal) else self.lanes[chosen.name]

    def enter(self, flight: Flight) -> None:
        """Dispatch, queue or refuse a new flight."""
        now_s = self.clock()
        lane = flight.lane
        lane.accounts.offered(now_s)
        # A line is never jumped, and a held lane dispatches nothing.
        found = None if lane.queue or lane.effects.holds_queue else self._pick(flight, now_s)
        is_probe = lane.effects.breaks and lane.probe.lets_through(now_s)
        answer = admit(lane.load(has_slot=found is not None), lane.effects, is_probe=is_probe)
        if answer is Admission.DISPATCH and found is not None:
            self._dispatch(flight, found, now_s)
        elif isinstance(answer, Refusal):
            flight.refuse(answer)
        else:
            flight.line = lane.queue
            flight.ticket = lane.queue.offer(flight, now_s=now_s, wait_max_s=lane.route.max_wait_s)
            self._arm(lane, lane.route.max_wait_s)

    # A request that has lost its replica.

    def place_orphan(self, flight: Flight) -> None:
        """Send a flight to another replica, over its slot limit if need be, or let it wait for one."""
        now_s = self.clock()
        found = self._pick(flight, now_s) or self._pick(flight, now_s, beyond_limit=True)
        if found is not None:
            self._dispatch(flight, found, now_s)
            return
        # Those who could not be reached may be back by then.
        flight.unreached.clear()
        if flight.orphan_deadline_s is None:
            flight.orphan_deadline_s = now_s + max(flight.lane.route.max_wait_s, self.limits.orphan_wait_s)
        wait_s = flight.orphan_deadline_s - now_s
        if wait_s <= 0.0:
            flight.waited_too_long()
            return
        flight.line = flight.lane.orphans
        flight.ticket = flight.line.put_back(flight, now_s=now_s, wait_max_s=wait_s)
        self._arm(flight.lane, wait_s)

    def has_alternative(self, flight: Flight, *, beyond_limit: bool) -> bool:
        """Whether some other replica could take this flight at once."""
        return self._pick(flight, self.clock(), beyond_limit=beyond_limit) is not None

    # The line moves.

    def released(self, replica: ReplicaRuntime) -> None:
        """Give a freed slot to who waits for it."""
        for lane in self._served_by.get(replica.route.lane, ()):
            self.pump(lane)

    def pump(self, lane: LaneRuntime) -> None:
        """Dispatch those who wait, orphans first, for as long as there are slots."""
        if lane.orphans:
            self._pump_orphans(lane)
        queue = lane.queue
        while queue and not lane.effects.holds_queue:
            flight = queue.peek()
            now_s = self.clock()
            found = self._pick(flight, now_s) if flight is not None else None
            if flight is None or found is None:
                return
            queue.pop()
            flight.ticket = None
            self._dispatch(flight, found, now_s)

    def _pump_orphans(self, lane: LaneRuntime) -> None:
        for ticket in lane.orphans.tickets():
            now_s = self.clock()
            found = self._pick(ticket.item, now_s, beyond_limit=True)
            if found is not None:
                lane.orphans.cancel(ticket)
                ticket.item.ticket = None
                self._dispatch(ticket.item, found, now_s)

    def leave_line(self, flight: Flight) -> None:
        """Take a flight out of whichever line it stands in."""
        if flight.ticket is not None and flight.line is not None:
            flight.line.cancel(flight.ticket)
            flight.ticket = None

    def _dispatch(self, flight: Flight, candidate: Candidate, now_s: float) -> None:
        self.prefixes.remember(flight.hashes, candidate.id)
        self.flights.add(flight)
        flight.dispatch(self.replicas[candidate.id], now_s)

    def _pick(self, flight: Flight, now_s: float, *, beyond_limit: bool = False) -> Candidate | None:
        lane = flight.lane
        found = self._usable(flight, lane.candidates, now_s, beyond_limit=beyond_limit)
        if not found and lane.spill and (lane.effects.spills or not any(c.in_rotation for c in lane.candidates)):
            for pool in lane.spill:
                found = self._usable(flight, pool, now_s, beyond_limit=False)
                if found:
                    break
        return pick(found, flight.prompt, self.rng) if found else None

    def _usable(
        self, flight: Flight, pool: Iterable[Candidate], now_s: float, *, beyond_limit: bool
    ) -> list[Candidate]:
        found = usable(pool, now_s=now_s, tried=flight.avoided, beyond_limit=beyond_limit)
        if flight.needs_continuing:
            found = [c for c in found if self.replicas[c.id].route.continues]
        return found

    # Time passes.

    def _arm(self, lane: LaneRuntime, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        if lane.timer is None or lane.timer.when() > loop.time() + wait_s:
            if lane.timer is not None:
                lane.timer.cancel()
            lane.timer = loop.call_later(wait_s, self._expire, lane)

    def _expire(self, lane: LaneRuntime) -> None:
        lane.timer = None
        now_s = self.clock()
        for line in (lane.orphans, lane.queue):
            for flight in line.expire(now_s):
                flight.ticket = None
                flight.waited_too_long()
        self._rearm(lane, now_s)

    def _rearm(self, lane: LaneRuntime, now_s: float) -> None:
        lines: tuple[LaneQueue[Flight], ...] = (lane.orphans, lane.queue)
        deadlines = [d for line in lines if (d := line.next_deadline_s()) is not None]
        if deadlines:
            # Loop timers count whole milliseconds: never fire before the deadline.
            self._arm(lane, max(0.0, min(deadlines) - now_s) + 0.001)

    def sweep(self, now_s: float) -> None:
        """Check everything that has a slow deadline: stalls, idle connections, replicas to be probed."""
        table = self.table
        if table is None:
            return
        for flight in list(self.flights):
            flight.check(now_s, table)
        for replica in self.replicas.values():
            replica.pool.expire()
        for lane in list(self.lanes.values()):
            lane.accounts.fold(now_s)
            # An ejection that ends wakes nobody by itself.
            if lane.queue or lane.orphans:
                self.pump(lane)
