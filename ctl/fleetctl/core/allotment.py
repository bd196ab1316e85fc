"""Divides a fleet's limits among its gateways, so that they hold for the sum whatever is late, lost or dead.

A gateway may have what it was last reported, until it has confirmed less. So each exchange goes in two parts: first those who
are to have less are reported, and then those who are to have more, what nobody has any more. One that is silent keeps what it may
have, and no more: what is free is divided among those that answer. `core/dispatch/sharing` is the
other side. It knows no gateway's address and no clock: who asks them is `controller/allotting`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fleetctl.model.allotment import (
    Allotment,
    LaneAllotment,
    LaneHoldings,
    OthersLoad,
    ReplicaAllotment,
    ReplicaHoldings,
    TierLoad,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fleetctl.model.allotment import GatewayHoldings
    from fleetctl.model.gateway import RouteReplica, RoutingTable

# Of what nobody needs now, the least that each gateway has: who had no traffic finds a slot for what comes first.
_LEAST_SHARE: Final = 0.05
_UNKNOWN: Final = 2**31  # of a gateway that has not reported, or had everything until now: more than any limit


@dataclass(slots=True)
class _Known:
    """What one gateway may believe to have, and last said that it has."""

    pid: int = 0
    slots: dict[str, int] = field(default_factory=dict)  # by replica, at the most
    places: dict[str, int] = field(default_factory=dict)  # by lane
    trials: dict[str, bool] = field(default_factory=dict)  # by replica
    probes: dict[str, bool] = field(default_factory=dict)  # by lane
    has_all: bool = True  # of what is in none of these: everything, as far as is known
    is_silent: bool = False  # it did not answer the last time
    replicas: dict[str, ReplicaHoldings] = field(default_factory=dict)
    lanes: dict[str, LaneHoldings] = field(default_factory=dict)

    def slots_of(self, replica: str) -> int:
        """Return the most requests it may have there, those included that it has beyond."""
        held = self.replicas[replica].streams if replica in self.replicas else 0
        return max(held, self.slots.get(replica, _UNKNOWN if self.has_all else 0))

    def places_of(self, lane: str) -> int:
        held = self.lanes[lane].queued if lane in self.lanes else 0
        return max(held, self.places.get(lane, _UNKNOWN if self.has_all else 0))

    def may_try(self, replica: str) -> bool:
        """Whether it may try an ejected replica, or is at it."""
        is_probing = replica in self.replicas and self.replicas[replica].is_probing
        return is_probing or self.trials.get(replica, self.has_all)

    def may_probe(self, lane: str) -> bool:
        return self.probes.get(lane, self.has_all)


class Allotter:
    """One controller's; `epoch` is its lease's. Gateways are known by their numbers."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._seq = 0
        self._known: dict[int, _Known] = {}
        self._credits: dict[tuple[str, int], float] = {}
        self._slots: dict[str, dict[int, int]] = {}  # what each should have, by replica
        self._places: dict[str, dict[int, int]] = {}
        self._triers: dict[str, int] = {}
        self._probers: dict[str, int] = {}
        self._table: RoutingTable | None = None

    def living(self, gateways: Iterable[int]) -> None:
        """Take back the shares of gateways that do not live any more; of one that begins to, nothing is known yet."""
        alive = set(gateways)
        self._known = {number: each for number, each in self._known.items() if number in alive}
        for number in alive:
            self._known.setdefault(number, _Known())

    def heard(self, gateway: int, holdings: GatewayHoldings) -> None:
        """Take in what a gateway has, under the allotment it says it works by."""
        known = self._known.setdefault(gateway, _Known())
        is_another = known.pid != holdings.pid
        known.is_silent = False
        known.replicas = {each.id: each for each in holdings.replicas}
        known.lanes = {each.name: each for each in holdings.lanes}
        if is_another or (holdings.epoch, holdings.seq) == (self._epoch, self._seq):
            # What it confirms is what it has: nothing else is under way to it, as each is asked one thing at a time.
            known.pid, known.has_all = holdings.pid, False
            known.slots = {each.id: _UNKNOWN if each.slots is None else each.slots for each in holdings.replicas}
            known.places = {each.name: _UNKNOWN if each.places is None else each.places for each in holdings.lanes}
            known.trials = {each.id: each.may_probe for each in holdings.replicas}
            known.probes = {each.name: each.may_probe for each in holdings.lanes}

    def missed(self, gateway: int) -> None:
        """Take in that a gateway did not answer: until it does it is only asked, and what it wanted is nobody's wish."""
        if gateway in self._known:  # a call may fail for the very reason that it lives no more
            self._known[gateway].is_silent = True

    def is_silent(self, gateway: int) -> bool:
        """Whether it did not answer the last time."""
        return gateway in self._known and self._known[gateway].is_silent

    def plan(self, table: RoutingTable) -> None:
        """Decide what each gateway that answers should have, by what all have and want."""
        self._table = table
        lanes = {lane.name: lane for lane in table.lanes}
        silent = [n for n, each in self._known.items() if each.is_silent]
        numbers = sorted(self._known.keys() - {*silent}) or sorted(self._known)
        keeping = [each for n, each in self._known.items() if n not in numbers and not each.has_all]
        weights = {name: self._weights(name, numbers) for name in lanes}
        self._slots, self._triers = {}, {}
        for row in table.replicas:
            self._slots[row.id] = self._slots_for(
                row, numbers, weights.get(row.lane) or [1.0 / len(numbers)] * len(numbers),
                kept=sum(each.slots_of(row.id) for each in keeping),
            )  # fmt: skip
            self._triers[row.id] = self._one_of(numbers, row.id)
        self._places = {}
        for name, lane_row in lanes.items():
            wants = [float(self._queued(n, name)) for n in numbers]
            free = max(0, lane_row.queue_max - sum(each.places_of(name) for each in keeping))
            shares = self._divided(f"lane/{name}", free, numbers, wants, weights[name])
            self._places[name] = dict(zip(numbers, shares, strict=True))
            busiest = max(numbers, key=lambda n: (self._arrivals(n, name), -n), default=0)
            self._probers[name] = self._kept(self._probers.get(name), busiest, numbers, name)

    def lowered(self, gateway: int) -> Allotment | None:
        """Return an allotment that gives a gateway nothing more than it has; None: it has not reported yet, or is silent."""
        known = self._known[gateway]
        return None if known.has_all or known.is_silent else self._allotment(gateway, may_raise=False)

    def raised(self, gateway: int) -> Allotment | None:
        """Return one that gives it what it should have of what nobody else has; None: that is nothing more."""
        known = self._known[gateway]
        if known.has_all or known.is_silent:
            return None
        found = self._allotment(gateway, may_raise=True)
        is_more = (
            any(each.slots > known.slots.get(each.id, 0) for each in found.replicas)
            or any(each.places > known.places.get(each.name, 0) for each in found.lanes)
            or any(each.may_probe and not known.trials.get(each.id) for each in found.replicas)
            or any(each.may_probe and not known.probes.get(each.name) for each in found.lanes)
        )
        if not is_more:
            return None
        # It may have it from the moment on that it is sent.
        known.slots |= {each.id: max(each.slots, known.slots.get(each.id, 0)) for each in found.replicas}
        known.places |= {each.name: max(each.places, known.places.get(each.name, 0)) for each in found.lanes}
        known.trials |= {each.id: each.may_probe or known.trials.get(each.id, False) for each in found.replicas}
        known.probes |= {each.name: each.may_probe or known.probes.get(each.name, False) for each in found.lanes}
        return found

    def begin(self) -> None:
        """Number what is sent from now on anew: one number for each part of an exchange."""
        self._seq += 1

    def alone(self) -> Allotment:
        """Return what gives the only gateway everything."""
        return Allotment(epoch=self._epoch, seq=self._seq, is_alone=True)

    # One gateway's part.

    def _allotment(self, gateway: int, *, may_raise: bool) -> Allotment:
        known = self._known[gateway]
        table = self._table
        if table is None:
            return Allotment(epoch=self._epoch, seq=self._seq)
        others = [each for number, each in self._known.items() if number != gateway]
        replicas = []
        for row in table.replicas:
            wanted, had = self._slots[row.id].get(gateway, 0), known.slots.get(row.id, 0)
            slots = min(wanted, had)
            if may_raise and wanted > had:
                free = row.concurrency_max - sum(each.slots_of(row.id) for each in others)
                slots = max(had, min(wanted, free))
            may_try = self._triers[row.id] == gateway and (
                known.trials.get(row.id, False) or (may_raise and not any(each.may_try(row.id) for each in others))
            )
            replicas.append(
                ReplicaAllotment(id=row.id, slots=slots, may_probe=may_try, others=_others_load(others, row.id))
            )
        lanes = tuple(self._lane(gateway, row.name, row.queue_max, others, may_raise=may_raise) for row in table.lanes)
        return Allotment(epoch=self._epoch, seq=self._seq, replicas=tuple(replicas), lanes=lanes)

    def _lane(
        self, gateway: int, name: str, queue_max: int, others: Sequence[_Known], *, may_raise: bool
    ) -> LaneAllotment:
        known = self._known[gateway]
        wanted, had = self._places[name].get(gateway, 0), known.places.get(name, 0)
        places = min(wanted, had)
        if may_raise and wanted > had:
            places = max(had, min(wanted, queue_max - sum(each.places_of(name) for each in others)))
        may_probe = self._probers[name] == gateway and (
            known.probes.get(name, False) or (may_raise and not any(each.may_probe(name) for each in others))
        )
        # What one had lately that is silent now says nothing of what comes.
        reported = [each.lanes[name] for each in others if name in each.lanes and not each.is_silent]
        return LaneAllotment(
            name=name,
            places=places,
            may_probe=may_probe,
            prefill_load=sum(each.prefill_load for each in reported),
            is_pressed=any(each.is_pressed for each in reported),
            tiers=_tier_loads(reported),
        )

    # Who needs what.

    def _arrivals(self, gateway: int, lane: str) -> float:
        found = self._known[gateway].lanes.get(lane)
        return found.arrivals_per_s if found is not None else 0.0

    def _queued(self, gateway: int, lane: str) -> int:
        found = self._known[gateway].lanes.get(lane)
        return found.queued if found is not None else 0

    def _waiting(self, gateway: int, lane: str) -> int:
        found = self._known[gateway].lanes.get(lane)
        return found.waiting if found is not None else 0

    def _weights(self, lane: str, numbers: Sequence[int]) -> list[float]:
        """Return which part each gets of what nobody needs now: by arrivals, a little for all."""
        arrivals = [self._arrivals(n, lane) for n in numbers]
        most = sum(arrivals)
        found = [max(_LEAST_SHARE, each / most if most else 1.0) for each in arrivals]
        return [each / sum(found) for each in found]

    def _slots_for(
        self, row: RouteReplica, numbers: Sequence[int], weights: Sequence[float], *, kept: int
    ) -> dict[int, int]:
        """Divide a replica's slots but those `kept` by the silent; while anybody waits for one of its lane, what is free of it is one gateway's at a time.

        So nobody else sends it a prompt meanwhile, and that gateway's forecast of its line is right or on the safe side.
        """
        reported = {n: each for n in numbers if (each := self._known[n].replicas.get(row.id)) is not None}
        limit = min([row.concurrency_max, *(each.streams_max for each in reported.values() if each.streams_max)])
        limit = max(0, limit - kept)
        held = {n: reported[n].streams if n in reported else 0 for n in numbers}
        waiting = [self._waiting(n, row.lane) for n in numbers]
        if not any(waiting):
            shares = self._divided(f"replica/{row.lane}", limit, numbers, [float(held[n]) for n in numbers], weights)
            return dict(zip(numbers, shares, strict=True))
        turn = self._turn(row.lane, numbers, waiting)
        return {n: max(0, limit - sum(held.values()) + held[n]) if n == turn else 0 for n in numbers}

    def _turn(self, lane: str, numbers: Sequence[int], waiting: Sequence[int]) -> int:
        """Return whose turn it is, so often as it has of those who wait."""
        for n, each in zip(numbers, waiting, strict=True):
            key = (f"turn/{lane}", n)
            self._credits[key] = max(-1.0, min(2.0, self._credits.get(key, 0.0) + each / sum(waiting)))
        eligible = [n for n, each in zip(numbers, waiting, strict=True) if each]
        turn = max(eligible, key=lambda n: self._credits[f"turn/{lane}", n])
        self._credits[f"turn/{lane}", turn] -= 1.0
        return turn

    def _divided(
        self, credited: str, limit: int, numbers: Sequence[int], wants: Sequence[float], weights: Sequence[float]
    ) -> list[int]:
        """Divide a limit: what each wants and, of the rest, by weight; where that is too much, by what each wants.

        What rounding takes from one is made good at the next division for the same lane.
        """
        wanted = math.fsum(wants)
        if wanted <= limit:
            exact = [want + (limit - wanted) * weight for want, weight in zip(wants, weights, strict=True)]
        else:
            exact = [limit * want / wanted for want in wants]
        owed = [each + self._credits.get((credited, n), 0.0) for n, each in zip(numbers, exact, strict=True)]
        shares = [max(0, math.floor(each)) for each in exact]
        for _ in range(limit - sum(shares)):
            index = max(range(len(numbers)), key=lambda i: owed[i] - shares[i])
            shares[index] += 1
        for n, due, share in zip(numbers, owed, shares, strict=True):
            self._credits[credited, n] = min(1.0, max(-1.0, due - share))
        return shares

    def _one_of(self, numbers: Sequence[int], replica: str) -> int:
        """Return the gateway that may try an ejected replica: the first that wants to, unless another is at it."""
        reported = {n: each for n in numbers if (each := self._known[n].replicas.get(replica)) is not None}
        probing = next((n for n, each in reported.items() if each.is_probing), None)
        if probing is not None:
            return probing
        having = [n for n, each in reported.items() if each.may_probe]
        wanting = [n for n, each in reported.items() if each.wants_probe]
        return next((n for n in having if n in wanting), next(iter(wanting or having or numbers), 0))

    def _kept(self, before: int | None, busiest: int, numbers: Sequence[int], lane: str) -> int:
        """Return who may probe a lane: who could, unless another has much more to do."""
        if before not in numbers or before is None:
            return busiest
        return busiest if self._arrivals(busiest, lane) > 2.0 * self._arrivals(before, lane) else before


