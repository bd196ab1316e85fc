"""The routing table at work: its lanes and replicas with their loads, and which replica may and should take a request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.admission.generation import most_tokens
from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.admission.tokens import TokenRatio
from fleetctl.core.dispatch.lane import UNLIMITED_TOKENS, DispatchLane
from fleetctl.core.dispatch.lending import lent
from fleetctl.core.dispatch.replica import DispatchReplica
from fleetctl.core.dispatch.roomier import roomier
from fleetctl.core.dispatch.tier_room import kept_open, leaving_room, may_take_slot, timely
from fleetctl.core.dispatch.tiered_lane import hold_to_tiers
from fleetctl.core.lanes import LaneChoice, choices_by_model
from fleetctl.core.routing.candidate import Candidate, PromptLoad
from fleetctl.core.routing.picker import Picker
from fleetctl.core.routing.prefix_index import PrefixIndex
from fleetctl.core.routing.usable import least_bad, serving, usable
from fleetctl.model.profile import RoutingRules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.admission.tokens import PromptSize, RequestTokens
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.random_source import RandomSource
    from fleetctl.model.gateway import RouteLane, RoutingTable


class RoutingState:
    """Holds every lane and replica; one table replaces another between two requests."""

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self.table: RoutingTable | None = None
        self.lanes: dict[str, DispatchLane[ActiveRequest]] = {}
        self.replicas: dict[str, DispatchReplica] = {}
        self.ratio = TokenRatio()
        self.prefixes = PrefixIndex()
        self.any_continues = False  # some replica could go on with a lost stream
        self._all_ready = True  # no node is reported not ready
        self._answer_max: int | None = None  # no lane lets an answer get longer
        # By model; "": among all lanes.
        self._choices: dict[str, LaneChoice[RouteLane]] = {"": LaneChoice(())}
        self._picker = Picker(RoutingRules())
        self.served_by: dict[str, list[DispatchLane[ActiveRequest]]] = {}  # a lane -> the lanes its replicas may serve

    # The table.

    def apply(self, table: RoutingTable, now_s: float) -> None:
        """Replace the table. Replicas and lanes it names no longer keep what they carry."""
        self.table = table
        self._picker = Picker(table.routing)
        self._choices = choices_by_model(table.lanes)
        self._apply_replicas(table, now_s)
        for row in table.lanes:
            lane = self.lanes.get(row.name)
            if lane is None:
                lane = self.lanes[row.name] = DispatchLane(row, now_s=now_s)
            else:
                lane.apply(row)
            hold_to_tiers(lane, table.tiers, now_s)
        self._wire_lanes(table)
        self._answer_max = most_tokens(row.generation for row in table.lanes)
        self.any_continues = any(row.continues for row in table.replicas)
        self._all_ready = all(row.node_ready for row in table.replicas)

    def _apply_replicas(self, table: RoutingTable, now_s: float) -> None:
        listed = {row.id: row for row in table.replicas}
        for replica_id, replica in list(self.replicas.items()):
            row = listed.get(replica_id)
            if row is None or row.address != replica.route.address:
                # What it carries holds on to it; for new requests it has gone.
                replica.retire(now_s)
                del self.replicas[replica_id]
                self.prefixes.forget(replica_id)
        for row in table.replicas:
            if row.id in self.replicas:
                self.replicas[row.id].apply(row, now_s)
            else:
                self.replicas[row.id] = DispatchReplica(row, now_s)

    def _wire_lanes(self, table: RoutingTable) -> None:
        own: dict[str, list[Candidate]] = {name: [] for name in self.lanes}
        for replica in self.replicas.values():
            own.setdefault(replica.route.lane, []).append(replica.candidate)
        named = {row.name for row in table.lanes}
        self.served_by = {}
        for name, lane in list(self.lanes.items()):
            lane.candidates = own[name]
            lane.held_by_all = min((c.max_model_len for c in own[name] if c.max_model_len), default=UNLIMITED_TOKENS)
            lane.spill = [own[other] for other in lane.route.spill_to if other in own]
            if name not in named and lane.is_idle:
                del self.lanes[name]
                continue
            lane.lenders = tuple(other for other in self.lanes.values() if lane.may_borrow_of(other))
        for name in self.lanes:
            # Its own first: the owner comes before those who borrow.
            self.served_by[name] = sorted(self.lanes.values(), key=lambda lane: lane.route.name != name)

    # Where a request belongs.

    def prompt_load(self, size: PromptSize, hashes: list[int]) -> PromptLoad:
        """Return what a prompt brings: its length, estimated unless it is known, and who has how much of it cached."""
        tokens = self.ratio.prompt_tokens(size)
        cached = self.prefixes.cached_bytes(hashes) if hashes else {}
        for replica_id, length in cached.items():
            # What the template puts around cached messages is cached with them.
            cached[replica_id] = tokens * length // size.text_bytes if length < size.text_bytes else tokens
        return PromptLoad(tokens, cached)

    def lane_of(  # all that a lane is chosen by
        self,
        prompt: PromptLoad,
        tokens: RequestTokens,
        *,
        header: str | None,
        batch_hint: bool,
        stream: bool,
        model: str = "",
    ) -> DispatchLane[ActiveRequest] | Refusal:
        """Return the lane a request enters, among those of its model, by the replicas that have its prompt cached."""

        def uncached(lane_name: str) -> int:
            return min((prompt.uncached(c.id) for c in self.lanes[lane_name].candidates), default=prompt.prompt_tokens)

        if self._answer_max is not None and tokens.output > self._answer_max:
            tokens = tokens.bounded(self._answer_max)
        choice = self._choices.get(model)
        if choice is None:
            return Refusal.NO_REPLICA
        chosen = choice.choose_holding(
            tokens, header=header, batch_hint=batch_hint, uncached_prompt_tokens=uncached, stream=stream
        )
        return chosen if isinstance(chosen, Refusal) else self.lanes[chosen.name]

    def pick(self, request: ActiveRequest, now_s: float, *, beyond_limit: bool = False) -> Candidate | None:
        """Return the replica to take a request now, its lane's own before those it may spill to. None: nobody can.

        `beyond_limit` ignores the slot limit of its lane's own replicas.
        """
        lane = request.lane
        tried, must_continue, needed = request.avoided, request.must_continue, request.needed_tokens
        own = lane.candidates
        prompt = request.prompt
        found = usable(
            own, now_s=now_s, prompt=prompt, tried=tried, beyond_limit=beyond_limit, must_continue=must_continue
        )
        if needed > lane.held_by_all:
            found = [c for c in found if c.holds(needed)]
        if request.tier is not None and found and not beyond_limit and not may_take_slot(request, now_s):
            found = []
        if not beyond_limit:
            found = self._in_time(request, roomier(request, now_s) or found, now_s)
        elif not found:
            found = self._lent(request, now_s)
        if not found:
            for pool in self.other_pools(request):
                found = usable(pool, now_s=now_s, prompt=prompt, tried=tried, must_continue=must_continue)
                found = [c for c in found if c.holds(needed)]
                if found:
                    break
        if not found:
            found = least_bad(own, tried=tried, beyond_limit=beyond_limit, must_continue=must_continue)
            found = [c for c in found if c.holds(needed)]
        if not self._all_ready:
            found = [c for c in found if c.node_ready] or found
        return self._picker.pick(found, request.prompt, self._rng, now_s) if found else None

    def _in_time(self, request: ActiveRequest, free: list[Candidate], now_s: float) -> list[Candidate]:
        """Return who answers in time: of these, its lane's own, else of those that are lent; else whoever is idle.

        A prompt too long for the promise is late at any of its own. Another lane's may be faster at prompts.
        """
        lane = request.lane
        idle: list[Candidate] = []
        free = kept_open(request, free, now_s)
        if free:
            left_s = request.budget_s - (now_s - request.stopwatch.started_s)
            line_s_max = lane.line_s_max
            if request.tier is not None:
                left_s, line_s_max = leaving_room(request, free, left_s, now_s)
            found = timely(request, free, left_s, line_s_max, now_s, or_idle=False)
            if found:
                return found
            if not (idle := [c for c in free if not c.line.count]):
                lane.demand.pressed(now_s, lane.accounts, objective=lane.route.objective)
        return self._lent(request, now_s) or idle

    def _lent(self, request: ActiveRequest, now_s: float) -> list[Candidate]:
        needed = request.needed_tokens
        return [c for owner in request.lane.lenders for c in lent(request, owner, now_s) if c.holds(needed)]

    def note_demand(self, request: ActiveRequest, now_s: float) -> None:
        """Count what an arrival asks of its lane's replicas."""
        lane = request.lane
        if lane.candidates:
            first = lane.candidates[0]
            tokens = request.prompt.uncached(first.id)
            lane.demand.add(tokens, first.line.work_s(tokens), now_s)

    def late_s(self, request: ActiveRequest, now_s: float) -> float | None:
        """Return when an engine of its lane is done with its prompts, where none answers the request in time.

        None: a slot is all that it lacks, or there is no engine.
        """
        lane = request.lane
        serves = serving(lane.candidates)
        left_s = request.budget_s - (now_s - request.stopwatch.started_s)
        if not serves or timely(request, serves, left_s, lane.line_s_max, now_s):
            return None
        if math.isinf(request.budget_s):
            return None
        prompt = request.prompt
        return min(max(c.line.wait_s(now_s), c.kv.wait_s(prompt.uncached(c.id), now_s)) for c in serves)

    def other_pools(self, request: ActiveRequest) -> Iterable[list[Candidate]]:
        """Return the replicas beyond its lane's own that may take a request, best first.

        Those it may spill to; and where its own engines, of which it had been believed otherwise, do not hold the
        request, all others.
        """
        lane = request.lane
        pools = lane.spill if lane.may_spill else []
        held = lane.route.max_model_len
        if request.is_lane_named or request.needed_tokens <= held or not held:
            return pools
        choice = self._choices.get(lane.route.model)  # None: its last lane has left the table
        rows = choice.lanes if choice is not None else ()
        others = (self.lanes[row.name] for row in rows if row.name != lane.route.name)
        return [*pools, *(other.candidates for other in sorted(others, key=lambda other: other.route.match.batch))]

    def may_eject(self, replica: DispatchReplica) -> bool:
        """Whether half of its lane is left without this replica: Envoy's panic threshold, kept at the ejection.

        Whoever is hung or cannot be reached is ejected whatever is left, for asking it helps nobody.
        """
        lane = self.lanes.get(replica.route.lane)
        pool = [c for c in lane.candidates if c.in_rotation] if lane is not None else []
        others_out = sum(c.ejected_until_s > 0.0 and c is not replica.candidate for c in pool)
        return 2 * (others_out + 1) <= len(pool)
