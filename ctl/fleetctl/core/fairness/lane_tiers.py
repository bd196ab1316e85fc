"""A lane's tiers: what each is due, who goes before whom, and what is kept free for those who go first.

Each tier is due its floor, and of what is beyond all floors its weight's part. Who had less than its due lately goes before
who had more: of the former the highest first, of the latter whoever had the least of its due. What a tier does not use is
anybody's. An engine cannot be told to let a later prompt pass, so whoever goes last leaves room for those who go first: as
much as their own arrivals need, and as their misses have shown.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fleetctl.core.admission.ladder import degradation_of
from fleetctl.core.fairness.tier import LaneTier, TierStanding
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import BreachKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fleetctl.core.admission.ladder import Degradation
    from fleetctl.core.routing.candidate import Candidate
    from fleetctl.core.slo.stopwatch import RequestStopwatch
    from fleetctl.model.gateway import RouteLane
    from fleetctl.model.tiers import RouteTier

# So far over its due a tier leaves all the room it can to those who are under theirs.
_EXCESS_AT: Final = 1.25
# What is kept is for waits that no more than this share is to have; how much of it, misses say.
_MISSES_ALLOWED: Final = 0.001
_MARGIN_A_MISS: Final = 0.375
_MARGIN_A_HIT: Final = 0.00075  # one in five hundred may miss
# Of slots half as much is kept as of time in line: a slot that is kept serves nobody, where a line that is shorter does.
_MARGIN_OF_SLOTS: Final = 0.5
_MARGIN_AT_FIRST: Final = 0.5
_MARGIN_MIN: Final = 0.05
# Squared coefficient of variation of what prompts take, and of slots that Poisson arrivals hold at once so many deviations.
_LENGTHS_CV2: Final = 0.3
_DEVIATIONS: Final = 2.6
_LOAD_MAX: Final = 0.95
# For so long after its last request an engine is kept that a tier's next one finds in time.
_SEEN_S: Final = 60.0
# From this part of another tier's requests on, those that go before one keep it off engines.
_GOES_BEFORE: Final = 0.5
# From this share of the lane's tokens on, lower tiers are taken to be served.
_SERVED_AT: Final = 0.01
_LEVELS = tuple(LadderStep)
_LATE = (BreachKind.REFUSED, BreachKind.TTFT)


class LaneTiers:
    """One lane's."""

    def __init__(
        self, tiers: Sequence[RouteTier], route: RouteLane, now_s: float, returned: Iterable[LaneTier] = ()
    ) -> None:
        self.all: tuple[LaneTier, ...] = ()
        self.margin = _MARGIN_AT_FIRST  # of the room that theory asks for, the part that is kept
        self.opens_s = -math.inf  # when one who waits may next join an engine that is kept; past: none is
        self.apply(tiers, route, now_s, returned)

    def apply(
        self, tiers: Sequence[RouteTier], route: RouteLane, now_s: float, returned: Iterable[LaneTier] = ()
    ) -> None:
        """Take over new rules; a tier that keeps its name keeps what it has, as do those that the lane had before."""
        known = {tier.spec.name: tier for tier in (*returned, *self.all)}
        found = []
        for rank, spec in enumerate(tiers):
            degradation = degradation_of(stepped_back(route, len(tiers) - 1 - rank))
            unshed = degradation_of(replace(route, step=min(route.step, LadderStep.SPILL)))
            unshed = degradation if not (degradation.breaks or degradation.sheds_waiting) else unshed
            tier = known.get(spec.name) or LaneTier(spec, route.slo, degradation, rank=rank, now_s=now_s)
            tier.rank = rank
            tier.hold_to(spec, route.slo, degradation, unshed)
            found.append(tier)
        self.all = tuple(found)
        self.default = next((tier for tier in found if tier.spec.name == route.tier), found[-1])
        self._set_shares(route)

    def _set_shares(self, route: RouteLane) -> None:
        """Give each tier its due; those that the lane's step sheds have their floor, and the others what that leaves."""
        free = max(0.0, 1.0 - sum(tier.spec.floor for tier in self.all))
        held = {tier for tier in self.all if tier.stepped.sheds_waiting or tier.stepped.breaks}
        sharing = [tier for tier in self.all if tier not in held] or list(self.all)
        weights = sum(tier.spec.weight for tier in sharing)
        for tier in self.all:
            tier.share = tier.spec.floor + (free * tier.spec.weight / weights if tier in sharing else 0.0)

    def named(self, name: str) -> LaneTier | None:
        """Return the tier of this name; "" is the lane's default. None: there is none."""
        if not name:
            return self.default
        return next((tier for tier in self.all if tier.spec.name == name), None)

    # Who had what.

    def had(self, tier: LaneTier, now_s: float) -> float:
        """Return the share of the lane's tokens that a tier had lately, 0-1."""
        total = sum(each.served.at(now_s) for each in self.all)
        return tier.served.at(now_s) / total if total else 0.0

    def excess(self, tier: LaneTier, now_s: float) -> float:
        """Return how far a tier had more than its due: 0 (less) to 1 (a quarter more)."""
        had = self.had(tier, now_s)
        if had <= tier.share:
            return 0.0
        return min(1.0, (had / tier.share - 1.0) / (_EXCESS_AT - 1.0)) if tier.share else 1.0

    def degradation(self, tier: LaneTier, now_s: float) -> Degradation:
        """Return what the lane's step does to a tier now, and note it.

        Nothing is shed of one that has less than its floor, and nothing cut of one that has less than its due while lower
        ones are served: it is their work that is too much.
        """
        found, caps = tier.stepped, tier.stepped.max_tokens is not None or tier.stepped.context_tokens is not None
        if caps or found is not tier.unshed:
            had = self.had(tier, now_s)
            found = found if had >= tier.spec.floor else tier.unshed
            if caps and had < tier.share and self._serves_lower(tier, now_s):
                found = replace(found, max_tokens=None, context_tokens=None)
        tier.degradation = found
        return found

    def _serves_lower(self, tier: LaneTier, now_s: float) -> bool:
        return any(other.rank > tier.rank and self.had(other, now_s) > _SERVED_AT for other in self.all)

    def in_order(self, now_s: float) -> list[LaneTier]:
        """Return the tiers, who goes first first: under their floors and then under their dues by rank, then over by how far."""
        total = sum(tier.served.at(now_s) for tier in self.all)

        def key(tier: LaneTier) -> tuple[float, int]:
            due = tier.share * total
            served = tier.served.at(now_s)
            if served < tier.spec.floor * total:
                return -1.0, tier.rank
            if served <= due:
                return 0.0, tier.rank
            return (served / due if due else math.inf), tier.rank

        return sorted(self.all, key=key)

    # What is kept free.

    def headroom_s(self, tier: LaneTier, client: int, *, own_s: float, replicas: int, now_s: float) -> float:
        """Return how much of its time to the first token a request leaves at an engine for those who go before it.

        In a queue before one server the share that waits longer than t falls as load x exp(-2 (1 - load) t / (own (1 + cv^2))).
        """
        load = self._load_before(tier, client, now_s) / max(1, replicas)
        if load <= _MISSES_ALLOWED:
            return 0.0
        load = min(_LOAD_MAX, load)
        wait_s = own_s * (1.0 + _LENGTHS_CV2) / (2.0 * (1.0 - load)) * math.log(load / _MISSES_ALLOWED)
        return self.margin * wait_s

    def waited_for(self, tier: LaneTier, client: int, now_s: float) -> Iterator[tuple[LaneTier, int]]:
        """Yield the tiers that go before a request, and how many engines their prompts are to find in time.

        As many as carry their prompts, and one at the least: a tier of one request a minute needs that one as well.
        """
        excess = self.excess(tier, now_s)
        for other in self.all:
            if other is tier or now_s - other.arrived_s > _SEEN_S or math.isinf(other.budget_s):
                continue
            if self._weight_before(other, tier, excess, now_s) >= _GOES_BEFORE:
                yield other, 1 + math.floor(other.work.rate(now_s))

    def opens_at(self, at_s: float, now_s: float) -> None:
        """Note when an engine that is kept for those who go first may be joined by one that waits."""
        self.opens_s = at_s if self.opens_s <= now_s else min(self.opens_s, at_s)

    def passing(self, tier: LaneTier, replicas: int, now_s: float) -> float:
        """Return the share of an engine's time that prompts of higher tiers took lately."""
        taken = sum(other.taken.rate(now_s) for other in self.all if other.rank < tier.rank)
        return min(_LOAD_MAX, taken / max(1, replicas))

    def _load_before(self, tier: LaneTier, client: int, now_s: float) -> float:
        """Return the prompts of those who go before a request, in seconds of a replica a second."""
        excess, found = self.excess(tier, now_s), 0.0
        for other in self.all:
            if other is not tier:
                found += self._weight_before(other, tier, excess, now_s) * other.work.rate(now_s)
        over = tier.clients.excess(client, now_s)
        if over:
            found += over * tier.work.rate(now_s) * (1.0 - tier.clients.share(client, now_s))
        return found

    def _weight_before(self, other: LaneTier, tier: LaneTier, excess: float, now_s: float) -> float:
        """Return which part of another tier's requests go before one of a tier that has so much more than its due."""
        if self.excess(other, now_s):
            return 0.0
        is_short, is_other_short = self.is_short(tier, now_s), self.is_short(other, now_s)
        if is_short is not is_other_short:
            return 1.0 if is_other_short else 0.0
        return 1.0 if other.rank < tier.rank else excess

    def is_short(self, tier: LaneTier, now_s: float) -> bool:
        """Whether a tier had less than its floor lately."""
        return self.had(tier, now_s) < tier.spec.floor

    def may_take_slot(self, tier: LaneTier, client: int, candidates: Sequence[Candidate], now_s: float) -> bool:
        """Whether a request may take one of the free slots: some are kept for those who go before it."""
        slots = free = 0
        for candidate in candidates:
            if candidate.in_rotation:
                slots += candidate.concurrency_max
                free += max(0, candidate.concurrency_max - candidate.in_flight)
        if tier.in_flight + 1 > max(1.0, tier.spec.max_share * slots):
            return False
        excess, kept = self.excess(tier, now_s), 0.0
        for other in self.all:
            if other is not tier:
                kept += self._slots_held_back(other, slots, now_s) * self._weight_before(other, tier, excess, now_s)
        return free >= min(1.0 + _MARGIN_OF_SLOTS * self.margin * kept, float(slots))

    def _slots_held_back(self, other: LaneTier, slots: int, now_s: float) -> float:
        """Return the slots to keep for a tier beyond those it has: for what it wants, up to its due."""
        wanted = min(other.slots_wanted(now_s), other.share * slots)
        if wanted <= 0.01:
            return 0.0
        # Never beyond its due, which is of tokens: requests of few hold more slots for it than requests of many.
        due = other.share * slots
        density = other.tokens_per_slot_s
        if density:
            due = min(due, other.share * sum(tier.served.rate(now_s) for tier in self.all) / density)
        return max(0.0, min(wanted + _DEVIATIONS * math.sqrt(wanted), due) - other.in_flight)

    # What is predicted.

    def rate_share(self, tier: LaneTier, drain_rps: float, now_s: float) -> float:
        """Return the share of a lane's rate that a tier's waiting requests get: its due at the least, and what others leave."""
        if not drain_rps:
            return 1.0
        excess = self.excess(tier, now_s)
        before = sum(
            min(other.arrivals.rate(now_s), other.share * drain_rps) * self._weight_before(other, tier, excess, now_s)
            for other in self.all
            if other is not tier
        )
        return max(tier.share, 1.0 - before / drain_rps)

    def standing(self, tier: LaneTier, client: int, now_s: float) -> TierStanding:
        """Return how a tier stands now, for whoever asks later why a request of it was refused."""
        first = next(
            (t for t in self.in_order(now_s) if t is not tier and (t.waiting or t.arrivals.at(now_s) >= 1.0)), None
        )
        return TierStanding(
            had=self.had(tier, now_s),
            due=tier.share,
            floor=tier.spec.floor,
            client_share=tier.clients.share(client, now_s),
            waiting_first=first.spec.name if first is not None else "",
        )

    # What became of requests.

    def learn(self, tier: LaneTier, client: int, stopwatch: RequestStopwatch, now_s: float) -> None:
        """Learn from a request that had the right to go first whether enough room was kept for it."""
        if self.excess(tier, now_s) or tier.clients.excess(client, now_s):
            return
        if stopwatch.breach in _LATE:
            self.margin = min(1.0, self.margin + _MARGIN_A_MISS)
        else:
            self.margin = max(_MARGIN_MIN, self.margin - _MARGIN_A_HIT)


def stepped_back(route: RouteLane, steps: int) -> RouteLane:
    """Return a lane so many steps lower on the ladder: what it is for the tiers so far above the lowest."""
    if not steps or route.step is LadderStep.NORMAL:
        return route
    return replace(route, step=_LEVELS[max(0, route.step.level - steps)])