def _others_load(others: Sequence[_Known], replica: str) -> OthersLoad:
    reported = [each.replicas[replica] for each in others if replica in each.replicas]
    return OthersLoad(
        streams=sum(each.streams for each in reported),
        prompts=sum(each.prompts for each in reported),
        prompt_tokens=sum(each.prompt_tokens for each in reported),
        kv_held=math.fsum(each.kv_held for each in reported),
        kv_most=math.fsum(each.kv_most for each in reported),
        prompts_done=sum(each.prompts_done for each in reported),
        prompt_tokens_done=sum(each.prompt_tokens_done for each in reported),
    )


def _tier_loads(reported: Sequence[LaneHoldings]) -> tuple[TierLoad, ...]:
    found: dict[str, TierLoad] = {}
    for lane in reported:
        for tier in lane.tiers:
            so_far = found.get(tier.name) or TierLoad(name=tier.name)
            found[tier.name] = TierLoad(
                name=tier.name,
                served=so_far.served + tier.served,
                arrivals=so_far.arrivals + tier.arrivals,
                taken=so_far.taken + tier.taken,
                work=so_far.work + tier.work,
            )
    return tuple(found.values())


def exchanged(
    allotter: Allotter,
    table: RoutingTable,
    gateways: Mapping[int, Callable[[Allotment | None], GatewayHoldings | None]],
) -> None:
    """Run one exchange with gateways that answer at once, as a simulation does.

    A call with None only asks what a gateway has; one that returns None could not be reached.
    """
    allotter.living(gateways)
    allotter.plan(table)
    for allotment_of, or_reports in ((allotter.lowered, True), (allotter.raised, False)):
        allotter.begin()
        for number, call in gateways.items():
            allotment = allotment_of(number)
            if allotment is None and not or_reports:
                continue
            holdings = call(allotment)
            if holdings is not None:
                allotter.heard(number, holdings)
            else:
                allotter.missed(number)
